"""What Docker and Modal share in running a command: its input, its company, its kill, its result."""

import asyncio
from pathlib import PurePosixPath
from typing import Any

import pytest
from agentcompass.adapters.support.shell_supervision import Mark
from agentcompass.adapters.support.streams import HeadAndTail
from agentcompass.adapters.support.supervised_commands import (
    ROOT,
    Company,
    invocation_of,
    kill_until_ended,
    odd_variables,
    quietly,
    result_of,
)
from agentcompass.domain.errors import SandboxLost
from agentcompass.domain.sandbox import Command

HOME = PurePosixPath("/app")


class Run:
    """A command that has printed `out`."""

    def __init__(self) -> None:
        self.mark = Mark()
        self.alone = True
        self.stdout, self.stderr = HeadAndTail(4), HeadAndTail(4)
        self.exit_code: int | None = 3
        self.elapsed_s = 1.5


class Killer:
    """Its `helper` says that root could not tell a process of user 5:6; `work` ends after `passes` calls as root."""

    def __init__(self, passes: int) -> None:
        self.work: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.users: list[str] = []
        self._passes = passes

    async def helper(self, argv: list[str], user: str) -> str:
        self.users.append(user)
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
