"""Names made from ids: injective, safe on every file system and at every provider."""

import hashlib
import re

from .sandbox import SandboxOwner

_SAFE = re.compile(r"[a-z0-9][a-z0-9_-]*(\.[a-z0-9_-]+)*")
_MAX_FILE_NAME = 120
_RESERVED = {"con", "prn", "aux", "nul", *(f"com{n}" for n in range(10)), *(f"lpt{n}" for n in range(10))}


def file_name(task_id: str) -> str:
    """A file name (without suffix) for a task id: the id itself where it is safe, else a readable part and a hash.

    Injective, also where file names ignore case: an id that is lower case, short and plain stays as it is; any other
    ends in `~` and 16 hex digits of its SHA-256, and `~` never occurs in a plain one.
    """
    if _SAFE.fullmatch(task_id) and len(task_id) <= _MAX_FILE_NAME and task_id.split(".")[0] not in _RESERVED:
        return task_id
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", task_id)[:80].strip("-")
    digest = hashlib.sha256(task_id.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{readable}~{digest}"


def sandbox_name(owner: SandboxOwner) -> str:
    """A deterministic name of at most 60 characters `[a-z0-9-]`; distinct for distinct owners."""
    parts = (owner.run_id, owner.task_id, owner.attempt, owner.try_number, owner.purpose, owner.host, owner.process)
    digest = hashlib.sha256(repr(parts).encode()).hexdigest()[:12]  # repr keeps the borders between the parts
    readable = re.sub(r"[^a-z0-9]+", "-", owner.task_id.lower())[:30].strip("-") or "task"
    return f"ac-{readable}-{owner.attempt}-{digest}"
