"""Who this process is, and whether the one that a label names is still alive."""

import os
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from ...domain.sandbox import SweepSelector

_UNKNOWN = "0"
_BOOT_DIGITS = 8


def this_host() -> str:
    """Machine, its boot, and process namespace: a pid means the same process only within all three.

    The boot tells apart machines of one name, whose first process namespaces have one number everywhere.
    """
    boot = _or_unknown(lambda: Path("/proc/sys/kernel/random/boot_id").read_text())
    namespace = _or_unknown(lambda: os.readlink("/proc/self/ns/pid"))
    return f"{socket.gethostname()}-{boot[:_BOOT_DIGITS]}-{namespace.strip('pid:[]')}"


def dead_runs(run_id: str | None = None) -> SweepSelector:
    """What runs of this host that have ended left behind, and what has expired; of `run_id` only, where it is given."""
    return SweepSelector(run_id=run_id, host=this_host(), now=datetime.now(UTC))


def this_process() -> str:
    """Pid and start time, so that a reused pid is another process."""
    return f"{os.getpid()}-{_start_time(os.getpid())}"


def process_alive(process: str) -> bool:
    """Whether `process` (as of `this_process`, on this host) still runs."""
    pid, _, started = process.partition("-")
    if not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return _start_time(int(pid)) in (started, _UNKNOWN)  # /proc may hide the processes of others


def selects(selector: SweepSelector, *, run_id: str, host: str, process: str, expires: datetime) -> bool:
    """Whether a sandbox with these labels is to be swept: its expiry has passed, or its process here has ended."""
    if selector.run_id is not None and selector.run_id != run_id:
        return False
    if selector.now >= expires:
        return True
    return host == selector.host and not process_alive(process)


def _start_time(pid: int) -> str:
    stat = _or_unknown(Path(f"/proc/{pid}/stat").read_text)
    return stat if stat == _UNKNOWN else stat.rpartition(")")[2].split()[19]


def _or_unknown(read: Callable[[], str]) -> str:
    try:
        return read()
    except OSError:
        return _UNKNOWN
