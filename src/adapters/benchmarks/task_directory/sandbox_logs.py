"""Folders fetched from a sandbox: measured there first, so that nothing huge is ever on its way."""

import asyncio
import re
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ....domain.errors import SandboxFailed, SandboxLost
from ....domain.ports import Sandbox

MAX_ENTRIES = 20_000
KEEP_LIMIT_S = 200.0
"""For all that a stage fetches only to keep it."""
_MIB = 1024 * 1024
SIZE_FUNCTION = rf"""ac_size() {{
  if [ -d "$2" ]; then
    ac_entries=$(find "$2/." 2>/dev/null | head -n {MAX_ENTRIES + 2} | wc -l)
    ac_sparse=$(find "$2/." -type f -size +$3k 2>/dev/null | head -n 1)
    set -- "$1" $(du -sk "$2/." 2>/dev/null)
    printf 'size=%s:%s:%s:%s\n' "$1" "${{2:-0}}" "${{ac_entries:-0}}" "${{ac_sparse:+large}}"
  elif [ -f "$2" ]; then
    set -- "$1" $(wc -c < "$2" 2>/dev/null)
    printf 'size=%s:%s::\n' "$1" "$((${{2:-0}} / 1024))"
  fi
}}
"""
"""Shell: `ac_size NAME PATH KIB` prints a line that `read_size` reads; nothing where there is no such path."""
_SIZE_LINE = re.compile(r"^size=(?P<name>[^:\n]*):(?P<kib>\d+): *(?P<entries>\d*):(?P<sparse>\w*)$", re.MULTILINE)


@dataclass(frozen=True)
class Size:
    """What a path in the sandbox holds. `entries` is None for a file; a folder counts itself."""

    kib: int
    entries: int | None
    sparse: bool = False

    @property
    def empty(self) -> bool:
        """A folder with nothing in it."""
        return self.entries == 1

    def exceeds(self, max_bytes: int) -> bool:
        """Whether it is too much to fetch."""
        return self.kib * 1024 > max_bytes or self.sparse or (self.entries or 0) > MAX_ENTRIES


def size_call(name: str, quoted_path: str, max_bytes: int) -> str:
    """The shell line that measures a path (quoted for the shell already)."""
    return f"ac_size {name} {quoted_path} {max_bytes // 1024}\n"


def read_size(stdout: str, name: str) -> Size | None:
    """What `ac_size NAME` printed; None where there is no such path."""
    for match in _SIZE_LINE.finditer(stdout):
        if match["name"] == name:
            entries = int(match["entries"]) if match["entries"] else None
            return Size(int(match["kib"]), entries, bool(match["sparse"]))
    return None


def keep_deadline() -> float:
    """When, on the loop's clock, fetching what is only kept has to end if it begins now."""
    return asyncio.get_running_loop().time() + KEEP_LIMIT_S


async def fetched(
    sandbox: Sandbox, source: PurePosixPath, target: Path, size: Size | None, max_bytes: int, *, deadline: float
) -> str:
    """Download `source` unless it is missing, empty or too much; returns why it was not, or nothing.

    At `deadline` on the loop's clock (see `keep_deadline`) it is given up.

    Raises:
        SandboxLost: as it came.
    """
    if size is None:
        return "missing"
    if size.empty:
        return "empty"
    if size.exceeds(max_bytes):
        return f"more than {max_bytes // _MIB} MiB or {MAX_ENTRIES} files"
    return await why_not_kept(_download(sandbox, source, target), deadline)


async def _download(sandbox: Sandbox, source: PurePosixPath, target: Path) -> None:
    await asyncio.to_thread(target.parent.mkdir, parents=True, exist_ok=True)
    await sandbox.download(source, target)


async def why_not_kept(fetching: Awaitable[None], deadline: float) -> str:
    """Await it until `deadline` at most; returns why it could not be done, or nothing.

    Raises:
        SandboxLost: as it came.
    """
    try:
        async with asyncio.timeout_at(deadline) as scope:
            await fetching
    except TimeoutError as exc:
        late = f"the limit of {KEEP_LIMIT_S:g} s for all that is kept was reached"
        return f"not fetched: {late if scope.expired() else exc}"
    except FileNotFoundError:
        return "missing"
    except SandboxLost:
        raise
    except (SandboxFailed, OSError) as exc:
        return f"not fetched: {exc}"
    return ""
