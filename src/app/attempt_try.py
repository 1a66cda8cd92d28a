"""One pass of an attempt through its stages: start, prepare, agent, collect, grade, stop."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import structlog
from pydantic import JsonValue

from ..adapters.results.serialising import json_safe
from ..adapters.support.stage_clock import stage_clock
from ..domain.attempt import (
    AttemptContext,
    AttemptKey,
    AttemptRecord,
    EarlierTry,
    ExitReason,
    Failure,
    HarnessResult,
    SandboxRecord,
    Stage,
    Status,
    Step,
)
from ..domain.errors import (
    AgentCompassError,
    BenchmarkBroken,
    HarnessFailed,
    SandboxFailed,
    SandboxLost,
    StageTimeout,
)
from ..domain.events import AttemptRetried, Event, StageEntered
from ..domain.model import NO_USAGE, ModelEndpoint, Usage
from ..domain.ports import Benchmark, Environment, Harness, Model, ResultStore, Sandbox
from ..domain.sandbox import SandboxOwner, SandboxSpec
from ..domain.task import KNOWN_BAD, Grade, GradingMode, PreparedTask, Submission, Task
from .clock import now_iso
from .metering import MeteredModel
from .plugins import plugin_border, returned

log = structlog.get_logger()
MAX_RETRY_WAIT_S = 60.0


@dataclass(frozen=True, kw_only=True)
class AttemptPorts:
    """What every attempt of a run shares."""

    run_id: str
    host: str
    process: str
    environment: Environment
    harness: Harness
    model: Model | None
    endpoint: ModelEndpoint
    benchmark: Benchmark
    store: ResultStore
    spec_for: Callable[[Task, str], SandboxSpec]
    """(task, purpose) -> what its sandbox must be."""
    emit: Callable[[Event], None]
    finish: Callable[[Task, AttemptKey, AttemptRecord], Awaitable[None]]
    """Store the record and count it."""
    is_ending: Callable[[], bool]
    """Whether the run is to start nothing new."""
    max_retries: int
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


def needs_sandbox(harness: Harness, benchmark: Benchmark) -> bool:
    """Whether an attempt may open any sandbox at all."""
    return harness.needs_sandbox or benchmark.grading is not GradingMode.NONE


class AttemptTry:
    """One pass through the stages; what is known of it so far is always enough for a record."""

    def __init__(self, ports: AttemptPorts, task: Task, key: AttemptKey, number: int) -> None:
        self._ports, self._task, self._key, self._number = ports, task, key, number
        self._started, self._started_at = time.monotonic(), now_iso()
        self._stage = Stage.START
        self._stage_started = self._started
        self._grading = False
        self._timings: dict[str, float] = {}
        self._sandboxes: list[SandboxRecord] = []
        self._meter = MeteredModel(ports.model) if ports.model is not None else None
        self._result: HarnessResult | None = None
        self._exit_reason: ExitReason | None = None
        self._submission: Submission | None = None
        self._grade: Grade | None = None
        self._failure: Failure | None = None
        self._gradings: list[EarlierTry] = []
        self._steps = 0
        log_dir = ports.store.begin_attempt(key)
        self._context = AttemptContext(
            run_id=ports.run_id,
            task_id=task.id,
            attempt=key.attempt,
            log_dir=log_dir,
            time_limit_s=task.budgets.agent_s,
            endpoint=ports.endpoint,
            record_step=self._record_step,
        )

    async def run(self) -> AttemptRecord:
        """All stages. Every error of a plug-in becomes the record's."""
        try:
            await self._all_stages()
        except AgentCompassError as exc:
            return self._failed(exc)
        return self._record(Status.COMPLETED, "")

    def cancelled(self) -> AttemptRecord:
        """The record of a try that was cut; a verdict that was reached by then holds."""
        if self._grade is not None:
            return self._record(Status.COMPLETED, "")
        self._failure = self._failure_now("Cancelled", transient=True)
        return self._record(Status.CANCELLED, f"{self._stage}: the run was interrupted")

    def _record(self, status: Status, error: str) -> AttemptRecord:
        grade = self._grade if status is Status.COMPLETED else None
        total = time.monotonic() - self._started
        return AttemptRecord(
            status=status,
            correct=grade.correct if grade else False,
            score=grade.score if grade else None,
            error=error,
            exit_reason=self._exit_reason,
            failure=self._failure,
            final_answer=self._result.final_answer if self._result else "",
            submission_sha256=self._submission.sha256 if self._submission else None,
            usage=self._usage(),
            timings={name: round(seconds, 3) for name, seconds in {**self._timings, "total": total}.items()},
            started_at=self._started_at,
            ended_at=now_iso(),
            sandboxes=tuple(self._sandboxes),
            tries=tuple(self._gradings),
            extra=self._extra(),
        )

    def _usage(self) -> Usage:
        if self._ports.harness.exposes_model() and Stage.AGENT.value in self._timings:
            return Usage()
        return self._meter.usage if self._meter else NO_USAGE

    def _extra(self) -> dict[str, JsonValue]:
        extra: dict[str, JsonValue] = {"steps": self._steps}
        if self._result is not None and self._result.extra:
            extra["harness"] = json_safe(self._result.extra)  # one level deeper than it was valid at
        if self._submission is not None and self._submission.extra:
            extra["submission"] = json_safe(self._submission.extra)
        if known_bad := self._task.metadata.get(KNOWN_BAD):
            extra[KNOWN_BAD] = known_bad
        return extra | (self._grade.extra if self._grade else {})

    def _failed(self, error: AgentCompassError) -> AttemptRecord:
        self._failure = self._failure_of(error)
        log.warning("attempt.failed", stage=self._stage.value, error=str(error), exc_info=error)
        status = Status.EVAL_ERROR if self._grading else Status.RUN_ERROR
        return self._record(status, f"{self._stage}: {error}")

    def _failure_of(self, error: AgentCompassError) -> Failure:
        failure = self._failure_now(type(error).__name__, transient=error.transient)
        if not isinstance(error, StageTimeout):
            return failure
        return failure.model_copy(update={"limit": error.limit, "elapsed_s": round(error.elapsed_s, 3)})

    def _failure_now(self, kind: str, *, transient: bool) -> Failure:
        elapsed_s = round(time.monotonic() - self._stage_started, 3)
        return Failure(stage=self._stage, kind=kind, elapsed_s=elapsed_s, transient=transient)

    async def _all_stages(self) -> None:
        ports, same = self._ports, self._ports.benchmark.grading is GradingMode.SAME
        async with self._stopping() as stack:
            sandbox = await self._open(stack, "agent") if ports.harness.needs_sandbox or same else None
            prepared = await self._prepare(sandbox)
            await self._agent(prepared, sandbox)
            await self._collect(prepared, sandbox)
            self._grading = True  # also while a sandbox to grade in starts
            if same:
                await self._do_grade(prepared, sandbox)
        if not same:
            await self._grade_apart_at_last(prepared)

    async def _grade_apart_at_last(self, prepared: PreparedTask) -> None:
        """After a transient error the same submission is graded again: the agent gets no other chance by it."""
        for number in range(1, self._ports.max_retries + 2):
            started_at = now_iso()
            try:
                await self._grade_apart(prepared, number)
                return
            except AgentCompassError as exc:
                if not exc.transient or number > self._ports.max_retries:
                    raise
                failure, error = self._failure_of(exc), f"{self._stage}: {exc}"
                again = EarlierTry(error=error, failure=failure, started_at=started_at, ended_at=now_iso())
                self._gradings.append(again)
                self._ports.emit(AttemptRetried(key=self._key, try_number=number, error=error))
            await self._ports.sleep(min(2.0**number, MAX_RETRY_WAIT_S))

    async def _grade_apart(self, prepared: PreparedTask, number: int) -> None:
        async with self._stopping() as stack:
            sandbox = await self._open(stack, "grade", number) if self._grades_in_a_sandbox() else None
            await self._do_grade(prepared, sandbox)

    def _grades_in_a_sandbox(self) -> bool:
        is_empty = self._submission is not None and self._submission.content == b""
        return self._ports.benchmark.grading is GradingMode.FRESH and not is_empty

    async def _open(self, stack: AsyncExitStack, purpose: str, grading: int = 1) -> Sandbox:
        environment = self._ports.environment
        async with self._entered(Stage.START, SandboxFailed):
            spec = self._ports.spec_for(self._task, purpose)
            sandbox = await stack.enter_async_context(environment.open(spec, self._owner(purpose, grading)))
            self._sandboxes.append(
                SandboxRecord(
                    environment=environment.name,
                    id=sandbox.id,
                    purpose=purpose,
                    image=sandbox.image,
                    image_digest=sandbox.image_digest,
                )
            )
            return sandbox

    def _owner(self, purpose: str, grading: int) -> SandboxOwner:
        # Distinct for each sandbox, so that one which could not be stopped does not keep its successor from the name:
        # no other try follows one that came to a grading apart.
        ports = self._ports
        return SandboxOwner(
            run_id=ports.run_id,
            task_id=self._task.id,
            attempt=self._key.attempt,
            try_number=self._number + grading - 1,
            purpose=purpose,
            host=ports.host,
            process=ports.process,
        )

    async def _prepare(self, sandbox: Sandbox | None) -> PreparedTask:
        async with self._entered(Stage.PREPARE, BenchmarkBroken):
            prepared = await self._ports.benchmark.prepare(self._task, sandbox, self._context)
            return returned(prepared, PreparedTask, "prepare", BenchmarkBroken)

    async def _agent(self, prepared: PreparedTask, sandbox: Sandbox | None) -> None:
        try:
            async with self._entered(Stage.AGENT, HarnessFailed):
                harness = self._ports.harness
                result = await harness.run(prepared, sandbox, self._meter, self._context)
                self._result = returned(result, HarnessResult, "run", HarnessFailed)
                self._exit_reason = self._result.exit_reason
        except StageTimeout:
            self._exit_reason = ExitReason.TIME_LIMIT
        except SandboxLost:
            raise
        except AgentCompassError:
            await self._keep_work(prepared, sandbox)
            raise
        if self._exit_reason is ExitReason.TIME_LIMIT and sandbox is not None:
            await self._kill_left_overs(sandbox)

    async def _kill_left_overs(self, sandbox: Sandbox) -> None:
        """What the agent's processes do after its time limit is not its work."""
        async with self._entered(Stage.COLLECT, SandboxFailed):
            await sandbox.kill_processes()

    async def _keep_work(self, prepared: PreparedTask, sandbox: Sandbox | None) -> None:
        """The attempt has failed already; what the agent had made is kept beside it, if it can be had."""
        stage, started = self._stage, self._stage_started
        try:
            await self._collect(prepared, sandbox)
        except AgentCompassError as exc:
            log.info("submission.not_collected", error=str(exc))
        self._stage, self._stage_started = stage, started

    async def _collect(self, prepared: PreparedTask, sandbox: Sandbox | None) -> None:
        async with self._entered(Stage.COLLECT, BenchmarkBroken):
            submission = await self._ports.benchmark.collect(prepared, sandbox, self._result, self._context)
            self._submission = returned(submission, Submission, "collect", BenchmarkBroken)
            if self._submission.content is not None:
                await asyncio.to_thread((self._context.log_dir / "submission").write_bytes, self._submission.content)

    async def _do_grade(self, prepared: PreparedTask, sandbox: Sandbox | None) -> None:
        async with self._entered(Stage.GRADE, BenchmarkBroken):
            submission = self._submission or Submission()
            grade = await self._ports.benchmark.grade(prepared, submission, sandbox, self._context)
            self._grade = returned(grade, Grade, "grade", BenchmarkBroken)

    @asynccontextmanager
    async def _stopping(self) -> AsyncIterator[AsyncExitStack]:
        """What enters the stack inside is stopped afterwards, on every path; that is timed as a stage too."""
        stack = AsyncExitStack()
        try:
            yield stack
        finally:
            started = time.monotonic()
            self._ports.emit(StageEntered(key=self._key, stage=Stage.STOP, try_number=self._number))
            try:
                with plugin_border(SandboxFailed):
                    await stack.aclose()
            except AgentCompassError as exc:  # a failed stop must not hide the attempt's own outcome
                last = self._sandboxes[-1].id if self._sandboxes else None
                log.error("sandbox.leaked", sandbox=last, error=str(exc), exc_info=exc)
            finally:
                self._add_timing(Stage.STOP, started)

    @asynccontextmanager
    async def _entered(self, stage: Stage, broken: type[AgentCompassError]) -> AsyncIterator[None]:
        """Inside, `stage` is under way: bounded by its budget, timed, a plug-in's exceptions wrapped as `broken`."""
        self._stage, self._stage_started = stage, time.monotonic()
        self._ports.emit(StageEntered(key=self._key, stage=stage, try_number=self._number))
        budgets = self._task.budgets
        limit_s = budgets.seconds(stage)
        started = self._stage_started
        try:
            async with stage_clock(limit_s) as clock:
                with plugin_border(lambda fault: broken(f"{stage} broke: {fault}")):
                    yield
        except TimeoutError as exc:
            if not clock.expired:
                raise
            raise StageTimeout(budgets.name(stage), limit_s, clock.worked_s) from exc
        finally:
            self._add_timing(stage, started)

    def _add_timing(self, stage: Stage, started: float) -> None:
        self._timings[stage.value] = self._timings.get(stage.value, 0.0) + time.monotonic() - started

    async def _record_step(self, step: Step) -> None:
        self._steps += 1
        await self._ports.store.append_step(self._key, step)
