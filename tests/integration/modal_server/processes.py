"""Processes of this machine: who descends from whom, who shares a session, and their end."""

import asyncio
import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def _parents_and_sessions() -> dict[int, tuple[int, int]]:
    found = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            fields = Path(entry.path, "stat").read_text(errors="replace").rpartition(")")[2].split()
            found[int(entry.name)] = (int(fields[1]), int(fields[3]))
    return found


def family(leader: int) -> set[int]:
    """The leader, its descendants, and whoever is in its session (orphans included)."""
    known = _parents_and_sessions()
    members = {leader} | {pid for pid, (_, session) in known.items() if session == leader}
    grown = True
    while grown:
        children = {pid for pid, (parent, _) in known.items() if parent in members} - members
        members |= children
        grown = bool(children)
    return members


def children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def kill_family(leader: int) -> None:
    """End them all; they are stopped first, so that none sees another die or starts one more."""
    stopped: set[int] = set()
    while fresh := family(leader) - stopped:
        _send(fresh, signal.SIGSTOP)
        stopped |= fresh
    kill(stopped)


def kill(pids: Iterable[int]) -> None:
    _send(pids, signal.SIGKILL)


def _send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


async def ended(pid: int) -> None:
    """Wait until a process, not necessarily a child, is no longer there."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    gone = loop.create_future()
    try:
        loop.add_reader(handle, lambda: None if gone.done() else gone.set_result(None))
        await gone
    finally:
        loop.remove_reader(handle)
        os.close(handle)
