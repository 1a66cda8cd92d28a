"""A running Modal sandbox as a sandbox."""

import asyncio
import time
from collections.abc import Awaitable, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TypeVar

import modal

from ....domain.errors import AgentCompassError, SandboxFailed, SandboxLost
from ....domain.sandbox import Command, ExecResult, SandboxSpec
from ...support.cleanup import exception_seen
from ...support.shell_supervision import Mark, supervised_argv
from ...support.supervised_commands import (
    AFTER_KILL_S,
    ROOT,
    SHELL_NAME,
    Company,
    ended_within,
    invocation_of,
    kill_until_ended,
    killed_at_limit,
    odd_variables,
    refuse_missing_end,
    result_of,
    transferring,
)
from .errors import FAILURES, explanation, use_error
from .exec import HELPER, NO_EXIT_CODE, Kept, ModalProcess, SupervisedExec
from .files import ModalFiles
from .scripts import FirstAnswer, as_user_prefix, kill_all_argv

T = TypeVar("T")

LONGEST_ARGUMENTS = 45_000
"""Bytes of script or arguments on a command line: the SDK takes 65 536 characters, with what supervises them."""
_HELPER_LIMIT_S = 30.0
_HELPER_BYTES = 4096
_POLL_LIMIT_S = 20.0
_EARLY_S = 0.5
_FAILURES = (*FAILURES, SandboxFailed)
_KILLED_CODES = (NO_EXIT_CODE, 137)
_LIFETIME_CODE, _TERMINATED_CODE = 124, 137
_NAMES_OF_ROOT = (ROOT, "root")


class ModalSandbox:
    """One sandbox, until `ModalEnvironment.open` terminates it."""

    def __init__(
        self, sandbox: modal.Sandbox, answer: FirstAnswer, spec: SandboxSpec, image: tuple[str, str], created_at: float
    ) -> None:
        self._sandbox, self._answer, self._spec = sandbox, answer, spec
        self._image, self._created_at = image, created_at
        self._workspace = spec.workspace_root or answer.working_dir
        self._company = Company()
        self._files = ModalFiles(sandbox, has_tar=answer.has_tar)
        self._odd_variables = odd_variables(spec.env_variables)

    @property
    def id(self) -> str:
        """Modal's `sb-...`."""
        return str(self._sandbox.object_id)

    @property
    def image(self) -> str | None:
        """As the user named it."""
        return self._image[0]

    @property
    def image_digest(self) -> str | None:
        """Modal's `im-...`, which stands for the image's definition and content."""
        return self._image[1]

    async def exec(self, command: Command) -> ExecResult:
        """Three calls to Modal (start and two streams); a file more where there is stdin or a long script."""
        mark = Mark()
        invocation, files = invocation_of(
            command,
            mark,
            self._workspace,
            self._odd_variables,
            longest_arguments=LONGEST_ARGUMENTS,
            prefix=self._user_prefix(command),
        )
        if files:
            await self._called(self._files.put_files(files), "copying the command's input")
        env = {name: value for name, value in command.env.items() if SHELL_NAME.fullmatch(name)}
        argv = supervised_argv(mark, invocation)
        run = SupervisedExec(argv, mark, env, command.timeout_s, command.max_output_bytes)
        timed_out = await self._run(run, command.timeout_s, invocation.folder)
        return result_of(run, timed_out=timed_out)

    async def upload(self, source: Path, target: PurePosixPath) -> None:
        """One command in the sandbox where it has tar."""
        target = self._workspace / target
        await self._called(self._files.put_path(source, target), f"upload to {str(target)!r}")

    async def download(self, source: PurePosixPath, target: Path) -> None:
        """One command in the sandbox where it has tar."""
        source = self._workspace / source
        await self._called(self._files.get_path(source, target), f"download of {str(source)!r}")

    async def read_bytes(self, path: PurePosixPath, max_bytes: int) -> bytes:
        """One command in the sandbox."""
        path = self._workspace / path
        return await self._called(self._files.read(path, max_bytes), f"reading {str(path)!r}")

    async def write_bytes(self, path: PurePosixPath, data: bytes, mode: int = 0o644) -> None:
        """One command in the sandbox where it has tar."""
        path = self._workspace / path
        await self._called(self._files.put_files({path: (data, mode)}), f"writing {str(path)!r}")

    async def kill_processes(self) -> None:
        """Everything that was not there before the first command."""
        await self._helper(kill_all_argv(self._answer.first_processes))

    def _user_prefix(self, command: Command) -> tuple[str, ...]:
        user = command.user or self._spec.user
        if user is None or (user in _NAMES_OF_ROOT and self._answer.is_root):
            return ()
        if not self._answer.is_root:
            raise SandboxFailed(f"a command cannot run as user {user!r}: the image's own user is not root")
        return as_user_prefix(user, command.env.get("HOME") or self._spec.env_variables.get("HOME", ""))

    async def _run(self, run: SupervisedExec, limit_s: float, folder: str) -> bool:
        """Whether it had to be killed at its limit."""
        with self._company.joined_by(run):
            work = asyncio.ensure_future(run.run(self._sandbox))
            kill, check_end = partial(self._kill, run, work, folder), partial(self._check_end, run, work)
            return await killed_at_limit(_ended_within(work, run, limit_s), kill, check_end)

    async def _check_end(self, run: SupervisedExec, work: "asyncio.Future[None]") -> None:
        if (error := work.exception()) is not None:
            raise await self._error(error, "exec") from error
        await refuse_missing_end(run, self._helper, self._why_lost)

    async def _kill(self, run: SupervisedExec, work: "asyncio.Future[None]", folder: str) -> None:
        try:
            await kill_until_ended(run, work, folder, self._helper)
        finally:
            work.cancel()
            work.add_done_callback(exception_seen)
            await asyncio.wait({work}, timeout=AFTER_KILL_S[0])

    async def _helper(self, argv: Sequence[str], user: str = ROOT) -> str:
        printed, errors = Kept(_HELPER_BYTES), Kept(_HELPER_BYTES)
        prefix = () if user == ROOT else as_user_prefix(user)
        process = ModalProcess([*prefix, *argv], HELPER, _HELPER_LIMIT_S)
        try:
            async with asyncio.timeout(_HELPER_LIMIT_S + AFTER_KILL_S[0]):
                await process.read(self._sandbox, printed, errors)
        except FAILURES as exc:
            raise await self._error(exc, "exec") from exc
        if process.code:
            raise await self._error(SandboxFailed(errors.line() or f"exit code {process.code}"), "exec")
        return printed.text()

    async def _called(self, work: Awaitable[T], doing: str) -> T:
        async with transferring(doing, self._error, _FAILURES):
            return await work

    async def _error(self, error: BaseException, doing: str) -> AgentCompassError:
        if not isinstance(error, _FAILURES):
            raise error
        lost = await self._why_lost()
        return SandboxLost(f"{doing}: {lost}") if lost is not None else use_error(error, doing)

    async def _why_lost(self) -> str | None:
        """None where it is alive, or where Modal cannot be asked."""
        try:
            async with asyncio.timeout(_POLL_LIMIT_S):
                code = await self._sandbox.poll.aio()
        except (modal.exception.NotFoundError, modal.exception.ClientClosed) as exc:
            return f"{self._name()} is gone: {explanation(exc)}"
        except FAILURES:
            return None
        return None if code is None else f"{self._name()} has ended: {self._reason(code)}"

    def _reason(self, code: int) -> str:
        is_over = time.monotonic() >= self._created_at + self._spec.timeout - 1
        if code == _LIFETIME_CODE or is_over:
            return f"its lifetime (timeout) of {self._spec.timeout:g} s is over"
        if code == _TERMINATED_CODE:
            return "it was terminated from outside, or ran out of memory (exit code 137)"
        idle = f", perhaps by its idle_timeout of {self._spec.idle_timeout:g} s" if self._spec.idle_timeout else ""
        return f"Modal ended it with exit code {code}{idle}"

    def _name(self) -> str:
        return f"sandbox {self.id!r}"


async def _ended_within(work: "asyncio.Future[None]", run: SupervisedExec, limit_s: float) -> bool:
    # At its own limit Modal kills the first process alone, and answers -1 or 137, whichever comes first.
    ended = await ended_within(work, run, limit_s)
    killed = not run.ended_by_marker and run.process.code in _KILLED_CODES and run.elapsed_s >= limit_s - _EARLY_S
    return ended and not killed
