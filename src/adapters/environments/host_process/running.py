"""Starting one command on this machine, and telling how it ended."""

import asyncio
import errno
import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import IO, ParamSpec, TypeVar

from ....domain.sandbox import Command, ExecResult
from ...support.cleanup import exception_seen
from .output import OutputPipe

P = ParamSpec("P")
T = TypeVar("T")

ARGUMENT_LIMIT = 128 * 1024 - 1
"""Linux: MAX_ARG_STRLEN without its final NUL."""
ARGUMENTS_LIMIT = 1024 * 1024
"""Half of what Linux allows for arguments and environment together under the usual stack limit."""
_THREADS = 8
_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR})
_NOT_EXECUTABLE = frozenset(
    {errno.EACCES, errno.ENOEXEC, errno.E2BIG, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ETXTBSY}
)
_BUSY_TRIES = 50
_BUSY_PAUSE_S = 0.02


class NotStarted(Exception):
    """The command cannot be started, which is its own fault: an ordinary failure."""

    def __init__(self, exit_code: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Blocking:
    """Threads for calls that block: `await blocking(function, *args)`."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None

    async def __call__(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The function's result, from a thread of our own pool."""
        return await self._begun(partial(function, *args, **kwargs))

    async def within(self, limit_s: float, function: Callable[[], T]) -> T:
        """As a call, with a limit that begins when a thread has taken the call up, and not in the queue.

        Once it is queued it runs, whatever becomes of the caller.

        Raises:
            TimeoutError: it took longer; it goes on.
        """
        loop, taken_up = asyncio.get_running_loop(), asyncio.Event()

        def call() -> T:
            with suppress(RuntimeError):  # the loop has ended before its turn came
                loop.call_soon_threadsafe(taken_up.set)
            return function()

        work = self._begun(call)
        work.add_done_callback(exception_seen)
        await taken_up.wait()
        await asyncio.wait({work}, timeout=limit_s)
        if not work.done():
            raise TimeoutError(f"not finished within {limit_s:g} s")
        return work.result()

    def _begun(self, function: Callable[[], T]) -> asyncio.Future[T]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="host-process")
        return asyncio.get_running_loop().run_in_executor(self._pool, function)

    def close(self) -> None:
        """Let the threads go; the next call makes new ones."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None


def shell(variables: Mapping[str, str]) -> str | None:
    """The shell for scripts: bash, or else sh; None where PATH has neither."""
    path = variables.get("PATH", os.defpath)
    return shutil.which("bash", path=path) or shutil.which("sh", path=path)


def words(command: Command, variables: Mapping[str, str], folder: Path, stack: ExitStack) -> list[str]:
    """What to execute. What is too long for an argument goes into a file in `folder`, removed with `stack`.

    Raises:
        FileNotFoundError: a shell is needed, and there is none.
    """
    arguments = [_encodable(word) for word in command.argv]
    if command.script is None and _fits(arguments):
        return arguments
    interpreter = shell(variables)
    if interpreter is None:
        raise FileNotFoundError(errno.ENOENT, "no bash and no sh in PATH", "sh")
    text = shlex.join(arguments) if command.script is None else _encodable(command.script)
    if _fits((text,)) and "\0" not in text:
        return [interpreter, "-c", text]
    file = stack.enter_context(tempfile.NamedTemporaryFile(dir=folder, prefix="script-"))  # noqa: SIM115 - the stack closes it
    file.write(os.fsencode(text))
    file.flush()
    return [interpreter, file.name]


def stdin_file(data: bytes | None, folder: Path, stack: ExitStack) -> IO[bytes] | int:
    """What the command reads: nothing, or the bytes, which need not all be read."""
    if not data:
        return asyncio.subprocess.DEVNULL
    file = stack.enter_context(tempfile.TemporaryFile(dir=folder))  # noqa: SIM115 - the stack closes it
    file.write(data)
    file.seek(0)
    return file


async def spawned(
    program: Sequence[str],
    folder: Path,
    variables: Mapping[str, str],
    stdin: IO[bytes] | int,
    pipes: tuple[OutputPipe, OutputPipe],
) -> asyncio.subprocess.Process:
    """Start it in a session of its own.

    Raises:
        NotStarted: the program cannot be executed, with the answer of a shell to that.
        OSError: this machine has no room for another process.
    """
    output, errors = pipes
    for left in reversed(range(_BUSY_TRIES)):
        try:
            return await asyncio.create_subprocess_exec(
                *program,
                cwd=folder,
                env=variables,
                stdin=stdin,
                stdout=output.writer,
                stderr=errors.writer,
                start_new_session=True,
            )
        except (OSError, ValueError) as exc:
            if not left or not isinstance(exc, OSError) or exc.errno != errno.ETXTBSY:
                raise _explained(exc, program[0]) from exc
        # A program that was written just now may still be open in a child that another thread is about to start.
        await asyncio.sleep(_BUSY_PAUSE_S)
    raise AssertionError("unreachable: the last try returns or raises")


async def outlived(process: asyncio.subprocess.Process, limit_s: float) -> bool:
    """Wait for the end of the first process; whether it still runs at the limit."""
    try:
        async with asyncio.timeout(limit_s):
            await process.wait()
    except TimeoutError:
        return process.returncode is None
    return False


def result(code: int | None, pipes: tuple[OutputPipe, OutputPipe], started: float) -> ExecResult:
    """What the ended command did; `code` is as of the process, None when it was killed at its limit."""
    output, errors = (pipe.kept for pipe in pipes)
    return ExecResult(
        exit_code=code if code is None or code >= 0 else 128 - code,
        stdout=output.text(),
        stderr=errors.text(),
        truncated=output.truncated or errors.truncated,
        stdout_bytes=output.total,
        stderr_bytes=errors.total,
        timed_out=code is None,
        duration_s=time.monotonic() - started,
    )


def _explained(error: OSError | ValueError, program: str) -> Exception:
    if isinstance(error, ValueError):
        return NotStarted(126, f"{program}: {error}")
    if error.errno in _MISSING:
        return NotStarted(127, f"{program}: {error.strerror}")
    if error.errno in _NOT_EXECUTABLE:
        return NotStarted(126, f"{program}: {error.strerror}")
    return error


def failed(code: int, message: str, started: float) -> ExecResult:
    """An ordinary failure that no process had to tell."""
    line = f"{message}\n"
    size = len(line.encode("utf-8", "replace"))
    duration_s = time.monotonic() - started
    return ExecResult(exit_code=code, stdout="", stderr=line, stderr_bytes=size, duration_s=duration_s)


def _fits(arguments: Sequence[str]) -> bool:
    sizes = [len(os.fsencode(argument)) for argument in arguments]
    return max(sizes, default=0) <= ARGUMENT_LIMIT and sum(sizes) <= ARGUMENTS_LIMIT


def _encodable(text: str) -> str:
    # A model's reply may hold half a surrogate pair, which no program can be given.
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text
