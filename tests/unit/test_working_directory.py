"""Tests, hooks and reports where the agent has removed the working directory; and what is no such case."""

from collections.abc import AsyncIterator
from pathlib import Path, PurePosixPath

import pytest
from agentcompass.adapters.benchmarks.task_directory.artifacts import collect_artifacts
from agentcompass.adapters.benchmarks.task_directory.task_toml import parse_task_toml
from agentcompass.adapters.benchmarks.task_directory.verifier import TestRun, run_tests
from agentcompass.adapters.benchmarks.task_directory.working_directory import exec_in_working_directory
from agentcompass.adapters.environments.host_process.environment import HostProcessEnvironment, HostProcessParameters
from agentcompass.domain.errors import SandboxFailed, VerifierFailed
from agentcompass.domain.sandbox import Command, ExecResult, SandboxSpec
from agentcompass.testing.environment import an_owner
from agentcompass.testing.fakes import FakeEnvironment, FakeSandbox
from agentcompass.testing.task_folders import TASK_TOML, write_task

WORK = Command(script="work", timeout_s=5)
HERE = PurePosixPath("/app")


def ended(code: int, stderr: str = "") -> ExecResult:
    return ExecResult(exit_code=code, stdout="", stderr=stderr, duration_s=0)


class Shell:
    """Without the working directory nothing begins; what begins is kept, and ends with `codes`."""

    def __init__(self) -> None:
        self.there = False
        self.codes: dict[str, int] = {}
        self.says = ""
        self.began: list[tuple[str, PurePosixPath | None]] = []
        self.users: list[str | None] = []

    def __call__(self, sandbox: FakeSandbox, command: Command) -> ExecResult:
        if command.cwd is None and not self.there and HERE not in sandbox.directories:
            return ended(1, "cd: no such directory")
        telling, _, script = (command.script or "").rpartition("\n")
        self.users.append(command.user)
        self.began.append((script, command.cwd))
        return ended(self.codes.get(script, 0), f"{telling.removeprefix('echo ').removesuffix(' >&2')}\n{self.says}")


@pytest.fixture
def shell() -> Shell:
    return Shell()


@pytest.fixture
async def sandbox(shell: Shell) -> AsyncIterator[FakeSandbox]:
    async with FakeEnvironment(exec_script=shell).open(SandboxSpec(workspace_root=HERE), an_owner()) as opened:
        opened.directories.remove(HERE)
        yield opened


async def test_a_working_directory_that_is_gone_is_made_again(shell: Shell, sandbox: FakeSandbox) -> None:
    result = await exec_in_working_directory(sandbox, WORK)

    assert result.ok
    assert shell.began[-1] == ("work", None)


async def test_it_is_made_again_for_all_users(shell: Shell, sandbox: FakeSandbox) -> None:
    shell.codes["chmod 0777 ."] = 1
    await exec_in_working_directory(sandbox, WORK.model_copy(update={"user": "u"}))

    assert shell.users == [None, "root", "u"]


async def test_where_it_cannot_be_made_the_command_runs_at_the_root(
    shell: Shell, sandbox: FakeSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(source: Path, target: PurePosixPath) -> None:
        raise SandboxFailed("a file is in its place")

    monkeypatch.setattr(sandbox, "upload", refused)
    result = await exec_in_working_directory(sandbox, WORK)

    assert result.ok
    assert shell.began == [("work", PurePosixPath("/"))]


@pytest.mark.parametrize("says", ["", "oops\n"])
async def test_a_command_that_began_and_failed_is_not_run_again(shell: Shell, sandbox: FakeSandbox, says: str) -> None:
    shell.there, shell.codes, shell.says = True, {"work": 1}, says
    result = await exec_in_working_directory(sandbox, WORK)

    assert (result.exit_code, result.stderr) == (1, says)
    assert shell.began == [("work", None)]
    assert HERE not in sandbox.directories


async def test_a_hook_that_removes_the_working_directory_and_fails_runs_once(tmp_path: Path) -> None:
    environment = HostProcessEnvironment(HostProcessParameters(root_folder=tmp_path))
    hook = 'cd "$AGENTCOMPASS_ROOT"; echo ran >> count; rm -rf app; echo oops >&2; exit 1'
    async with environment.open(SandboxSpec(), an_owner()) as sandbox:
        result = await exec_in_working_directory(sandbox, Command(script=hook, timeout_s=10))
        count = await sandbox.read_bytes(PurePosixPath("/count"), 100)

    assert (result.exit_code, result.stdout, result.stderr, result.stderr_bytes) == (1, "", "oops\n", 5)
    assert count == b"ran\n"


async def test_a_command_that_prints_more_than_is_kept_is_not_run_again(tmp_path: Path) -> None:
    environment = HostProcessEnvironment(HostProcessParameters(root_folder=tmp_path))
    loud = 'echo x >> "$AGENTCOMPASS_ROOT/count"; head -c 100000 /dev/zero | tr "\\0" e >&2; exit 1'
    async with environment.open(SandboxSpec(), an_owner()) as sandbox:
        command = Command(script=loud, timeout_s=10, max_output_bytes=1000)
        result = await exec_in_working_directory(sandbox, command)
        count = await sandbox.read_bytes(PurePosixPath("/count"), 100)

    assert (result.truncated, result.stderr[0], result.stderr_bytes) == (True, "e", 100000)
    assert count == b"x\n"


async def test_a_collect_hook_runs_without_the_working_directory(
    shell: Shell, sandbox: FakeSandbox, tmp_path: Path
) -> None:
    hook = '[[verifier.collect]]\ncommand = "save"\n'
    await collect_artifacts(sandbox, parse_task_toml(TASK_TOML + hook), tmp_path)

    assert ("save", None) in shell.began


@pytest.mark.parametrize(
    ("code", "said"),
    [(126, "no command can be started as this user: status 126, no su"), (137, "putting the tests in was ended: ")],
)
async def test_what_fails_beside_the_tests_is_not_told_as_their_end(tmp_path: Path, code: int, said: str) -> None:
    task = write_task(tmp_path, "task")
    run = TestRun(task / "tests", env={}, user="nobody", limit_s=5, limit_name="limit", logs=tmp_path / "logs")
    environment = FakeEnvironment(exec_script=lambda sandbox, command: ended(code, "no su\n"))
    async with environment.open(SandboxSpec(), an_owner()) as sandbox:
        with pytest.raises(VerifierFailed, match=f"^{said}") as caught:
            await run_tests(sandbox, run)

    assert not caught.value.transient
