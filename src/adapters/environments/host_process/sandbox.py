"""A sandbox that is a folder, and processes that carry its mark."""

import asyncio
import errno
import getpass
import os
import secrets
import shutil
import tarfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Concatenate, ParamSpec, TypeVar

import structlog

from ....domain.errors import ConfigError, SandboxFailed, SandboxLost
from ....domain.sandbox import Command, ExecResult
from ...support.cleanup import cleaned_up, finished_despite_cancel
from .folder import HOME, TEMPORARY, SandboxFolder
from .output import OutputPipe, output_pipes
from .processes import Mark, group_alive, kill_marked
from .running import Blocking, NotStarted, failed, outlived, result, spawned, stdin_file, words

log = structlog.get_logger()
P = ParamSpec("P")
T = TypeVar("T")

PASSED_ON = frozenset({"PATH", "LANG", "LANGUAGE", "TERM", "TZ", "USER", "LOGNAME", "SHELL"})
"""Variables of the runner that commands see, besides `LC_*`. Everything else stays outside."""
ROOT_VARIABLE = "AGENTCOMPASS_ROOT"
SANDBOX_MARK = "AGENTCOMPASS_SANDBOX"
COMMAND_MARK = "AGENTCOMPASS_COMMAND"
KILL_LIMIT_S = 10.0
_STOP_LIMIT_S = 60.0
QUEUE_LIMIT_S = 600.0
"""How long a kill or a removal may wait for those of other sandboxes, besides its own limit."""
_FILE_LIMIT_S = 600.0
_NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})


class HostSandbox:
    """Alive while its folder has its label, and until its lifetime is over."""

    image: str | None = None
    image_digest: str | None = None

    def __init__(
        self,
        folder: SandboxFolder,
        *,
        workspace_root: PurePosixPath,
        variables: Mapping[str, str],
        lifetime_s: float,
        blocking: Blocking,
        ending: Blocking,
    ) -> None:
        # `ending` are the threads that kill and remove: they never wait for a copy.
        self.id = folder.path.name
        self._folder = folder
        self._workspace = workspace_root
        self._variables = variables
        self._lifetime_s = lifetime_s
        self._blocking = blocking
        self._ending = ending
        self._groups: set[int] = set()
        self._pipes: set[OutputPipe] = set()
        self._clock: asyncio.Task[None] | None = None
        self._expired = False

    def start_clock(self) -> None:
        """From now on it has its lifetime to live."""
        self._clock = asyncio.create_task(self._expire())

    async def _expire(self) -> None:
        await asyncio.sleep(self._lifetime_s)
        self._expired = True
        survivors = await self._ending(kill_marked, self._mark(), KILL_LIMIT_S)
        log.info("sandbox.expired", sandbox=self.id, lifetime_s=self._lifetime_s, survivors=sorted(survivors))

    async def stop(self) -> None:
        """Kill every process, delete every file.

        Raises:
            SandboxFailed: a process would not die.
            OSError: a file could not be deleted, or not in time.
        """
        if self._clock is not None:
            self._clock.cancel()
        try:
            removed = partial(remove_sandbox, self._folder, frozenset(self._groups))
            await self._ending.within(_STOP_LIMIT_S, removed)
        finally:
            for pipe in self._pipes:
                pipe.close()

    async def exec(self, command: Command) -> ExecResult:
        """As the port promises."""
        self._check_alive()
        _refuse_other_user(command.user)
        try:
            with ExitStack() as stack:
                done = await self._run(command, stack)
        except OSError as exc:
            self._check_alive()
            hint = "raise `ulimit -n` or lower --task-concurrency" if exc.errno in _NO_DESCRIPTOR else ""
            raise SandboxFailed(f"cannot run a command in sandbox {self.id!r}: {exc}", hint=hint) from exc
        self._check_alive()
        return done

    async def _run(self, command: Command, stack: ExitStack) -> ExecResult:
        started = time.monotonic()
        wanted = self._workspace / (command.cwd or "")
        try:
            cwd = self._folder.host_path(wanted, follow=True)
        except SandboxFailed as exc:  # an agent may have made it a link
            return failed(1, f"cd: {exc}", started)
        if not os.access(os.path.join(cwd, "."), os.X_OK):
            return failed(1, f"cd: {str(wanted)!r}: no such directory, or a closed one", started)
        token = secrets.token_hex(8)
        variables = self._environment(command, token)
        program = await self._blocking(words, command, variables, self._folder.path, stack)
        stdin = await self._blocking(stdin_file, command.stdin, self._folder.path, stack)
        pipes = output_pipes(command.max_output_bytes)
        self._pipes.update(pipes)
        process = None
        try:
            process = await spawned(program, cwd, variables, stdin, pipes)
            return await self._ended(process, command.timeout_s, token, pipes, started)
        except asyncio.CancelledError:
            await cleaned_up(self._kill_command(token, process), QUEUE_LIMIT_S, "kill of a command")
            raise
        except NotStarted as exc:
            return failed(exc.exit_code, str(exc), started)
        finally:
            for pipe in pipes:
                pipe.hand_over() if process else pipe.close()
            self._forget_ended()

    async def _ended(
        self,
        process: asyncio.subprocess.Process,
        limit_s: float,
        token: str,
        pipes: tuple[OutputPipe, OutputPipe],
        started: float,
    ) -> ExecResult:
        self._groups.add(process.pid)
        for pipe in pipes:
            pipe.hand_over()
        timed_out = await outlived(process, limit_s)
        if timed_out:
            try:
                await finished_despite_cancel(self._kill_command(token, process), QUEUE_LIMIT_S)
            except TimeoutError as exc:
                raise SandboxFailed(f"the kill of a command in sandbox {self.id!r}: {exc}") from exc
        for pipe in pipes:
            pipe.settle()
        return result(None if timed_out else process.returncode, pipes, started)

    async def _kill_command(self, token: str, process: asyncio.subprocess.Process | None) -> None:
        groups = frozenset({process.pid} if process else ())
        mark = Mark(f"{COMMAND_MARK}={token}", groups)
        survivors = await self._ending.within(2 * KILL_LIMIT_S, partial(kill_marked, mark, KILL_LIMIT_S))
        if survivors:
            log.error("command.survived", sandbox=self.id, pids=sorted(survivors))
        elif process is not None and await outlived(process, KILL_LIMIT_S):
            raise TimeoutError(f"not finished within {KILL_LIMIT_S:g} s")

    def _forget_ended(self) -> None:
        self._pipes = {pipe for pipe in self._pipes if not pipe.closed}
        self._groups = {group for group in self._groups if group_alive(group)}

    def _environment(self, command: Command, token: str) -> dict[str, str]:
        passed = {name: value for name, value in os.environ.items() if name in PASSED_ON or name.startswith("LC_")}
        own = {
            "HOME": str(self._folder.host_path(HOME)),
            "TMPDIR": str(self._folder.host_path(TEMPORARY)),
            ROOT_VARIABLE: str(self._folder.root),
        }
        marks = {SANDBOX_MARK: self.id, COMMAND_MARK: token}
        return {**passed, **own, **self._variables, **command.env, **marks}

    async def upload(self, source: Path, target: PurePosixPath) -> None:
        """As the port promises, but owned by the runner's user."""
        await self._file_call(SandboxFolder.put, source, self._workspace / target)

    async def download(self, source: PurePosixPath, target: Path) -> None:
        """As the port promises."""
        await self._file_call(SandboxFolder.get, self._workspace / source, target)

    async def read_bytes(self, path: PurePosixPath, max_bytes: int) -> bytes:
        """As the port promises."""
        return await self._file_call(SandboxFolder.read, self._workspace / path, max_bytes)

    async def write_bytes(self, path: PurePosixPath, data: bytes, mode: int = 0o644) -> None:
        """As the port promises."""
        await self._file_call(SandboxFolder.write, self._workspace / path, data, mode)

    async def _file_call(
        self, call: Callable[Concatenate[SandboxFolder, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        self._check_alive()
        try:
            work = self._blocking(call, self._folder, *args, **kwargs)
            # To the end: a copy that goes on while the folder is being removed would bring it back.
            return await finished_despite_cancel(work, _FILE_LIMIT_S)
        except FileNotFoundError:
            self._check_alive()
            raise
        except (OSError, tarfile.TarError, shutil.Error) as exc:
            self._check_alive()
            raise SandboxFailed(f"cannot copy files of sandbox {self.id!r}: {exc}") from exc

    async def kill_processes(self) -> None:
        """As the port promises."""
        self._check_alive()
        survivors = await self._ending(kill_marked, self._mark(), KILL_LIMIT_S)
        self._check_alive()
        if survivors:
            raise SandboxFailed(_immortal(survivors, self.id))

    def _mark(self) -> Mark:
        return Mark(f"{SANDBOX_MARK}={self.id}", frozenset(self._groups), self._folder.path)

    def _check_alive(self) -> None:
        if self._expired:
            reason = f"its lifetime of {self._lifetime_s:g} s is over"
            raise SandboxLost(f"sandbox {self.id!r} is gone: {reason}", hint="raise the environment's timeout")
        if not self._folder.exists():
            raise SandboxLost(f"sandbox {self.id!r} is gone: its folder was removed or closed")


def remove_sandbox(folder: SandboxFolder, groups: frozenset[int]) -> None:
    """Kill what runs in a sandbox, then delete its folder.

    Raises:
        SandboxFailed: a process would not die; the files are gone.
        OSError: a file could not be deleted.
    """
    aside = folder.set_aside()
    survivors = kill_marked(Mark(f"{SANDBOX_MARK}={aside.name}", groups, aside.path), KILL_LIMIT_S)
    aside.remove()
    if survivors:
        raise SandboxFailed(_immortal(survivors, aside.name))


def user_name() -> str:
    """Who commands run as."""
    with suppress(OSError, KeyError):
        return getpass.getuser()
    return str(os.getuid())


def _refuse_other_user(user: str | None) -> None:
    if user is not None and user not in (user_name(), str(os.getuid())):
        message = f"host_process cannot run a command as user {user!r}: it runs all as {user_name()!r}"
        raise ConfigError(message, hint="use --env docker or --env modal")


def _immortal(survivors: set[int], sandbox: str) -> str:
    return f"processes {sorted(survivors)} of sandbox {sandbox!r} could not be killed"
