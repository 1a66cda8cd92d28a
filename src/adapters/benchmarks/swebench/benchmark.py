"""SWE-bench: fix an issue in a repository; graded by its hidden tests, as upstream grades it."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, TypeAlias

from pydantic import JsonValue

from ....domain.attempt import AttemptContext, HarnessResult
from ....domain.errors import ConfigError, SandboxFailed, SandboxLost
from ....domain.ports import Sandbox
from ....domain.task import Grade, GradingMode, PreparedTask, Solution, StageBudgets, Submission, Task, TaskSelection
from ....domain.value import Parameters
from .dataset import find_dataset
from .evaluation import ROOT, RUNS, Evaluation, evaluate
from .known_bad import KNOWN_BAD
from .parameters import SweBenchParameters
from .patching import apply_command
from .repository import Collected, RecordGone, RepositoryState, collect_patch, prepare_repository
from .rows import Row, read_rows
from .selection import select_rows
from .upstream import swebench_version, test_spec

GRADE_TRANSFERS_S = 600.0
"""For what surrounds the tests: applying the patch, putting files in, fetching the log."""
_AGENT_ENV = {"BASH_ENV": "/root/.bashrc"}
"""Upstream's images enter their conda environment there, which a plain `bash -c` does not read by itself."""

Prepare: TypeAlias = Callable[[Sandbox, Row], Awaitable[RepositoryState]]
Collect: TypeAlias = Callable[[Sandbox, RepositoryState], Awaitable[Collected]]
Evaluate: TypeAlias = Callable[[Sandbox | None, Row, bytes, Path, float], Awaitable[Evaluation]]


class SweBenchBenchmark:
    """SWE-bench, or with `dataset` any data of its format: fix a GitHub issue, graded by hidden tests in a new sandbox.

    The rows, which hold the solutions and tests, stay in this object; a Task has the problem statement only.
    """

    name: ClassVar[str] = "swebench"
    hub_id: ClassVar[str] = "SWE-bench/SWE-bench"
    grading: ClassVar[GradingMode] = GradingMode.FRESH
    Parameters: ClassVar[type[Parameters]] = SweBenchParameters

    def __init__(
        self,
        parameters: SweBenchParameters,
        data_dir: Path,
        *,
        prepare: Prepare = prepare_repository,
        collect: Collect = collect_patch,
        evaluate: Evaluate = evaluate,
    ) -> None:
        self._parameters = parameters
        self._data_dir = data_dir
        self._prepare, self._collect, self._evaluate = prepare, collect, evaluate
        self._rows: dict[str, Row] = {}
        self._dataset: dict[str, JsonValue] = {}

    async def load_tasks(self, selection: TaskSelection) -> Sequence[Task]:
        """The selected instances; also raises ConfigError when upstream's grader cannot grade them, or is not there."""
        version = swebench_version()
        found = await find_dataset(self._parameters, self.hub_id, self._data_dir)
        rows = await asyncio.to_thread(_gradable, found.files, selection, self._parameters)
        self._dataset = {**found.identity, "swebench": version}
        self._rows = {row.instance_id: row for row in rows}
        return [self._task(row) for row in rows]

    def dataset(self) -> Mapping[str, JsonValue]:
        """The file or hub id, its split, commit and SHA-256, and the version of the grader that goes with it."""
        return dict(self._dataset)

    def row(self, task: Task) -> Row:
        """The whole row of a loaded task, hidden tests and solution included."""
        if task.id not in self._rows:
            raise ConfigError(f"instance {task.id!r} is not loaded")
        return self._rows[task.id]

    def _task(self, row: Row) -> Task:
        return Task(
            id=row.instance_id,
            category=row.repo,
            instruction=row.problem_statement,
            budgets=_budgets(self._parameters),
            metadata={
                "repo": row.repo,
                "version": row.version,
                "base_commit": row.base_commit,
                "image": row.image,
                "difficulty": row.difficulty,
                "known_bad": KNOWN_BAD.get(row.instance_id),
            },
            checksum=row.checksum,
        )

    async def prepare(self, task: Task, sandbox: Sandbox | None, context: AttemptContext) -> PreparedTask:
        """The repository has its base state and nothing of what came later, and that state is remembered."""
        row = self.row(task)
        extra: dict[str, JsonValue] = {"mini_swe_agent_config": "swebench"}
        if sandbox is not None:
            extra["repository"] = (await self._prepare(sandbox, row)).model_dump(mode="json")
        return PreparedTask(
            task=task,
            instruction=task.instruction,
            workspace_root=ROOT,
            agent_env=_AGENT_ENV,
            solution=_solution(row),
            extra=extra,
        )

    async def collect(
        self, task: PreparedTask, sandbox: Sandbox | None, result: HarnessResult | None, context: AttemptContext
    ) -> Submission:
        """What the harness handed in, as upstream has it; where it handed in nothing, what changed in the repository.

        The latter is kept in the log folder as `worktree.diff` in any case, and `extra` tells whether the two differ.
        """
        handed_in = None if result is None else result.submission
        changed, extra = await self._changed(task, sandbox, handed_in)
        if changed is not None:
            await asyncio.to_thread((context.log_dir / "worktree.diff").write_bytes, changed)
            extra |= {
                "worktree_sha256": hashlib.sha256(changed).hexdigest(),
                "differs": handed_in not in (None, changed),
            }
        content = handed_in if handed_in is not None else changed or b""
        return Submission(content=content, extra={"source": "worktree" if handed_in is None else "harness", **extra})

    async def _changed(
        self, task: PreparedTask, sandbox: Sandbox | None, handed_in: bytes | None
    ) -> tuple[bytes | None, dict[str, JsonValue]]:
        """The repository's changes; that they cannot be had is no error where they are not what is graded.

        Nor where the agent destroyed what they are told from: it hands in nothing.
        """
        if sandbox is None:
            return None, {}
        try:
            found = await self._collect(sandbox, RepositoryState.model_validate(task.extra["repository"]))
        except (SandboxFailed, SandboxLost) as exc:
            if handed_in is None and not isinstance(exc, RecordGone):
                raise
            return None, {"worktree_error": str(exc)}
        return found.patch, {"left_out": dict(found.left_out)} if found.left_out else {}

    async def grade(
        self, task: PreparedTask, submission: Submission, sandbox: Sandbox | None, context: AttemptContext
    ) -> Grade:
        """Upstream's verdict on its own log. An empty patch needs no sandbox: it is not run, and not correct."""
        row, patch = self.row(task.task), submission.content or b""
        found = await self._evaluate(sandbox, row, patch, context.log_dir, self._parameters.eval_timeout_s)
        return Grade(score=float(found.correct), correct=found.correct, extra={"eval_raw_data": found.raw_data()})


class SweBenchVerifiedBenchmark(SweBenchBenchmark):
    """SWE-bench Verified: 500 instances that people have checked."""

    name: ClassVar[str] = "swebench_verified"
    hub_id: ClassVar[str] = "SWE-bench/SWE-bench_Verified"


class SweBenchLiteBenchmark(SweBenchBenchmark):
    """SWE-bench Lite: 300 instances, chosen to be small."""

    name: ClassVar[str] = "swebench_lite"
    hub_id: ClassVar[str] = "SWE-bench/SWE-bench_Lite"


class SweBenchMultilingualBenchmark(SweBenchBenchmark):
    """SWE-bench Multilingual: 300 instances in nine programming languages."""

    name: ClassVar[str] = "swebench_multilingual"
    hub_id: ClassVar[str] = "SWE-bench/SWE-bench_Multilingual"


def _gradable(files: Sequence[Path], selection: TaskSelection, parameters: SweBenchParameters) -> list[Row]:
    rows = select_rows(read_rows(*files), selection, parameters)
    for row in rows:
        test_spec(row)
    return rows


def _solution(row: Row) -> Solution | None:
    return Solution(command=apply_command(row.patch.encode(), ROOT)) if row.patch else None


def _budgets(parameters: SweBenchParameters) -> StageBudgets:
    return StageBudgets(
        start_s=parameters.start_timeout_s,
        prepare_s=parameters.prepare_timeout_s,
        agent_s=parameters.agent_timeout_s,
        collect_s=parameters.collect_timeout_s,
        grade_s=RUNS * parameters.eval_timeout_s + GRADE_TRANSFERS_S,
        names={"grade": f"{RUNS} x eval_timeout_s + {GRADE_TRANSFERS_S:g} s for transfers"},
    )
