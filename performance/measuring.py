"""Running a command as its own process, and what that cost."""

import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Cost:
    """Of one process and its children."""

    wall_s: float
    cpu_s: float
    peak_mib: float


def cost_of(argv: Sequence[str], *, expect: int = 0) -> Cost:
    """Run `argv` quietly; its output is shown only when it ends with another status than `expect`."""
    with tempfile.TemporaryFile() as output:
        started = time.monotonic()
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.monotonic() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != expect:
            output.seek(0)
            raise SystemExit(f"{' '.join(argv)}\nended with {process.returncode}:\n{output.read().decode()}")
    return Cost(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / _RSS_UNITS_PER_MIB)


def raise_file_limit() -> None:
    """As many open files as the machine allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def beside(name: str) -> str:
    """The path of a script in this folder."""
    return str(Path(__file__).with_name(name))


_RSS_UNITS_PER_MIB = 1024 * 1024 if os.uname().sysname == "Darwin" else 1024
