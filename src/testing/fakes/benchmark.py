"""A benchmark of made-up tasks whose right answer is known."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, TypeAlias

from pydantic import Field, JsonValue

from ...domain.attempt import AttemptContext, HarnessResult
from ...domain.errors import ConfigError
from ...domain.ports import Sandbox
from ...domain.suggest import did_you_mean
from ...domain.task import Grade, GradingMode, PreparedTask, StageBudgets, Submission, Task, TaskSelection
from ...domain.value import Parameters as AdapterParameters
from .calling import settled

PrepareScript: TypeAlias = Callable[[Task, Sandbox | None], PreparedTask | Awaitable[PreparedTask]]
CollectScript: TypeAlias = Callable[
    [PreparedTask, Sandbox | None, HarnessResult | None], Submission | Awaitable[Submission]
]
GradeScript: TypeAlias = Callable[[PreparedTask, Submission, Sandbox | None], Grade | Awaitable[Grade]]


class FakeBenchmarkParameters(AdapterParameters):
    """Size and verdicts."""

    tasks: int = Field(default=3, ge=0)
    answer: str = "42"
    grading: GradingMode | None = None
    """None is the class's own."""
    budgets: StageBudgets = StageBudgets()


class FakeBenchmark:
    """Tasks `task-1` to `task-N`, or those given; correct when the submission is `answer`, or as a function says.

    `on_prepare`, `on_collect` and `on_grade` replace what a stage does, and may raise.
    """

    name: ClassVar[str] = "fake"
    grading: ClassVar[GradingMode] = GradingMode.FRESH

    Parameters: ClassVar[type[AdapterParameters]] = FakeBenchmarkParameters

    def __init__(
        self,
        parameters: FakeBenchmarkParameters | None = None,
        data_dir: Path | None = None,
        *,
        tasks: Sequence[Task] | None = None,
        on_prepare: PrepareScript | None = None,
        on_collect: CollectScript | None = None,
        on_grade: GradeScript | None = None,
    ) -> None:
        self.parameters = parameters or FakeBenchmarkParameters()
        self.data_dir = data_dir
        self.tasks = tasks
        self.on_prepare, self.on_collect, self.on_grade = on_prepare, on_collect, on_grade
        if self.parameters.grading is not None:
            vars(self)["grading"] = self.parameters.grading  # the port's ClassVar, for this instance

    async def load_tasks(self, selection: TaskSelection) -> Sequence[Task]:
        """The selected tasks."""
        tasks = {task.id: task for task in (self._made_up() if self.tasks is None else self.tasks)}
        for wanted in selection.sample_ids:
            if wanted not in tasks:
                raise ConfigError(f"no task {wanted!r} in {self.name}", hint=did_you_mean(wanted, tasks, count=3))
        chosen = [tasks[wanted] for wanted in selection.sample_ids] or list(tasks.values())
        return chosen[: selection.limit]

    def _made_up(self) -> list[Task]:
        budgets = self.parameters.budgets
        return [
            Task(id=f"task-{number}", category="fake", instruction=f"Answer question {number}.", budgets=budgets)
            for number in range(1, self.parameters.tasks + 1)
        ]

    def dataset(self) -> Mapping[str, JsonValue]:
        """A revision that never changes."""
        return {"revision": "fake-1"}

    async def prepare(self, task: Task, sandbox: Sandbox | None, context: AttemptContext) -> PreparedTask:
        """The task as it is."""
        if self.on_prepare is not None:
            return await settled(self.on_prepare(task, sandbox))
        return PreparedTask(task=task, instruction=task.instruction)

    async def collect(
        self, task: PreparedTask, sandbox: Sandbox | None, result: HarnessResult | None, context: AttemptContext
    ) -> Submission:
        """What the harness handed in; None when it was cut."""
        if self.on_collect is not None:
            return await settled(self.on_collect(task, sandbox, result))
        return Submission(content=None if result is None else result.submission)

    async def grade(
        self, task: PreparedTask, submission: Submission, sandbox: Sandbox | None, context: AttemptContext
    ) -> Grade:
        """Right or wrong."""
        if self.on_grade is not None:
            return await settled(self.on_grade(task, submission, sandbox))
        correct = submission.content == self.parameters.answer.encode()
        return Grade(score=float(correct), correct=correct)
