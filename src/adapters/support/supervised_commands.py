"""What containers share in running commands under `shell_supervision`: input, company, kill, result."""

import asyncio
import re
import tarfile
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import PurePosixPath
from typing import TypeAlias

from ...domain.errors import AgentCompassError, SandboxFailed, SandboxLost
from ...domain.sandbox import Command, ExecResult
from .cleanup import cleaned_up
from .shell_supervision import LONGEST_ARGUMENTS, SHELL, Invocation, Mark, found_by_killer, killer_argv, script_file
from .streams import EndMarker, HeadAndTail

AFTER_KILL_S = (1.0, 5.0)
"""How long a killed command's streams may take to end, after the first killer and after the second."""
KILL_LIMIT_S = 90.0
ROOT = "0"
SHELL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""A variable's name that every shell passes on."""
FIRST_SIGNAL = 128
"""Exit codes from here on are of processes that a signal killed."""
_MOST_USERS = 8
_UID_AND_GID = re.compile(r"\d+:\d+")

Files: TypeAlias = dict[PurePosixPath, tuple[bytes, int]]
"""Absolute path -> (content, mode)."""
PrintedBy: TypeAlias = Callable[[list[str], str], Awaitable[str]]
"""`printed_by(argv, user)` runs a command of ours in the sandbox as ROOT or as `UID:GID`."""
ErrorOf: TypeAlias = Callable[[BaseException, str], Awaitable[AgentCompassError]]
"""`error_of(failure, doing)` asks whether the sandbox is alive, too."""


class SupervisedRun(ABC):
    """A command that was started with `supervised_argv`: what is received of it. Its streams are fed to `ends`."""

    def __init__(self, mark: Mark, kept_bytes: int) -> None:
        self.mark = mark
        self.alone = True
        """Whether no other command ran in the sandbox at any time since this one began."""
        self.stdout, self.stderr = HeadAndTail(kept_bytes), HeadAndTail(kept_bytes)
        self.ends = EndMarker(mark.nonce, self.stdout), EndMarker(mark.nonce, self.stderr)

    @property
    @abstractmethod
    def process_code(self) -> int | None:
        """Exit code of the supervising shell; None where the provider was not asked, or does not tell."""

    @property
    @abstractmethod
    def elapsed_s(self) -> float:
        """Seconds from its start to its end, or until now."""

    @property
    def ended_by_marker(self) -> bool:
        """Whether both streams were received to the end of the command's first process."""
        return all(end.ended for end in self.ends)

    @property
    def exit_code(self) -> int | None:
        """As the end line told, else as the supervising shell was killed; None where nobody knows.

        A shell that ended by itself tells with its own code nothing of the command.
        """
        told, code = self.ends[0].status, self.process_code
        return code if told is None and code is not None and code >= FIRST_SIGNAL else told


def odd_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Those that a shell does not pass on, because of their names."""
    return {name: value for name, value in variables.items() if not SHELL_NAME.fullmatch(name)}


def invocation_of(
    command: Command,
    mark: Mark,
    workspace: PurePosixPath,
    odd_of_sandbox: Mapping[str, str],
    *,
    longest_arguments: int = LONGEST_ARGUMENTS,
    prefix: tuple[str, ...] = (),
    wait_for_start: bool = False,
) -> tuple[Invocation, Files]:
    """`command` as the supervising shell runs it, and the files that must be in the sandbox before: stdin, a script."""
    folder = PurePosixPath(f"/tmp/.agentcompass-{mark.name}")
    files: Files = {}
    if command.stdin is not None:
        files[folder / "stdin"] = command.stdin, 0o444
    text = script_file(command.argv, command.script, longest_arguments)
    if text is not None:
        files[folder / "script"] = text.encode("utf-8", "replace"), 0o444
    invocation = Invocation(
        argv=command.argv,
        script=command.script,
        cwd=str(workspace / command.cwd) if command.cwd else str(workspace),
        stdin_path="/dev/null" if command.stdin is None else str(folder / "stdin"),
        script_path="" if text is None else str(folder / "script"),
        folder=str(folder) if files else "",
        odd_variables={**odd_of_sandbox, **odd_variables(command.env)},
        prefix=prefix,
        wait_for_start=wait_for_start,
    )
    return invocation, files


class Company:
    """The commands that run in one sandbox; of each is known whether it was alone all the time."""

    def __init__(self) -> None:
        self._running: set[SupervisedRun] = set()

    @contextmanager
    def joined_by(self, run: SupervisedRun) -> Iterator[None]:
        """In the block, `run` is one of them."""
        for other in self._running:
            other.alone = run.alone = False
        self._running.add(run)
        try:
            yield
        finally:
            self._running.discard(run)


async def ended_within(work: "asyncio.Future[None]", run: SupervisedRun, limit_s: float) -> bool:
    """Whether `work`, the streams' reader, ends before `run` has lasted `limit_s`; what precedes its start is free."""
    while not work.done() and (left := limit_s - run.elapsed_s) > 0:
        await asyncio.wait({work}, timeout=left)
    return work.done()


async def killed_at_limit(
    ended: Awaitable[bool], kill: Callable[[], Awaitable[None]], check_end: Callable[[], Awaitable[None]]
) -> bool:
    """Whether a command had to be killed because it had not `ended` within its limit.

    It is killed, too, where `check_end` raises SandboxFailed (it may still run), and by a cancellation.
    """
    try:
        if not await ended:
            await kill()
            return True
        try:
            await check_end()
        except SandboxFailed:
            await quietly(kill())
            raise
    except asyncio.CancelledError:
        await cleaned_up(kill(), KILL_LIMIT_S, "kill of a command")
        raise
    return False


async def refuse_missing_end(
    run: SupervisedRun, printed_by: PrintedBy, why_lost: Callable[[], Awaitable[str | None]]
) -> None:
    """Accept that a stream ended without its end line only where the supervising shell did not end well.

    Raises:
        SandboxLost: the sandbox does not run a command any more, or `why_lost` tells a reason.
        SandboxFailed: the streams were lost, or nobody knows the exit code.
    """
    if run.ended_by_marker:
        return
    # A provider may see a command fail a moment before it sees the sandbox's end: what runs afterwards proves its life.
    printed = await printed_by([SHELL, "-c", "echo alive"], ROOT)
    lost = await why_lost()
    if lost is not None or printed != "alive\n":
        raise SandboxLost(lost or "the sandbox is ending")
    if run.exit_code is None or not run.process_code:
        raise SandboxFailed("the command's streams were ended before its end, or nobody tells how it ended")


async def kill_until_ended(
    run: SupervisedRun, work: "asyncio.Future[None]", folder: str, printed_by: PrintedBy
) -> None:
    """Kill every process of `run` and remove `folder`; a second time where `work`, its streams' reader, goes on.

    As root it has to go well; what it then tries as other users may be refused.
    """
    for wait_s in AFTER_KILL_S:
        printed = await printed_by(killer_argv(run.mark, folder, alone=run.alone), ROOT)
        born, users = found_by_killer(printed)
        for user in filter(_UID_AND_GID.fullmatch, users[:_MOST_USERS]):
            await quietly(printed_by(killer_argv(run.mark, alone=run.alone, born=born), user))
        await asyncio.wait({work}, timeout=wait_s)
        if work.done():
            return


async def quietly(work: Awaitable[object]) -> None:
    """Await a kill or a removal. Where it fails, what brought it about is what is told."""
    with suppress(AgentCompassError):
        await work


@asynccontextmanager
async def transferring(doing: str, error_of: ErrorOf, failures: tuple[type[BaseException], ...]) -> AsyncIterator[None]:
    """In the block, `failures` and torn archives become what `error_of` makes of them; FileNotFoundError stays."""
    try:
        yield
    except FileNotFoundError:
        raise
    except tarfile.TarError as exc:
        raise await error_of(SandboxFailed(f"a torn archive: {exc}"), doing) from exc
    except failures as exc:
        raise await error_of(exc, doing) from exc


def result_of(run: SupervisedRun, *, timed_out: bool) -> ExecResult:
    """What came of it."""
    return ExecResult(
        exit_code=None if timed_out else run.exit_code,
        stdout=run.stdout.text(),
        stderr=run.stderr.text(),
        truncated=run.stdout.truncated or run.stderr.truncated,
        stdout_bytes=run.stdout.total,
        stderr_bytes=run.stderr.total,
        timed_out=timed_out,
        duration_s=run.elapsed_s,
    )
