"""oracle: applies the task's reference solution, which checks a benchmark's set-up in one command."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from pydantic import JsonValue

from ...domain.attempt import AttemptContext, ExitReason, HarnessResult
from ...domain.errors import BenchmarkBroken, HarnessFailed
from ...domain.ports import Model, Sandbox
from ...domain.sandbox import Command
from ...domain.task import PreparedTask, Solution
from ...domain.value import Parameters
from .program import MAX_OUTPUT_BYTES, Deadline, exit_reason, record_program, text_of, write_log

LOG = "oracle.txt"


class OracleParameters(Parameters):
    """Nothing to set."""


class OracleHarness:
    """Applies the task's reference solution; must score 100 %.

    One call of the sandbox for each file or folder of the solution, and one for its command. Its exit code is recorded
    (`exit_code`) and does not matter: the tests have the last word. The attempt ends as `finished`, or as `time_limit`;
    its output is the log `oracle.txt`.
    """

    Parameters: ClassVar[type[Parameters]] = OracleParameters
    needs_sandbox: ClassVar[bool] = True
    needs_model: ClassVar[bool] = False

    def __init__(self, parameters: OracleParameters) -> None:
        self._parameters = parameters

    def exposes_model(self) -> bool:
        """No."""
        return False

    def files(self) -> Mapping[str, JsonValue]:
        """None."""
        return {}

    async def run(
        self, task: PreparedTask, sandbox: Sandbox | None, model: Model | None, context: AttemptContext
    ) -> HarnessResult:
        """As the port says; also raises BenchmarkBroken: the task has no reference solution, or lacks a file of it."""
        solution = task.solution
        if sandbox is None:
            raise HarnessFailed("harness oracle needs a sandbox")
        if solution is None:
            raise BenchmarkBroken(f"task {task.task.id!r} has no reference solution", hint="select tasks that have one")
        deadline = Deadline(context.time_limit_s)
        await _put(task.task.id, sandbox, solution)
        command = _as_agent(solution.command, task, deadline)
        result = await sandbox.exec(command)
        await write_log(context, LOG, text_of(result))
        said = command.script if command.script is not None else " ".join(command.argv)
        await record_program(context, task.instruction, said, result)
        return HarnessResult(
            exit_reason=exit_reason(result, failed=ExitReason.FINISHED), extra={"exit_code": result.exit_code}
        )


async def _put(task_id: str, sandbox: Sandbox, solution: Solution) -> None:
    for source, target in solution.files:
        if isinstance(source, Path):
            try:
                await sandbox.upload(source, target)
            except FileNotFoundError as exc:
                raise BenchmarkBroken(f"task {task_id!r} lacks {str(source)!r} of its solution") from exc
        else:
            await sandbox.write_bytes(target, source)


def _as_agent(command: Command, task: PreparedTask, deadline: Deadline) -> Command:
    """The command where and as whom an agent's would run, as far as it does not say itself."""
    update = {
        "cwd": command.cwd or task.workspace_root,
        "user": command.user or task.agent_user,
        "env": task.agent_env | command.env,
        "timeout_s": deadline.left_s(command.timeout_s),
        "max_output_bytes": max(command.max_output_bytes, MAX_OUTPUT_BYTES),
    }
    return command.model_copy(update=update)
