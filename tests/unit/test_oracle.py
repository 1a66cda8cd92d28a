"""oracle: the contract, the calls it makes, and what becomes of the solution's exit code."""

from pathlib import Path, PurePosixPath

import pytest
from agentcompass.adapters.harnesses.oracle import OracleHarness, OracleParameters
from agentcompass.domain.attempt import ExitReason, HarnessResult
from agentcompass.domain.errors import BenchmarkBroken
from agentcompass.domain.model import ModelEndpoint
from agentcompass.domain.ports import Harness
from agentcompass.domain.sandbox import Command, ExecResult
from agentcompass.domain.task import PreparedTask, Solution
from agentcompass.testing.fakes import FakeEnvironment, FakeSandbox
from agentcompass.testing.harness import HarnessContract, Recording, RunsCommands, prepared_task
from pydantic import SecretStr

SOLVE = Command(script="(/solution/solve.sh)", env={"B": "solution"}, timeout_s=500)


def solved(files: Path | bytes = b"echo solved\n", **fields: object) -> PreparedTask:
    solution = Solution(files=((files, PurePosixPath("/solution/solve.sh")),), command=SOLVE)
    return prepared_task().model_copy(update={"solution": solution, **fields})


class Ran:
    """What the oracle did to a sandbox whose commands end as `result` says."""

    def __init__(self, result: ExecResult) -> None:
        self.result = result
        self.commands: list[Command] = []

    def script(self, sandbox: FakeSandbox, command: Command) -> ExecResult:
        self.commands.append(command)
        return self.result

    async def run(self, task: PreparedTask, recording: Recording) -> tuple[HarnessResult, FakeSandbox]:
        async with HarnessContract().sandbox(FakeEnvironment(exec_script=self.script), "task-1") as sandbox:
            return await OracleHarness(OracleParameters()).run(task, sandbox, None, recording.context), sandbox


def ended(exit_code: int | None = 0, stdout: str = "", stderr: str = "", **fields: object) -> ExecResult:
    return ExecResult.model_validate(
        {"exit_code": exit_code, "stdout": stdout, "stderr": stderr, "duration_s": 1, **fields}
    )


class TestOracleKeepsTheContract(RunsCommands):
    def make(self) -> Harness:
        return OracleHarness(OracleParameters())

    def prepared(self, task_id: str) -> PreparedTask:
        return prepared_task(task_id).model_copy(update={"solution": Solution(command=SOLVE)})

    def answer(self, request: object) -> str:
        return ""


async def test_the_solution_takes_one_upload_and_one_command(tmp_path: Path) -> None:
    (tmp_path / "solve.sh").write_text("echo solved\n")
    ran = Ran(ended(stdout="solved\n"))
    result, sandbox = await ran.run(solved(tmp_path / "solve.sh"), Recording(tmp_path))

    assert sandbox.files == {PurePosixPath("/solution/solve.sh"): b"echo solved\n"}
    assert len(ran.commands) == 1
    assert result.exit_reason is ExitReason.FINISHED


async def test_a_non_zero_exit_code_is_recorded_and_does_not_fail_the_attempt(tmp_path: Path) -> None:
    result, _ = await Ran(ended(3)).run(solved(), Recording(tmp_path))

    assert result.exit_reason is ExitReason.FINISHED
    assert result.extra == {"exit_code": 3}


async def test_its_output_is_kept_with_what_is_missing_from_it(tmp_path: Path) -> None:
    recording = Recording(tmp_path)
    printed = ended(stdout="out", stderr="err\n", truncated=True, stdout_bytes=9_000_000, stderr_bytes=4)
    await Ran(printed).run(solved(), recording)

    text = (tmp_path / "oracle.txt").read_text()
    assert text == "[output truncated: of 9000004 bytes only the first and last are kept]\nout\n[stderr]\nerr\n"
    assert recording.steps[0].observation == f"{text}[exit code 0 after 1.0 s]"


async def test_a_key_in_its_output_is_masked(tmp_path: Path) -> None:
    recording = Recording(tmp_path)
    recording.context.endpoint = ModelEndpoint(name="m", api_key=SecretStr("sk-very-secret"))
    await Ran(ended(stdout="key sk-very-secret\n")).run(solved(), recording)

    assert (tmp_path / "oracle.txt").read_text() == "key ***\n"
    assert "sk-very-secret" not in recording.text


async def test_it_runs_as_the_agent_would_unless_the_solution_says_otherwise(tmp_path: Path) -> None:
    ran = Ran(ended())
    task = solved(agent_user="agent", agent_env={"A": "agent", "B": "agent"}, workspace_root=PurePosixPath("/app"))
    await ran.run(task, Recording(tmp_path))

    command = ran.commands[0]
    assert (command.user, command.cwd) == ("agent", PurePosixPath("/app"))
    assert command.env == {"A": "agent", "B": "solution"}


@pytest.mark.parametrize(("limit_s", "most_s"), [(10_000, 500), (100, 98), (10, 9.5)])
async def test_its_limit_is_the_agents_less_a_margin_or_the_solutions_own(
    limit_s: float, most_s: float, tmp_path: Path
) -> None:
    ran = Ran(ended())
    await ran.run(solved(), Recording(tmp_path, time_limit_s=limit_s))

    assert 0 < ran.commands[0].timeout_s <= most_s


async def test_cut_at_the_limit_its_output_is_kept(tmp_path: Path) -> None:
    result, _ = await Ran(ended(None, "partial", timed_out=True)).run(solved(), Recording(tmp_path))

    assert result.exit_reason is ExitReason.TIME_LIMIT
    assert (tmp_path / "oracle.txt").read_text() == "partial"


async def test_a_task_without_a_solution_is_named(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkBroken, match="'task-1' has no reference solution"):
        await Ran(ended()).run(prepared_task(), Recording(tmp_path))


async def test_a_missing_file_of_the_solution_is_the_benchmarks_fault(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkBroken, match=r"lacks .*missing\.sh"):
        await Ran(ended()).run(solved(tmp_path / "missing.sh"), Recording(tmp_path))
