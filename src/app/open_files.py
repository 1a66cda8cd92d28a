"""How many files a run may have open."""

import resource
from contextlib import suppress

_ENOUGH = 65_536
"""Commands inherit it, and some programs go through every number below their limit."""
_MOST_AT_MACOS = 10_240


def allow_many_open_files() -> None:
    """Raise the soft limit as far as is allowed and sensible: every command of a sandbox holds some files open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return
    for wanted in (_ENOUGH, _MOST_AT_MACOS):
        allowed = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))
            return
