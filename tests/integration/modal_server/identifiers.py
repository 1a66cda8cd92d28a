"""Ids in the shapes the SDK tells things apart by."""

import secrets
import string

_BASE62 = string.digits + string.ascii_letters


def new_id(prefix: str) -> str:
    """`prefix` and exactly 22 base62 characters: for a sandbox, the first generation (V1)."""
    return prefix + "".join(secrets.choice(_BASE62) for _ in range(22))


def new_v2_sandbox_id() -> str:
    """An id the SDK takes for a sandbox of the second generation: not 22 characters."""
    return f"{new_id('sb-')}V2"


def new_v2_task_id() -> str:
    """The SDK knows a task of a V2 sandbox by its last letter."""
    return f"{new_id('ta-')}V"
