"""The fakes keep the promises of the ports they stand for, and stay cheap at scale."""

import asyncio
import gc
from pathlib import Path, PurePosixPath

import pytest
from agentcompass.domain.attempt import (
    AttemptContext,
    AttemptKey,
    AttemptRecord,
    ExitReason,
    HarnessResult,
    Status,
    Step,
)
from agentcompass.domain.errors import ConfigError, SandboxBusy, SandboxLost
from agentcompass.domain.events import RunEnded, RunInterrupted
from agentcompass.domain.model import Message, ModelEndpoint, ModelRequest, Price
from agentcompass.domain.ports import Environment
from agentcompass.domain.run import RunInfo
from agentcompass.domain.sandbox import Command, ExecResult, SandboxSpec
from agentcompass.domain.task import Grade, GradingMode, PreparedTask, Submission, Task, TaskSelection
from agentcompass.testing.environment import FileContract, LifetimeContract, an_owner, sh
from agentcompass.testing.fakes import (
    FakeBenchmark,
    FakeEnvironment,
    FakeHarness,
    FakeModel,
    FakeSandbox,
    MemoryResultStore,
    RecordingProgress,
    ScriptExhausted,
)
from agentcompass.testing.fakes.harness import fake_step

NOW = "2026-01-01T00:00:00+00:00"
PREPARED = PreparedTask(task=Task(id="t", instruction="i"), instruction="i")


def printed(text: str) -> ExecResult:
    return ExecResult(exit_code=0, stdout=text, stderr="", duration_s=0)


def context(record=None) -> AttemptContext:
    async def forget(step: Step) -> None:
        return None

    return AttemptContext(
        run_id="r", task_id="t", attempt=1, log_dir=Path(), time_limit_s=1, record_step=record or forget
    )


def request(*texts: str) -> ModelRequest:
    roles = ("user", "assistant")
    return ModelRequest(messages=tuple(Message(role=roles[n % 2], content=text) for n, text in enumerate(texts)))


class TestFakeEnvironment(FileContract, LifetimeContract):
    """Files and lifetimes; commands are scripts of the test, so that their promises say nothing here."""

    short_lifetime_s = 1

    @pytest.fixture
    def environment(self) -> Environment:
        environment = FakeEnvironment(exec_script=self.run)
        self.live = environment.live
        return environment

    async def run(self, sandbox: FakeSandbox, command: Command) -> ExecResult:
        if "sleep" in (command.script or ""):
            await self._end_of(sandbox)
        return printed("")

    async def _end_of(self, sandbox: FakeSandbox) -> None:
        for _ in range(1000):
            if sandbox.id not in self.live:
                return
            await asyncio.sleep(0.01)


async def test_the_counters_tell_opened_live_and_stopped_sandboxes() -> None:
    environment = FakeEnvironment()
    async with environment.open(SandboxSpec(), an_owner()):
        during = (environment.opened, len(environment.live), environment.stopped)

    assert during == (1, 1, 0)
    assert (environment.opened, len(environment.live), environment.stopped) == (1, 0, 1)


async def test_only_the_open_that_is_to_fail_fails() -> None:
    environment = FakeEnvironment(open_faults={2: SandboxBusy("try later")})
    outcomes = []
    for _ in range(3):
        try:
            async with environment.open(SandboxSpec(), an_owner()):
                outcomes.append("opened")
        except SandboxBusy as exc:
            outcomes.append(exc.message)

    assert outcomes == ["opened", "try later", "opened"]
    assert environment.live == {}


async def test_faults_may_be_set_as_parameters() -> None:
    environment = FakeEnvironment(FakeEnvironment.Parameters.model_validate({"fail_opens": {"1": "SandboxLost"}}))

    with pytest.raises(SandboxLost, match="open 1"):
        async with environment.open(SandboxSpec(), an_owner()):
            pass


async def test_a_script_sees_its_sandbox_and_may_raise() -> None:
    def script(sandbox: FakeSandbox, command: Command) -> ExecResult:
        if command.script == "die":
            raise SandboxLost("as asked")
        return printed(sandbox.files[PurePosixPath("/file")].decode())

    async with FakeEnvironment(exec_script=script).open(SandboxSpec(), an_owner()) as sandbox:
        await sandbox.write_bytes(PurePosixPath("/file"), b"content")
        result = await sandbox.exec(sh("cat /file"))
        with pytest.raises(SandboxLost, match="as asked"):
            await sandbox.exec(sh("die"))

    assert result.stdout == "content"


async def test_a_script_slower_than_the_commands_limit_times_out() -> None:
    environment = FakeEnvironment(FakeEnvironment.Parameters(exec_delay_s=60))
    async with environment.open(SandboxSpec(), an_owner()) as sandbox:
        result = await sandbox.exec(sh("true", timeout_s=0.01))

    assert (result.timed_out, result.exit_code) == (True, None)


async def test_a_model_gives_its_replies_in_order_and_then_fails_loudly() -> None:
    model = FakeModel(replies=["one", SandboxBusy("two")])
    first = await model.complete(request("hi"))
    with pytest.raises(SandboxBusy):
        await model.complete(request("hi"))
    with pytest.raises(ScriptExhausted, match="2 replies, asked for 3"):
        await model.complete(request("hi"))

    assert first.message.content == "one"


async def test_a_model_by_turn_serves_many_conversations() -> None:
    model = FakeModel(FakeModel.Parameters(replies=("one", "two"), by_turn=True), ModelEndpoint(name="m"))
    replies = [await model.complete(request(*texts)) for texts in (("a",), ("b",), ("a", "one", "c"))]

    assert [reply.message.content for reply in replies] == ["one", "one", "two"]


async def test_a_models_cost_is_known_where_its_price_is() -> None:
    priced = FakeModel(FakeModel.Parameters(replies=("x",), price=Price(input=1, output=2)))
    unpriced = FakeModel(replies=lambda request: "x")

    assert (await priced.complete(request("a"))).usage.cost_usd == pytest.approx(20e-6)
    assert (await unpriced.complete(request("a"))).usage.cost_usd is None


async def test_a_harness_records_its_steps_and_gives_its_result() -> None:
    steps = []

    async def record(step: Step) -> None:
        steps.append(step.step_id)

    harness = FakeHarness(FakeHarness.Parameters(steps=2, submission="patch"))
    result = await harness.run(PREPARED, None, None, context(record))

    assert steps == [1, 2]
    assert result == HarnessResult(exit_reason=ExitReason.SUBMITTED, submission=b"patch")


async def test_a_harness_may_be_a_function() -> None:
    def failing(*given: object) -> HarnessResult:
        raise SandboxLost("as asked")

    harness = FakeHarness(result=failing, needs_sandbox=False, needs_model=True)
    with pytest.raises(SandboxLost):
        await harness.run(PREPARED, None, None, context())

    assert (harness.needs_sandbox, harness.needs_model) == (False, True)
    assert (FakeHarness.needs_sandbox, harness.running) == (True, 0)


async def test_a_benchmark_selects_its_tasks() -> None:
    benchmark = FakeBenchmark(FakeBenchmark.Parameters(tasks=12))
    limited = await benchmark.load_tasks(TaskSelection(limit=2))
    chosen = await benchmark.load_tasks(TaskSelection(sample_ids=("task-9", "task-3")))
    with pytest.raises(ConfigError, match="task-1"):
        await benchmark.load_tasks(TaskSelection(sample_ids=("tusk-1",)))

    assert [task.id for task in limited] == ["task-1", "task-2"]
    assert [task.id for task in chosen] == ["task-9", "task-3"]


async def test_a_benchmark_grades_by_its_answer_or_by_a_function() -> None:
    plain = FakeBenchmark()
    partial = FakeBenchmark(on_grade=lambda task, submission, sandbox: Grade(score=0.5, correct=False))
    grades = [await plain.grade(PREPARED, Submission(content=text), None, context()) for text in (b"42", b"41", None)]

    assert [grade.score for grade in grades] == [1.0, 0.0, 0.0]
    assert (await partial.grade(PREPARED, Submission(), None, context())).score == 0.5


def test_a_benchmarks_grading_mode_can_be_set() -> None:
    benchmark = FakeBenchmark(FakeBenchmark.Parameters(grading=GradingMode.SAME))

    assert (benchmark.grading, FakeBenchmark.grading) == (GradingMode.SAME, GradingMode.FRESH)


def record_of(status: Status) -> AttemptRecord:
    return AttemptRecord(status=status, score=1 if status is Status.COMPLETED else None, started_at=NOW, ended_at=NOW)


def run_info(**identity: str) -> RunInfo:
    return RunInfo(run_name="n", run_id="r", identity=identity, request={}, host="h", started_at=NOW)


async def test_a_store_resumes_and_never_loses_a_graded_attempt() -> None:
    store = MemoryResultStore()
    key = AttemptKey(task_id="t", attempt=1)
    fresh = list(await store.open(run_info(model="a")))
    folder = store.begin_attempt(key)
    await store.append_step(key, fake_step(1))
    await store.save_attempt(key, "", record_of(Status.COMPLETED))
    await store.save_attempt(key, "", record_of(Status.RUN_ERROR))
    steps, had_folder = store.steps_of(key), folder.is_dir()
    await store.close()
    again = list(await store.open(run_info(model="a")))
    await store.close()

    assert fresh == []
    assert (had_folder, folder.exists(), len(steps)) == (True, False, 1)
    assert again == [(key, record_of(Status.COMPLETED))]


async def test_a_store_refuses_another_identity_and_a_second_user() -> None:
    store = MemoryResultStore()
    await store.open(run_info(model="a"))
    with pytest.raises(ConfigError, match="live"):
        await store.open(run_info(model="a"))
    await store.close()

    with pytest.raises(ConfigError, match="model"):
        await store.open(run_info(model="b"))


def test_progress_keeps_the_last_events_by_kind() -> None:
    progress = RecordingProgress(RecordingProgress.Parameters(keep=2))
    ended = RunEnded(summary=None, folder="f")
    for event in (ended, RunInterrupted(hard=False, reason="SIGINT"), ended):
        progress.on(event)

    assert len(progress.events) == 2
    assert progress.of(RunEnded) == [ended]


async def test_a_thousand_sandboxes_leave_no_memory_behind() -> None:
    environment, spec = FakeEnvironment(), SandboxSpec()
    gate = asyncio.Semaphore(200)

    async def attempt(number: int) -> None:
        async with gate, environment.open(spec, an_owner(attempt=number)) as sandbox:
            await sandbox.write_bytes(PurePosixPath("/file"), b"x" * 1000)
            await sandbox.exec(sh("true"))

    await asyncio.gather(*map(attempt, range(1, 1001)))
    gc.collect()
    remembered = sum(isinstance(thing, FakeSandbox) and thing.spec is spec for thing in gc.get_objects())

    assert (environment.opened, environment.stopped, environment.live) == (1000, 1000, {})
    assert environment.peak_live <= 200
    assert remembered <= 100
