"""Who this process is, and whether the one that a label names is still alive."""

import os
import socket
from datetime import datetime
from pathlib import Path

from ...domain.sandbox import SweepSelector

_UNKNOWN = "0"


def this_host() -> str:
    """Machine and process namespace: a pid means the same process only within both."""
    try:
        namespace = os.readlink("/proc/self/ns/pid").strip("pid:[]")
    except OSError:
        namespace = "0"
    return f"{socket.gethostname()}-{namespace}"


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
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return _UNKNOWN
    return stat.rpartition(")")[2].split()[19]
