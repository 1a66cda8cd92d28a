"""The run use case over fakes: what is stored, counted, kept, retried and cut."""

import asyncio
import json
import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from agentcompass.adapters.results.file_store import WRITE_LIMIT_S
from agentcompass.adapters.support.cleanup import stop_shielded
from agentcompass.adapters.support.stage_clock import waiting_for_turn
from agentcompass.app.attempt_runner import SAVE_LIMIT_S
from agentcompass.app.run_evaluation import RunEvaluation, RunOutcome, RunPorts
from agentcompass.app.specs import SpecResolver
from agentcompass.domain.attempt import AttemptKey, ExitReason, HarnessResult, Stage, Status
from agentcompass.domain.errors import (
    ConfigError,
    HarnessFailed,
    ModelBusy,
    ModelRefused,
    SandboxLost,
    SandboxStartFailed,
    VerifierFailed,
)
from agentcompass.domain.events import (
    AttemptEnded,
    AttemptRetried,
    Event,
    RunEnded,
    RunInterrupted,
    RunStarted,
    StageEntered,
)
from agentcompass.domain.model import NO_USAGE, Message, ModelEndpoint, ModelRequest, Usage
from agentcompass.domain.naming import sandbox_name
from agentcompass.domain.redaction import Redactor
from agentcompass.domain.run import RunRequest
from agentcompass.domain.sandbox import (
    LONGEST_TIMEOUT_S,
    Check,
    SandboxOwner,
    SandboxSpec,
    SweepSelector,
    SweptSandbox,
)
from agentcompass.domain.task import Grade, GradingMode, PreparedTask, StageBudgets, Submission, Task, TaskSelection
from agentcompass.testing.fakes import (
    FakeBenchmark,
    FakeEnvironment,
    FakeHarness,
    FakeModel,
    MemoryResultStore,
    RecordingProgress,
)
from agentcompass.testing.fakes.benchmark import FakeBenchmarkParameters
from agentcompass.testing.fakes.harness import FakeHarnessParameters
from agentcompass.testing.fakes.model import reply
from agentcompass.testing.fakes.sandbox import FakeSandbox
from structlog.testing import capture_logs

FIRST = AttemptKey(task_id="task-1", attempt=1)
LOST = SandboxLost("gone")
KNOWN = {"good": None, "flaky": "it calls a web site"}


class World:
    """One run's fakes; `start` runs them once more, as a resumed process would."""

    def __init__(self, **fakes: Any) -> None:
        self.benchmark = fakes.get("benchmark") or FakeBenchmark(FakeBenchmarkParameters(tasks=fakes.get("tasks", 3)))
        self.environment = fakes.get("environment") or FakeEnvironment()
        self.harness = fakes.get("harness") or FakeHarness()
        self.model = fakes.get("model")
        self.store = MemoryResultStore()
        self.progress = RecordingProgress()
        self.folder = fakes.get("folder", Path("no results"))
        self.redactor = Redactor(fakes.get("secrets", ()))
        self.evaluation: RunEvaluation | None = None

    def evaluate(self, **request: Any) -> RunEvaluation:
        fields: dict[str, Any] = {
            "benchmark": "fake",
            "harness": "fake",
            "environment": "fake",
            "model": ModelEndpoint(name="fake"),
            "run_name": "name",
            "run_id": "id",
            "max_retries": 0,
        }
        specs = SpecResolver(self.benchmark, self.environment, [], {}, {})
        ports = RunPorts(
            environment=self.environment,
            harness=self.harness,
            model=self.model,
            benchmark=self.benchmark,
            store=self.store,
            progress=self.progress,
            specs=specs,
            parameters={},
            folder=self.folder,
            redactor=self.redactor,
        )
        self.evaluation = RunEvaluation(RunRequest(**{**fields, **request}), ports)
        return self.evaluation

    async def start(self, timeout_seconds: float | None = None, **request: Any) -> RunOutcome:
        return await self.evaluate(**request).run(timeout_seconds)


def raising(error: BaseException) -> Any:
    def script(*_: object) -> Any:
        raise error

    return script


@pytest.fixture(autouse=True)
def no_waiting_between_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("attempt_runner", "attempt_try"):
        monkeypatch.setattr(f"agentcompass.app.{module}.MAX_RETRY_WAIT_S", 0)


async def test_every_selected_attempt_is_stored_and_counted() -> None:
    world = World()
    outcome = await world.start(k=2)

    assert len(world.store.records) == 6
    assert outcome.summary.counts.model_dump() == {
        "selected": 6,
        "correct": 6,
        "incorrect": 0,
        "errors": 0,
        "cancelled": 0,
        "not_run": 0,
    }
    assert outcome.exit_code == 0
    assert world.environment.live == {}


async def test_first_attempts_of_all_tasks_come_before_second_ones() -> None:
    world = World()
    await world.start(k=2, task_concurrency=1)

    order = [event.key.attempt for event in world.progress.of(AttemptEnded)]
    assert order == [1, 1, 1, 2, 2, 2]


async def test_no_more_attempts_run_at_once_than_asked_for() -> None:
    world = World(tasks=20, harness=FakeHarness(FakeHarnessParameters(sleep_s=0.01)))
    await world.start(task_concurrency=3)

    assert world.harness.peak_running == 3


async def test_a_wrong_answer_is_a_zero_and_a_graded_run_exits_with_0() -> None:
    world = World(harness=FakeHarness(FakeHarnessParameters(submission="41")))
    outcome = await world.start()

    assert outcome.summary.counts.incorrect == 3
    assert outcome.exit_code == 0


@pytest.mark.parametrize(
    ("fakes", "status", "stage", "kind"),
    [
        (
            {"environment": FakeEnvironment(open_faults={1: SandboxStartFailed("no image")})},
            Status.RUN_ERROR,
            Stage.START,
            "SandboxStartFailed",
        ),
        (
            {"benchmark": FakeBenchmark(on_prepare=raising(KeyError("x")))},
            Status.RUN_ERROR,
            Stage.PREPARE,
            "BenchmarkBroken",
        ),
        ({"harness": FakeHarness(result=raising(SandboxLost("gone")))}, Status.RUN_ERROR, Stage.AGENT, "SandboxLost"),
        (
            {"harness": FakeHarness(result=raising(ZeroDivisionError("x")))},
            Status.RUN_ERROR,
            Stage.AGENT,
            "HarnessFailed",
        ),
        ({"harness": FakeHarness(result=raising(ModelBusy("500")))}, Status.RUN_ERROR, Stage.AGENT, "ModelBusy"),
        (
            {"benchmark": FakeBenchmark(on_collect=raising(OSError("x")))},
            Status.RUN_ERROR,
            Stage.COLLECT,
            "BenchmarkBroken",
        ),
        (
            {"benchmark": FakeBenchmark(on_grade=raising(VerifierFailed("no reward")))},
            Status.EVAL_ERROR,
            Stage.GRADE,
            "VerifierFailed",
        ),
        (
            {"environment": FakeEnvironment(open_faults={1: asyncio.CancelledError()})},
            Status.RUN_ERROR,
            Stage.START,
            "SandboxFailed",
        ),
        ({"harness": FakeHarness(result=raising(SystemExit(0)))}, Status.RUN_ERROR, Stage.AGENT, "HarnessFailed"),
        (
            {"benchmark": FakeBenchmark(on_collect=raising(BaseException("panic")))},
            Status.RUN_ERROR,
            Stage.COLLECT,
            "BenchmarkBroken",
        ),
        (
            {"benchmark": FakeBenchmark(on_grade=raising(asyncio.CancelledError()))},
            Status.EVAL_ERROR,
            Stage.GRADE,
            "BenchmarkBroken",
        ),
    ],
)
async def test_what_breaks_in_a_stage_is_an_error_of_that_stage_and_never_a_score(
    fakes: dict[str, Any], status: Status, stage: Stage, kind: str
) -> None:
    world = World(**fakes)
    outcome = await world.start(selection=TaskSelection(limit=1))
    record = world.store.records[FIRST]

    assert (record.status, record.score, record.correct) == (status, None, False)
    assert record.failure is not None
    assert (record.failure.stage, record.failure.kind) == (stage, kind)
    assert record.error.startswith(stage.value)
    assert outcome.summary.counts.errors == 1
    assert outcome.exit_code == 1
    assert world.environment.live == {}


def at_first_task(wrong: object, right: object) -> Any:
    def script(task: Any, *_: object) -> Any:
        return wrong if getattr(task, "task", task).id == "task-1" else right

    return script


PREPARED = PreparedTask(task=Task(id="task-2", instruction=""), instruction="")
RESULT = HarnessResult(exit_reason=ExitReason.SUBMITTED, submission=b"42")
HANDED_IN = Submission(content=b"42")
RIGHT = Grade(score=1, correct=True)
NO_REASON = HarnessResult.model_construct(exit_reason="because", final_answer="")
A_SET = HarnessResult.model_construct(exit_reason=ExitReason.SUBMITTED, final_answer="", extra={"a": {1, 2}})


@pytest.mark.parametrize(
    ("fakes", "status", "error"),
    [
        (
            {"benchmark": FakeBenchmark(on_prepare=at_first_task("ready", PREPARED))},
            Status.RUN_ERROR,
            "prepare: prepare returned str, not a PreparedTask",
        ),
        (
            {"harness": FakeHarness(result=at_first_task({"x": 1}, RESULT))},
            Status.RUN_ERROR,
            "agent: run returned dict, not a HarnessResult",
        ),
        (
            {"harness": FakeHarness(result=at_first_task(NO_REASON, RESULT))},
            Status.RUN_ERROR,
            "agent: run returned a HarnessResult that is not valid: exit_reason: ",
        ),
        (
            {"harness": FakeHarness(result=at_first_task(A_SET, RESULT))},
            Status.RUN_ERROR,
            "agent: run returned a HarnessResult that is not valid: extra.",
        ),
        (
            {"benchmark": FakeBenchmark(on_collect=at_first_task({"x": 1}, HANDED_IN))},
            Status.RUN_ERROR,
            "collect: collect returned dict, not a Submission",
        ),
        (
            {"benchmark": FakeBenchmark(on_grade=at_first_task(None, RIGHT))},
            Status.EVAL_ERROR,
            "grade: grade returned None, not a Grade",
        ),
        (
            {"benchmark": FakeBenchmark(on_grade=at_first_task({"score": 1}, RIGHT))},
            Status.EVAL_ERROR,
            "grade: grade returned dict, not a Grade",
        ),
        (
            {"benchmark": FakeBenchmark(on_grade=at_first_task(RIGHT.model_copy(update={"score": math.nan}), RIGHT))},
            Status.EVAL_ERROR,
            "grade: grade returned a Grade that is not valid: score: ",
        ),
    ],
)
async def test_a_wrong_value_from_a_plug_in_is_an_error_of_its_own_attempt_only(
    fakes: dict[str, Any], status: Status, error: str
) -> None:
    world = World(**fakes)
    outcome = await world.start(task_concurrency=1)
    record = world.store.records[FIRST]

    assert (record.status, record.score, record.error[: len(error)]) == (status, None, error)
    assert (outcome.summary.counts.correct, outcome.summary.counts.errors) == (2, 1)


async def test_a_sandbox_without_an_id_is_an_error_of_its_start_and_is_stopped() -> None:
    class Nameless(FakeEnvironment):
        @asynccontextmanager
        async def open(self, spec: SandboxSpec, owner: SandboxOwner) -> AsyncIterator[FakeSandbox]:
            async with super().open(spec, owner) as sandbox:
                name = sandbox.id
                vars(sandbox)["id"] = None
                try:
                    yield sandbox
                finally:
                    sandbox.id = name

    world = World(environment=Nameless())
    outcome = await world.start()

    assert {record.failure and record.failure.stage for record in world.store.records.values()} == {Stage.START}
    assert (outcome.summary.counts.errors, world.environment.live) == (3, {})


async def test_what_is_nested_too_deep_to_be_kept_is_cut_and_costs_no_verdict() -> None:
    deep: Any = 1
    for _ in range(255):
        deep = {"a": deep}
    result = RESULT.model_copy(update={"extra": deep})
    world = World(harness=FakeHarness(result=result), benchmark=FakeBenchmark(on_collect=lambda *_: submission))
    submission = HANDED_IN.model_copy(update={"extra": deep})
    outcome = await world.start()

    assert outcome.summary.counts.correct == 3


async def test_a_cancellation_that_nobody_asked_for_costs_one_attempt_and_no_worker() -> None:
    world = World(tasks=20)

    def sometimes(*_: object) -> HarnessResult:
        if world.harness.runs <= 2:
            raise asyncio.CancelledError
        return HarnessResult(exit_reason=ExitReason.SUBMITTED, submission=b"42")

    world.harness = FakeHarness(result=sometimes)
    outcome = await world.start(task_concurrency=2)

    assert outcome.summary.counts.correct == 18
    assert outcome.summary.counts.errors == 2
    assert world.store.records[FIRST].error == "agent: agent broke: CancelledError"


async def test_a_display_that_breaks_is_told_once_for_each_kind_of_event_and_leaks_nothing() -> None:
    world = World()

    def breaks(event: Event) -> None:
        if not isinstance(event, RunStarted):
            raise SystemExit(0)

    world.progress.on = breaks  # type: ignore[method-assign]
    with capture_logs() as events:
        outcome = await world.start()

    assert outcome.exit_code == 0
    assert world.environment.live == {}
    assert [(event["event"], event["kind"]) for event in events] == [
        ("progress.failed", kind) for kind in ("StageEntered", "AttemptEnded", "RunEnded")
    ]


async def test_a_run_folder_that_cannot_be_looked_at_is_the_users_error_in_one_line(tmp_path: Path) -> None:
    world = World(folder=tmp_path / ("x" * 300))

    with pytest.raises(ConfigError, match="cannot be read: File name too long"):
        await world.start()
    assert world.environment.opened == 0


async def test_stopping_is_timed_also_after_an_error() -> None:
    world = World(tasks=1, harness=FakeHarness(result=raising(ModelRefused("401"))))
    await world.start()

    assert "stop" in world.store.records[FIRST].timings


async def test_a_transient_error_is_tried_again_and_the_try_is_shown() -> None:
    world = World(environment=FakeEnvironment(open_faults={1: SandboxLost("gone")}))
    await world.start(selection=TaskSelection(limit=1), max_retries=2)
    record = world.store.records[FIRST]

    assert record.status is Status.COMPLETED
    assert [(earlier.failure.kind, earlier.failure.stage) for earlier in record.tries] == [("SandboxLost", Stage.START)]
    assert len(world.progress.of(AttemptRetried)) == 1


async def test_a_permanent_error_is_not_tried_again() -> None:
    world = World(harness=FakeHarness(result=raising(ModelRefused("401"))))
    await world.start(selection=TaskSelection(limit=1), max_retries=5)

    assert world.harness.runs == 1


async def test_retries_are_bounded() -> None:
    world = World(harness=FakeHarness(result=raising(ModelBusy("500"))))
    await world.start(selection=TaskSelection(limit=1), max_retries=2)

    assert world.harness.runs == 3
    assert len(world.store.records[FIRST].tries) == 2


async def test_a_graded_zero_is_not_tried_again() -> None:
    world = World(harness=FakeHarness(FakeHarnessParameters(submission="41")))
    await world.start(selection=TaskSelection(limit=1), max_retries=5)

    assert world.harness.runs == 1


async def test_work_at_the_time_limit_is_collected_and_graded_after_its_processes_are_dead() -> None:
    order: list[str] = []

    async def slow(*_: object) -> HarnessResult:
        await asyncio.sleep(60)
        raise AssertionError

    def collect(*_: object) -> Submission:
        order.append("collect")
        return Submission(content=b"42")

    world = World(
        harness=FakeHarness(result=slow),
        benchmark=FakeBenchmark(
            FakeBenchmarkParameters(tasks=1, budgets=StageBudgets(agent_s=0.05)), on_collect=collect
        ),
    )
    await watch_kills(world, order)
    await world.start()
    record = world.store.records[FIRST]

    assert order == ["kill", "collect"]
    assert (record.status, record.correct, record.exit_reason) == (Status.COMPLETED, True, ExitReason.TIME_LIMIT)


async def watch_kills(world: World, order: list[str]) -> None:
    async def on_open(sandbox: Any) -> None:
        kill = sandbox.kill_processes

        async def watched() -> None:
            order.append("kill")
            await kill()

        sandbox.kill_processes = watched

    world.environment.on_open = on_open


async def test_processes_of_an_agent_that_ended_by_itself_are_left_alone() -> None:
    order: list[str] = []
    world = World(tasks=1)
    await watch_kills(world, order)
    await world.start()

    assert order == []


async def test_a_stage_that_outlives_its_budget_names_the_limit_its_value_and_the_time() -> None:
    async def slow(*_: object) -> Grade:
        await asyncio.sleep(60)
        raise AssertionError

    budgets = StageBudgets(grade_s=0.05, names={"grade": "verifier.timeout_sec"})
    world = World(benchmark=FakeBenchmark(FakeBenchmarkParameters(tasks=1, budgets=budgets), on_grade=slow))
    await world.start()
    record = world.store.records[FIRST]

    assert record.status is Status.EVAL_ERROR
    assert record.failure is not None
    assert record.failure.limit == "verifier.timeout_sec"
    assert "verifier.timeout_sec of 0.05 s" in record.error


async def test_work_is_kept_when_the_model_fails_in_the_middle() -> None:
    collected: list[object] = []

    def collect(*_: object) -> Submission:
        collected.append(1)
        return Submission(content=b"half")

    world = World(
        harness=FakeHarness(result=raising(ModelBusy("500"))),
        benchmark=FakeBenchmark(FakeBenchmarkParameters(tasks=1), on_collect=collect),
    )
    await world.start()
    record = world.store.records[FIRST]

    assert collected
    assert record.status is Status.RUN_ERROR
    assert record.submission_sha256 == Submission(content=b"half").sha256
    assert record.failure is not None
    assert record.failure.stage is Stage.AGENT


@pytest.mark.parametrize(("failures", "status"), [(1, Status.COMPLETED), (2, Status.EVAL_ERROR)])
async def test_a_submission_whose_grading_failed_is_graded_again_without_the_agent(
    failures: int, status: Status
) -> None:
    worked: list[object] = []
    graded: list[bytes | None] = []

    def work(*_: object) -> HarnessResult:
        worked.append(1)
        return HarnessResult(exit_reason=ExitReason.SUBMITTED, submission=b"42")

    def grade(_task: object, submission: Submission, _sandbox: object) -> Grade:
        graded.append(submission.content)
        if len(graded) <= failures:
            raise VerifierFailed("no network")
        return Grade(score=1, correct=True)

    world = World(
        harness=FakeHarness(result=work),
        benchmark=FakeBenchmark(FakeBenchmarkParameters(tasks=1, grading=GradingMode.FRESH), on_grade=grade),
    )
    await world.start(max_retries=1)
    record = world.store.records[FIRST]

    assert (len(worked), len(graded), len(record.tries)) == (1, 2, 1)
    assert record.status is status


@pytest.mark.parametrize(
    ("mode", "submission", "harness_needs", "opened", "grades_in"),
    [
        (GradingMode.FRESH, "42", True, ["agent", "grade"], "grade"),
        (GradingMode.FRESH, None, True, ["agent", "grade"], "grade"),
        (GradingMode.FRESH, "", True, ["agent"], None),
        (GradingMode.FRESH, "42", False, ["grade"], "grade"),
        (GradingMode.FRESH, "", False, [], None),
        (GradingMode.SAME, "42", True, ["agent"], "agent"),
        (GradingMode.SAME, "", False, ["agent"], "agent"),
        (GradingMode.NONE, "42", True, ["agent"], None),
        (GradingMode.NONE, "42", False, [], None),
    ],
)
async def test_no_sandbox_is_opened_that_nobody_needs(
    mode: GradingMode, submission: str | None, harness_needs: bool, opened: list[str], grades_in: str | None
) -> None:
    given: list[str | None] = []

    def grade(_task: object, _submission: object, sandbox: Any) -> Grade:
        given.append(sandbox and sandbox.id)
        return Grade(score=0, correct=False)

    world = World(
        benchmark=FakeBenchmark(FakeBenchmarkParameters(tasks=1, grading=mode), on_grade=grade),
        harness=FakeHarness(FakeHarnessParameters(submission=submission), needs_sandbox=harness_needs),
    )
    await world.start()
    ids = {record.purpose: record.id for record in world.store.records[FIRST].sandboxes}

    assert list(ids) == opened
    assert world.environment.opened == len(opened)
    assert given == [ids[grades_in] if grades_in else None]


async def test_a_failed_task_that_is_known_to_be_bad_is_named_with_the_reason() -> None:
    tasks = [Task(id=name, instruction=name, metadata={"known_bad": reason}) for name, reason in KNOWN.items()]
    world = World(
        benchmark=FakeBenchmark(tasks=tasks),
        harness=FakeHarness(FakeHarnessParameters(submission="41")),
    )
    outcome = await world.start()
    resumed = await world.start()

    assert outcome.summary.caveats == {"flaky": "it calls a web site"}
    assert resumed.summary.caveats == outcome.summary.caveats


async def test_usage_survives_an_agent_that_is_cut() -> None:
    async def spend(_task: object, _sandbox: object, model: Any, _context: object) -> HarnessResult:
        await model.complete(ModelRequest(messages=(Message(role="user", content="hi"),)))
        await asyncio.sleep(60)
        raise AssertionError

    usage = Usage(input_tokens=7, output_tokens=3, cost_usd=0.5)
    world = World(
        harness=FakeHarness(result=spend, needs_model=True),
        model=FakeModel(replies=[reply("a", usage=usage)]),
        benchmark=FakeBenchmark(FakeBenchmarkParameters(tasks=1, budgets=StageBudgets(agent_s=0.05))),
    )
    await world.start()

    assert world.store.records[FIRST].usage.input_tokens == 7
    assert world.store.records[FIRST].usage.cost_usd == 0.5


async def test_a_resume_keeps_scored_attempts_and_runs_the_errored_ones() -> None:
    fails = Counter({"task-2": 1})

    def sometimes(task: Any, *_: object) -> HarnessResult:
        if fails[task.task.id]:
            fails[task.task.id] -= 1
            raise ModelBusy("500")
        return HarnessResult(exit_reason=ExitReason.SUBMITTED, submission=b"42")

    world = World(harness=FakeHarness(result=sometimes))
    first = await world.start()
    runs = world.harness.runs
    second = await world.start()

    assert first.summary.counts.errors == 1
    assert world.harness.runs == runs + 1
    assert second.summary.counts.correct == 3
    assert [t.failure.kind for t in world.store.records[AttemptKey(task_id="task-2", attempt=1)].tries] == ["ModelBusy"]


class Sweeping(FakeEnvironment):
    """Counts how often it was swept."""

    def __init__(self) -> None:
        super().__init__()
        self.sweeps = 0

    async def sweep(self, selector: SweepSelector) -> list[SweptSandbox]:
        self.sweeps += 1
        return []


async def test_a_start_that_has_work_sweeps_once_what_dead_runs_left() -> None:
    world = World(environment=Sweeping())
    await world.start()
    await world.start()

    assert world.environment.sweeps == 1


async def test_a_resume_of_a_finished_run_starts_nothing() -> None:
    world = World()
    await world.start()
    opened = world.environment.opened
    outcome = await world.start()

    assert world.environment.opened == opened
    assert outcome.summary.counts.correct == 3
    assert world.progress.of(RunStarted)[-1].kept == 3


@pytest.mark.parametrize(
    "change",
    [
        {"k": 2},
        {"model": ModelEndpoint(name="other")},
        {"selection": TaskSelection(limit=1)},
        {"harness": "other"},
        {"environment": "other"},
    ],
)
async def test_a_request_that_moves_a_score_is_refused_on_resume(change: dict[str, Any]) -> None:
    world = World()
    await world.start()

    with pytest.raises(ConfigError):
        await world.start(**change)


@pytest.mark.parametrize(
    "change", [{"task_concurrency": 9}, {"max_retries": 3}, {"model": ModelEndpoint(name="fake", base_url="http://b")}]
)
async def test_what_moves_no_score_may_change_on_resume(change: dict[str, Any]) -> None:
    world = World()
    await world.start()
    outcome = await world.start(**change)

    assert outcome.exit_code == 0


@pytest.mark.parametrize(
    ("stored", "warned"),
    [
        ({"request": {"model": {"name": "fake", "base_url": "http://a"}}}, ["http://a"]),
        ({"request": {"model": {"name": "fake", "base_url": None}}}, [None]),
        ({"request": {"model": {"name": "fake", "base_url": "http://b/***"}}}, []),
        ({"request": {"model": "fake"}}, []),
        ({}, []),
    ],
)
async def test_a_resume_at_another_address_of_the_model_is_warned_of(
    tmp_path: Path, stored: dict[str, Any], warned: list[str | None]
) -> None:
    (tmp_path / "run_info.json").write_text(json.dumps({"identity": {}, **stored}))
    world = World(folder=tmp_path, model=FakeModel(), secrets=["secret-1234"])
    endpoint = ModelEndpoint(name="fake", base_url="http://b/secret-1234")
    with capture_logs() as events:
        await world.start(model=endpoint)
        await world.start(model=endpoint)  # nothing is left: no model is asked

    found = [event for event in events if event["event"] == "model.address_changed"]
    assert [(event["stored"], event["now"], event["log_level"]) for event in found] == [
        (address, "http://b/***", "warning") for address in warned
    ]


async def test_a_run_without_a_model_has_no_address_that_could_change(tmp_path: Path) -> None:
    stored = {"identity": {}, "request": {"model": {"name": "fake", "base_url": "http://a"}}}
    (tmp_path / "run_info.json").write_text(json.dumps(stored))
    with capture_logs() as events:
        await World(folder=tmp_path).start()

    assert "model.address_changed" not in [event["event"] for event in events]


async def test_the_first_interrupt_lets_running_attempts_finish_and_starts_no_more() -> None:
    world = World(tasks=10, harness=FakeHarness(FakeHarnessParameters(sleep_s=0.05)))
    evaluation = world.evaluate(task_concurrency=2)
    run = asyncio.create_task(evaluation.run())
    await asyncio.sleep(0.02)
    evaluation._interrupts.interrupt()
    outcome = await run

    assert outcome.summary.counts.correct == 2
    assert outcome.summary.counts.not_run == 8
    assert outcome.exit_code == 130
    assert [event.hard for event in world.progress.of(RunInterrupted)] == [False]


@pytest.mark.parametrize("way", ["second interrupt", "terminate"])
async def test_a_hard_interrupt_stops_sandboxes_and_records_what_was_cut(way: str) -> None:
    world = World(tasks=10, harness=FakeHarness(FakeHarnessParameters(sleep_s=60)))
    evaluation = world.evaluate(task_concurrency=2)
    run = asyncio.create_task(evaluation.run())
    await asyncio.sleep(0.02)
    interrupts = evaluation._interrupts
    if way == "second interrupt":
        interrupts.interrupt()
        interrupts.interrupt()
    else:
        interrupts.terminate("SIGTERM")
    outcome = await run

    assert outcome.summary.counts.cancelled == 2
    assert outcome.summary.counts.not_run == 8
    assert outcome.exit_code == 130
    assert world.environment.live == {}
    assert {record.status for record in world.store.records.values()} == {Status.CANCELLED}
    assert len(world.progress.of(RunEnded)) == 1


class Stopping(FakeEnvironment):
    """An environment whose sandboxes are stopped by `stop`."""

    def __init__(self, stop: Callable[[], Awaitable[None]]) -> None:
        super().__init__()
        self.stop = stop

    @asynccontextmanager
    async def open(self, spec: SandboxSpec, owner: SandboxOwner) -> AsyncIterator[FakeSandbox]:
        async with super().open(spec, owner) as sandbox:
            yield sandbox
            await self.stop()


@pytest.mark.parametrize("mode", [GradingMode.SAME, GradingMode.FRESH])
async def test_a_verdict_holds_when_the_run_is_cut_while_the_sandbox_stops(mode: GradingMode) -> None:
    graded, stopping = asyncio.Event(), asyncio.Event()

    def grade(*_: object) -> Grade:
        graded.set()
        return Grade(score=1, correct=True)

    async def stop() -> None:
        if graded.is_set():
            stopping.set()
            await asyncio.sleep(60)

    benchmark = FakeBenchmark(FakeBenchmarkParameters(tasks=1, grading=mode), on_grade=grade)
    world = World(environment=Stopping(stop), benchmark=benchmark)
    evaluation = world.evaluate()
    run = asyncio.create_task(evaluation.run())
    await stopping.wait()
    evaluation._interrupts.terminate("SIGTERM")
    await run
    record = world.store.records[FIRST]

    assert (record.status, record.score, record.correct, record.error) == (Status.COMPLETED, 1, True, "")
    assert record.failure is None


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (SandboxLost("gone"), "gone"),
        (TimeoutError(), "TimeoutError"),
        (ValueError("a bug"), "ValueError: a bug"),
        (asyncio.CancelledError(), "CancelledError"),
        (SystemExit(0), "SystemExit: 0"),
    ],
)
async def test_a_stop_that_fails_is_an_error_event_and_ends_neither_the_run_nor_the_verdict(
    error: BaseException, told: str
) -> None:
    async def stop() -> None:
        raise error

    world = World(environment=Stopping(stop))
    with capture_logs() as events:
        outcome = await world.start()
    leaked = [event for event in events if event["event"] == "sandbox.leaked"]

    assert outcome.summary.counts.correct == 3
    assert len(leaked) == world.environment.opened
    assert {(event["log_level"], event["error"]) for event in leaked} == {("error", told)}
    assert all(event["sandbox"] for event in leaked)


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_stop_that_does_not_end_at_its_limit_is_a_leak_and_no_exception(
    is_cancelled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentcompass.adapters.support.cleanup.STOP_SLACK_S", 0.01)

    async def stop() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.1)

    with capture_logs() as events:
        stopping = asyncio.create_task(stop_shielded(stop, limit_s=0.01, what="ac-1"))
        await asyncio.sleep(0)
        if is_cancelled:
            stopping.cancel()
        (ended,) = await asyncio.gather(stopping, return_exceptions=True)

    assert isinstance(ended, asyncio.CancelledError) if is_cancelled else ended is None
    assert [(event["event"], event["sandbox"]) for event in events] == [("sandbox.leaked", "ac-1")]


async def test_what_a_failed_try_spent_is_counted_once_when_the_run_is_cut_before_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agentcompass.app.attempt_runner.MAX_RETRY_WAIT_S", 60)
    usage = Usage(input_tokens=7, output_tokens=3, cost_usd=0.5)

    async def spend(task: object, sandbox: object, model: Any, context: object) -> HarnessResult:
        await asking(task, sandbox, model, context)
        raise ModelBusy("500")

    world = World(tasks=1, harness=FakeHarness(result=spend, needs_model=True))
    world.model = FakeModel(replies=[reply("a", usage=usage)])
    evaluation = world.evaluate(max_retries=1)
    run = asyncio.create_task(evaluation.run())
    while not world.progress.of(AttemptRetried):
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    evaluation._interrupts.terminate("SIGTERM")
    outcome = await run
    record = world.store.records[FIRST]

    assert (record.status, record.error, record.tries) == (Status.RUN_ERROR, "agent: 500", ())
    assert outcome.summary.usage == usage


@pytest.mark.parametrize("moment", ["during the try", "during the wait"])
async def test_no_try_starts_after_the_first_interrupt(moment: str) -> None:
    world = World(tasks=1)

    def fail(*_: object) -> HarnessResult:
        if moment == "during the try":
            evaluation._interrupts.interrupt()
        raise ModelBusy("500")

    def during_the_wait(event: Event) -> None:
        if isinstance(event, AttemptRetried) and moment == "during the wait":
            asyncio.get_running_loop().call_soon(evaluation._interrupts.interrupt)
        recorded(event)

    world.harness = FakeHarness(result=fail)
    recorded, world.progress.on = world.progress.on, during_the_wait  # type: ignore[method-assign]
    evaluation = world.evaluate(max_retries=3)
    await evaluation.run()
    record = world.store.records[FIRST]

    assert world.harness.runs == 1
    assert (record.status, record.tries) == (Status.RUN_ERROR, ())


async def test_a_submission_is_graded_again_also_after_the_first_interrupt() -> None:
    graded: list[object] = []

    def grade(*_: object) -> Grade:
        evaluation._interrupts.interrupt() if not graded else None
        graded.append(1)
        if len(graded) == 1:
            raise VerifierFailed("no network")
        return Grade(score=1, correct=True)

    fresh = FakeBenchmarkParameters(tasks=1, grading=GradingMode.FRESH)
    world = World(benchmark=FakeBenchmark(fresh, on_grade=grade))
    evaluation = world.evaluate(max_retries=1)
    outcome = await evaluation.run()

    assert outcome.summary.counts.correct == 1


async def test_no_two_sandboxes_of_an_attempt_have_one_owner() -> None:
    agents, gradings = Counter[str](), Counter[str]()

    def sometimes(*_: object) -> HarnessResult:
        agents["run"] += 1
        if agents["run"] == 1:
            raise ModelBusy("500")
        return HarnessResult(exit_reason=ExitReason.SUBMITTED, submission=b"42")

    def grade(*_: object) -> Grade:
        gradings["run"] += 1
        if gradings["run"] < 3:
            raise VerifierFailed("no network")
        return Grade(score=1, correct=True)

    fresh = FakeBenchmarkParameters(tasks=1, grading=GradingMode.FRESH)
    world = World(benchmark=FakeBenchmark(fresh, on_grade=grade), harness=FakeHarness(result=sometimes))
    await world.start(max_retries=3)
    names = [sandbox_name(sandbox.owner) for sandbox in world.environment.recent]

    assert len(names) == len(set(names)) == 5


def test_a_store_gives_up_a_write_before_its_caller_does() -> None:
    assert SAVE_LIMIT_S > WRITE_LIMIT_S


async def test_cancelled_attempts_are_run_again_by_a_resume() -> None:
    world = World(tasks=2, harness=FakeHarness(FakeHarnessParameters(sleep_s=60)))
    await world.start(timeout_seconds=0.05)
    world.harness = FakeHarness()
    outcome = await world.start()

    assert outcome.summary.counts.correct == 2


async def test_the_runs_own_limit_cuts_it_with_exit_code_1() -> None:
    world = World(tasks=2, harness=FakeHarness(FakeHarnessParameters(sleep_s=60)))
    outcome = await world.start(timeout_seconds=0.05)

    assert outcome.exit_code == 1
    assert "timeout_seconds of 0.05 s" in world.progress.of(RunInterrupted)[0].reason


async def test_a_store_that_cannot_write_stops_the_run() -> None:
    world = World()

    async def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    world.store.save_attempt = full  # type: ignore[method-assign]  # a disk that has become full

    with pytest.raises(OSError, match="No space left"):
        await world.start()
    assert world.environment.live == {}
    assert world.store.locked is False


class Queueing(FakeEnvironment):
    """An environment that lets a sandbox wait for its turn, and then takes `start_s` to start it."""

    def __init__(self, wait_s: float, start_s: float) -> None:
        super().__init__()
        self.wait_s, self.start_s = wait_s, start_s

    @asynccontextmanager
    async def open(self, spec: SandboxSpec, owner: SandboxOwner) -> AsyncIterator[FakeSandbox]:
        with waiting_for_turn():
            await asyncio.sleep(self.wait_s)
        await asyncio.sleep(self.start_s)
        async with super().open(spec, owner) as sandbox:
            yield sandbox


def one_task_that_starts_within(seconds: float) -> FakeBenchmark:
    return FakeBenchmark(FakeBenchmarkParameters(tasks=1, budgets=StageBudgets(start_s=seconds)))


async def test_the_limit_of_a_start_does_not_count_the_wait_for_its_turn() -> None:
    world = World(environment=Queueing(wait_s=0.3, start_s=0), benchmark=one_task_that_starts_within(0.2))
    await world.start()

    assert world.store.records[FIRST].status is Status.COMPLETED
    assert world.store.records[FIRST].timings["start"] >= 0.3


async def test_a_start_over_its_limit_tells_the_time_that_its_limit_counts() -> None:
    world = World(environment=Queueing(wait_s=0.3, start_s=10), benchmark=one_task_that_starts_within(0.1))
    await world.start()
    record = world.store.records[FIRST]

    assert record.error.startswith("start: limit start_timeout_s of 0.1 s reached after 0.1 s")
    assert record.failure is not None
    assert (record.failure.limit, round(record.failure.elapsed_s, 1)) == ("start_timeout_s", 0.1)


async def test_stages_are_announced_in_their_order() -> None:
    world = World(tasks=1)
    await world.start()

    stages = [event.stage.value for event in world.progress.of(StageEntered)]
    assert stages == ["start", "prepare", "agent", "collect", "stop", "start", "grade", "stop"]


async def test_a_harness_that_exposes_the_model_is_refused_without_one() -> None:
    world = World(harness=FakeHarness(exposes_model=True))

    with pytest.raises(ConfigError, match="named is 'none'"):
        await world.start(model=ModelEndpoint(name="none"))
    assert world.environment.opened == 0


async def test_what_an_agent_with_the_models_address_spends_is_unknown() -> None:
    world = World(tasks=2, harness=FakeHarness(exposes_model=True), environment=FakeEnvironment(open_faults={1: LOST}))
    outcome = await world.start(task_concurrency=1)
    never_began, ended = world.store.records.values()

    assert (never_began.usage, ended.usage) == (NO_USAGE, Usage())
    assert outcome.summary.attempts_without_tokens == 1


class Unready(FakeEnvironment):
    """An environment whose `check` answers as told, and is counted."""

    def __init__(self, *answers: Check | BaseException) -> None:
        super().__init__()
        self.answers, self.asked = answers, 0

    async def check(self) -> list[Check]:
        self.asked += 1
        for answer in self.answers:
            if isinstance(answer, BaseException):
                raise answer
        return [answer for answer in self.answers if isinstance(answer, Check)]


NO_ENGINE = Check(name="engine", ok=False, detail="no answer", hint="start it")
FINE = Check(name="platform", ok=True, detail="linux")


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ((FINE, NO_ENGINE), r"environment 'fake' is not ready: engine: no answer \(start it\)"),
        ((OSError("no socket"),), r"environment 'fake' is not ready: check: OSError: no socket"),
        ((TimeoutError("of its own"),), "check: TimeoutError: of its own"),
        ((SystemExit(0),), "check: SystemExit: 0"),
    ],
)
async def test_an_environment_that_is_not_ready_refuses_the_run_before_anything_is_made(
    answers: tuple[Check | BaseException, ...], told: str
) -> None:
    world = World(environment=Unready(*answers))
    with pytest.raises(ConfigError, match=told):
        await world.start()

    assert (world.environment.opened, world.store.run, list(world.progress.events)) == (0, None, [])


async def test_an_environment_that_is_not_ready_is_called_what_the_user_named() -> None:
    world = World(environment=Unready(FINE.model_copy(update={"ok": False})))

    with pytest.raises(ConfigError, match=r"'mine:Fake' is not ready.*\(see agentcompass doctor mine:Fake\)"):
        await world.start(environment="mine:Fake")


async def test_an_environment_that_does_not_answer_refuses_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentcompass.app.preflight.CHECK_LIMIT_S", 0.01)
    world = World()

    async def silent() -> list[Check]:
        await asyncio.sleep(60)
        return []

    world.environment.check = silent

    with pytest.raises(ConfigError, match="no answer within 0.01 s"):
        await world.start()


async def test_advice_refuses_nothing() -> None:
    world = World(environment=Unready(NO_ENGINE.model_copy(update={"is_advice": True})))
    outcome = await world.start()

    assert outcome.exit_code == 0


async def test_the_environment_is_asked_once_however_many_attempts_run() -> None:
    world = World(tasks=10, environment=Unready(FINE))
    await world.start(k=2)

    assert world.environment.asked == 1


async def test_a_run_without_sandboxes_does_not_ask_for_them() -> None:
    world = World(
        environment=Unready(NO_ENGINE),
        harness=FakeHarness(needs_sandbox=False),
        benchmark=FakeBenchmark(FakeBenchmarkParameters(tasks=1, grading=GradingMode.NONE)),
    )
    outcome = await world.start()

    assert (outcome.exit_code, world.environment.asked) == (0, 0)


async def test_a_finished_run_has_its_summary_again_without_its_environment(tmp_path: Path) -> None:
    world = World(folder=tmp_path)
    first = await world.start()
    world.environment = Unready(NO_ENGINE)
    again = await world.start()

    assert again.summary == first.summary
    assert world.environment.asked == 0


async def test_an_unfinished_run_is_not_taken_up_where_its_environment_is_not_ready(tmp_path: Path) -> None:
    world = World(folder=tmp_path, environment=FakeEnvironment(open_faults={1: LOST}))
    await world.start()
    stored = dict(world.store.records)
    world.environment = Unready(NO_ENGINE)

    with pytest.raises(ConfigError, match="engine"):
        await world.start()
    assert (world.store.records, world.store.locked) == (stored, False)


async def test_a_resume_tells_the_score_and_the_spending_of_what_is_kept_at_once() -> None:
    usage = Usage(input_tokens=7, output_tokens=3, cost_usd=0.5)
    world = World(harness=FakeHarness(result=asking, needs_model=True))
    world.model = FakeModel(replies=lambda _: reply("a", usage=usage))
    first = await world.start()
    await world.start()
    started = world.progress.of(RunStarted)[-1]

    assert started.accuracy == first.summary.accuracy_graded
    assert started.spent.usage == first.summary.usage == Usage(input_tokens=21, output_tokens=9, cost_usd=1.5)


async def asking(_task: object, _sandbox: object, model: Any, _context: object) -> HarnessResult:
    await model.complete(ModelRequest(messages=(Message(role="user", content="hi"),)))
    return HarnessResult(exit_reason=ExitReason.SUBMITTED, submission=b"42")


async def test_the_summary_names_what_has_no_score_without_secrets() -> None:
    world = World(harness=FakeHarness(result=raising(ModelRefused("401: key sk-0123456789 is wrong"))))
    world.redactor = Redactor(["sk-0123456789"])
    outcome = await world.start()

    assert [one.error for one in outcome.summary.unscored] == ["agent: 401: key *** is wrong"] * 3


async def test_a_cost_limit_without_a_price_is_refused_before_anything_starts() -> None:
    world = World(harness=FakeHarness(needs_model=True), model=FakeModel())

    with pytest.raises(ConfigError, match="price"):
        await world.start(harness_params={"cost_limit": 1.0})
    assert world.environment.opened == 0


async def test_an_empty_selection_is_refused() -> None:
    world = World(tasks=0)

    with pytest.raises(ConfigError, match="empty"):
        await world.start()


async def test_harness_failed_keeps_its_own_message() -> None:
    world = World(harness=FakeHarness(result=raising(HarnessFailed("the agent program is missing", hint="install it"))))
    await world.start(selection=TaskSelection(limit=1))

    assert world.store.records[FIRST].error == "agent: the agent program is missing (install it)"


async def test_a_spec_that_cannot_be_is_the_users_error_in_one_line() -> None:
    world = World(tasks=1)
    evaluation = world.evaluate()
    specs = SpecResolver(world.benchmark, world.environment, [], {}, {"workspace_root": "relative"})
    tasks = await evaluation.load_tasks()

    with pytest.raises(ConfigError, match="workspace_root"):
        specs.check_all(tasks)


@pytest.mark.parametrize("mode", [GradingMode.FRESH, GradingMode.SAME])
async def test_a_sandbox_to_grade_in_that_cannot_be_is_refused_before_anything_starts(mode: GradingMode) -> None:
    budgets = StageBudgets(grade_s=LONGEST_TIMEOUT_S)
    world = World(benchmark=FakeBenchmark(FakeBenchmarkParameters(tasks=1, grading=mode, budgets=budgets)))

    with pytest.raises(ConfigError, match="timeout"):
        await world.start()
    assert world.environment.open_calls == 0
