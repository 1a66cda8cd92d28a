"""What Docker and Modal share in running a command: its input, its company, its kill, its result."""

import asyncio
from pathlib import PurePosixPath
from typing import Any

import pytest
from agentcompass.adapters.support.shell_supervision import Mark
from agentcompass.adapters.support.supervised_commands import (
    ROOT,
    Company,
    SupervisedRun,
    ended_within,
    invocation_of,
    kill_until_ended,
    killed_at_limit,
    odd_variables,
    quietly,
    refuse_missing_end,
    result_of,
)
from agentcompass.domain.errors import AgentCompassError, SandboxFailed, SandboxLost
from agentcompass.domain.sandbox import Command
from cancelling import cancelled
from structlog.testing import capture_logs

HOME = PurePosixPath("/app")


class Run(SupervisedRun):
    """A command whose first `streams` told its exit code."""

    process_code = None
    elapsed_s = 1.5

    def __init__(self, told: int = 3, *, streams: int = 2, process_code: int | None = None) -> None:
        super().__init__(Mark(), 4)
        self.process_code = process_code
        for end in self.ends[:streams]:
            end.feed(f"{self.mark.nonce}:{told}\n".encode())


class Killer:
    """Its `helper` says that root could not tell a process of user 5:6; `work` ends after `passes` calls as root."""

    def __init__(self, passes: int, refused: str = "") -> None:
        self._refused = refused
        self.work: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.users: list[str] = []
        self._passes = passes

    async def helper(self, argv: list[str], user: str) -> str:
        self.users.append(user)
        if user == self._refused:
            raise SandboxFailed("no setpriv, chroot or su")
        if user == ROOT and self.users.count(ROOT) == self._passes:
            self.work.set_result(None)
        return "born 12\nuser 5:6\nuser $(id)\n"


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentcompass.adapters.support.supervised_commands.AFTER_KILL_S", (0.0, 0.0))


def invocation(command: Command, **options: Any) -> Any:
    return invocation_of(command, Mark(), HOME, {"a-b": "1", "c.d": "2"}, **options)


def test_a_short_command_without_stdin_needs_no_file() -> None:
    made, files = invocation(Command(argv=("ls",), timeout_s=1))

    assert files == {}
    assert (made.cwd, made.stdin_path, made.script_path, made.folder) == ("/app", "/dev/null", "", "")


def test_stdin_and_a_long_script_lie_in_a_folder_of_the_command() -> None:
    made, files = invocation(Command(script="echo 1234", stdin=b"in", timeout_s=1), longest_arguments=5)

    assert files == {
        PurePosixPath(made.stdin_path): (b"in", 0o444),
        PurePosixPath(made.script_path): (b"echo 1234", 0o444),
    }
    assert {path.parent for path in files} == {PurePosixPath(made.folder)}


def test_a_folder_of_work_is_within_the_workspace_unless_it_is_absolute() -> None:
    made, _ = invocation(Command(argv=("ls",), cwd=PurePosixPath("sub"), timeout_s=1))
    absolute, _ = invocation(Command(argv=("ls",), cwd=PurePosixPath("/tmp"), timeout_s=1))

    assert (made.cwd, absolute.cwd) == ("/app/sub", "/tmp")


def test_the_commands_own_odd_variables_win() -> None:
    made, _ = invocation(Command(argv=("ls",), env={"c.d": "3", "PLAIN": "4"}, timeout_s=1))

    assert made.odd_variables == {"a-b": "1", "c.d": "3"}


def test_a_variable_is_odd_that_a_shell_cannot_name() -> None:
    assert odd_variables({"A_1": "", "1A": "", "a-b": "", "": "", "é": "", "A\n": ""}).keys() == {
        "1A",
        "a-b",
        "",
        "é",
        "A\n",
    }


def test_commands_at_the_same_time_are_not_alone_and_stay_so() -> None:
    company, first, second, third = Company(), Run(), Run(), Run()

    with company.joined_by(first), company.joined_by(second):
        pass
    with company.joined_by(third):
        pass

    assert [run.alone for run in (first, second, third)] == [False, False, True]


async def test_one_killer_is_enough_where_the_streams_end() -> None:
    killer = Killer(passes=1)
    await kill_until_ended(Run(), killer.work, "/tmp/x", killer.helper)

    assert killer.users == [ROOT, "5:6"]


async def test_a_command_that_goes_on_is_killed_twice_and_no_more() -> None:
    killer = Killer(passes=3)
    await kill_until_ended(Run(), killer.work, "/tmp/x", killer.helper)

    assert killer.users == [ROOT, "5:6", ROOT, "5:6"]


async def test_a_user_that_the_killer_cannot_become_hides_no_kill() -> None:
    killer = Killer(passes=3, refused="5:6")
    await kill_until_ended(Run(), killer.work, "/tmp/x", killer.helper)

    assert killer.users == [ROOT, "5:6", ROOT, "5:6"]


async def test_a_killer_that_fails_as_root_says_so() -> None:
    killer = Killer(passes=3, refused=ROOT)

    with pytest.raises(SandboxFailed):
        await kill_until_ended(Run(), killer.work, "/tmp/x", killer.helper)


async def test_what_precedes_a_commands_start_is_not_of_its_limit() -> None:
    run, work = Run(), asyncio.get_running_loop().create_future()
    run.elapsed_s = 0.0
    asking = asyncio.create_task(ended_within(work, run, 0.01))
    await asyncio.sleep(0.05)
    waited = not asking.done()
    run.elapsed_s = 1.5

    assert waited
    assert not await asking


class Kill:
    """Counts the kills."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self) -> None:
        self.count += 1


async def _said(*said: Any) -> Any:
    for each in said:
        if isinstance(each, Exception):
            raise each
    return said[0] if said else None


@pytest.mark.parametrize("in_time", [True, False])
async def test_a_command_is_killed_at_its_limit_and_only_then(in_time: bool) -> None:
    kill = Kill()
    killed = await killed_at_limit(_said(in_time), kill, _said)

    assert (killed, kill.count) == (not in_time, int(not in_time))


@pytest.mark.parametrize(("error", "kills"), [(SandboxFailed("?"), 1), (SandboxLost("gone"), 0)])
async def test_a_command_that_may_still_run_is_killed(error: AgentCompassError, kills: int) -> None:
    kill = Kill()
    with pytest.raises(type(error)):
        await killed_at_limit(_said(True), kill, lambda: _said(error))

    assert kill.count == kills


async def test_a_command_whose_end_is_being_looked_for_is_killed_by_a_cancellation() -> None:
    kill, looking = Kill(), asyncio.Event()

    async def check_end() -> None:
        looking.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(killed_at_limit(_said(True), kill, check_end))
    await looking.wait()

    assert await cancelled(running)
    assert kill.count == 1


async def test_a_kill_that_fails_is_an_event_and_hides_no_cancellation() -> None:
    async def kill() -> None:
        raise SandboxLost("gone")

    running = asyncio.create_task(killed_at_limit(asyncio.Event().wait(), kill, _said))
    await asyncio.sleep(0)
    with capture_logs() as events:
        ended = await cancelled(running)

    assert ended
    assert [(event["event"], event["error"]) for event in events] == [("cleanup.abandoned", "gone")]


async def _ends(run: Run, *, alive: bool = True, why_lost: str | None = None) -> int | None:
    await refuse_missing_end(run, lambda *_: _said("alive\n" if alive else ""), lambda: _said(why_lost))
    return run.exit_code


async def test_a_supervisor_that_was_killed_in_a_sandbox_that_is_alive_leaves_an_exit_code() -> None:
    assert await _ends(Run(streams=0, process_code=137)) == 137


@pytest.mark.parametrize("end", [{"alive": False}, {"why_lost": "out of memory"}], ids=str)
async def test_a_missing_end_in_a_sandbox_that_is_ending_is_a_loss(end: Any) -> None:
    with pytest.raises(SandboxLost, match="ending|memory"):
        await _ends(Run(streams=0, process_code=137), **end)


@pytest.mark.parametrize(("streams", "process_code"), [(0, 1), (1, None), (1, 0)])
async def test_streams_that_ended_before_the_command_are_no_result(streams: int, process_code: int | None) -> None:
    with pytest.raises(SandboxFailed, match="streams"):
        await _ends(Run(streams=streams, process_code=process_code))


@pytest.mark.parametrize(
    ("streams", "process_code", "exit_code"), [(2, 0, 3), (2, 137, 3), (0, 137, 137), (0, 1, None), (0, None, None)]
)
def test_the_code_of_a_supervisor_that_gave_up_is_not_the_commands(
    streams: int, process_code: int | None, exit_code: int | None
) -> None:
    assert Run(streams=streams, process_code=process_code).exit_code == exit_code


async def test_a_kill_in_a_sandbox_that_is_gone_is_quiet_and_a_bug_is_not() -> None:
    async def raising(error: Exception) -> None:
        raise error

    await quietly(raising(SandboxLost("gone")))
    with pytest.raises(ZeroDivisionError):
        await quietly(raising(ZeroDivisionError()))


@pytest.mark.parametrize(("timed_out", "exit_code"), [(True, None), (False, 3)])
def test_a_result_tells_what_was_kept_and_what_was_printed(timed_out: bool, exit_code: int | None) -> None:
    run = Run()
    run.stdout.feed(b"1234567")
    run.stderr.feed(b"e")

    result = result_of(run, timed_out=timed_out)

    assert (result.exit_code, result.timed_out, result.duration_s) == (exit_code, timed_out, 1.5)
    assert (result.stdout, result.stdout_bytes, result.truncated) == ("1267", 7, True)
    assert (result.stderr, result.stderr_bytes) == ("e", 1)
