"""Finding and killing the processes that a command or a sandbox has started, wherever they have gone."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

_PROC = "/proc"
_PAUSE_S = 0.01
_ENDED = frozenset({b"Z", b"X"})


@dataclass(frozen=True)
class Mark:
    """What tells a process as ours: an entry of its environment, a session, or a working directory."""

    variable: str
    """`NAME=value`."""
    sessions: frozenset[int] = frozenset()
    folder: Path | None = None


@dataclass(frozen=True)
class _Process:
    pid: int
    parent: int
    session: int


def can_see_processes() -> bool:
    """Whether marked processes can be found; elsewhere process groups have to do."""
    return os.path.exists(f"{_PROC}/self/environ")


def group_alive(group: int) -> bool:
    """Whether any process of the group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def kill_marked(mark: Mark, limit_s: float) -> set[int]:
    """SIGKILL every process with this mark, and those they start meanwhile; returns the pids that will not die.

    They are all stopped before the first is killed: a shell whose child dies would go on to its next command.
    """
    send, find = os.kill, partial(marked, mark)
    if not can_see_processes():
        send, find = os.killpg, partial(_living_groups, mark)
    deadline = time.monotonic() + limit_s
    stopped: set[int] = set()
    while (found := find()) and time.monotonic() < deadline:
        _signal(send, found, signal.SIGSTOP)
        if found <= stopped:
            _signal(send, found, signal.SIGKILL)
            time.sleep(_PAUSE_S)
        stopped = found
    _signal(send, found, signal.SIGKILL)
    return found


def _signal(send: Callable[[int, int], None], targets: set[int], number: int) -> None:
    for target in targets:
        with suppress(ProcessLookupError, PermissionError):
            send(target, number)


def _living_groups(mark: Mark) -> set[int]:
    return {group for group in mark.sessions if group_alive(group)}


def marked(mark: Mark) -> set[int]:
    """Pids of living processes with this mark: by their own environment or directory, by session, or by descent."""
    # Marks first: whoever bears one has left the session of this process, so no session read before counts.
    bearers = {pid for pid in _pids() if _bears(pid, mark.variable)}
    inside = {pid for pid in _pids() if mark.folder is not None and _is_inside(pid, mark.folder)}
    processes = [process for process in map(_looked_up, _pids()) if process is not None]
    alive = {process.pid for process in processes}
    # Whoever only works in the folder may have come to look: their session is their own.
    return _with_sessions(bearers & alive, mark.sessions, processes) | _with_descendants(inside & alive, processes)


def _with_sessions(found: set[int], sessions: frozenset[int], processes: Sequence[_Process]) -> set[int]:
    while True:
        sessions = sessions.union(p.session for p in processes if p.pid in found) - {os.getsid(0)}
        more = {p.pid for p in processes if p.session in sessions or p.parent in found} - found
        if not more:
            return found
        found = found | more


def _with_descendants(found: set[int], processes: Sequence[_Process]) -> set[int]:
    while more := {p.pid for p in processes if p.parent in found} - found:
        found = found | more
    return found


def _bears(pid: int, variable: str) -> bool:
    with suppress(OSError), open(f"{_PROC}/{pid}/environ", "rb") as file:
        return os.fsencode(variable) in file.read().split(b"\0")
    return False


def _is_inside(pid: int, folder: Path) -> bool:
    with suppress(OSError):
        return f"{os.readlink(f'{_PROC}/{pid}/cwd')}/".startswith(f"{folder}/")
    return False


def _pids() -> list[int]:
    return [int(name) for name in os.listdir(_PROC) if name.isdigit() and int(name) not in (1, os.getpid())]


def _looked_up(pid: int) -> _Process | None:
    try:
        with open(f"{_PROC}/{pid}/stat", "rb") as file:
            status = file.read()
    except OSError:
        return None
    state, parent, _group, session = status.rpartition(b")")[2].split()[:4]
    return None if state in _ENDED else _Process(pid, int(parent), int(session))
