"""The run use case: load, plan, run at most so many attempts at once, store each as it ends, sum up."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from ..adapters.results.durable import is_folder, reading_begins
from ..adapters.results.layout import RUN_INFO
from ..adapters.results.run_file import read_run_file
from ..adapters.support.liveness import this_host, this_process
from ..domain.attempt import AttemptKey, AttemptRecord, EarlierTry
from ..domain.errors import AgentCompassError, ConfigError
from ..domain.events import AttemptEnded, Event, RunEnded, RunInterrupted, RunStarted
from ..domain.model import NO_MODEL
from ..domain.planning import planned
from ..domain.ports import Benchmark, Environment, Harness, Model, Progress, ResultStore
from ..domain.redaction import Redactor
from ..domain.run import GRADED, RunInfo, RunRequest, RunSummary
from ..domain.scoring import Tally
from ..domain.task import Task
from ..domain.value import Parameters
from .attempt_runner import AttemptRunner, as_tries
from .attempt_try import AttemptPorts, needs_sandbox
from .clock import now_iso
from .identity import identity
from .interrupts import Interrupts
from .plugins import plugin_border, tasks_of
from .preflight import refuse_unready
from .specs import SpecResolver
from .sweep import dead_runs_swept
from .versions import versions

log = structlog.get_logger()


@dataclass(frozen=True)
class RunOutcome:
    """What a run came to."""

    summary: RunSummary
    paths: Mapping[str, Path]
    """`run_info`, `summary`, `details`."""
    by_signal: bool
    """A signal ended it."""

    @property
    def exit_code(self) -> int:
        """0 all graded, 1 some not, 130 interrupted."""
        if self.by_signal:
            return 130
        counts = self.summary.counts
        return 0 if counts.correct + counts.incorrect == counts.selected else 1


@dataclass(frozen=True, kw_only=True)
class RunPorts:
    """The adapters of one run, and the parameters they were built from (by section, for the run's identity)."""

    environment: Environment
    harness: Harness
    model: Model | None
    benchmark: Benchmark
    store: ResultStore
    progress: Progress
    specs: SpecResolver
    parameters: dict[str, Parameters]
    folder: Path
    redactor: Redactor = field(default_factory=Redactor)


class RunEvaluation:
    """One start of a run."""

    def __init__(self, request: RunRequest, ports: RunPorts) -> None:
        self._request, self._ports = request, ports
        self._interrupts = Interrupts(self._on_soft, self._on_hard)
        self._workers: list[asyncio.Task[None]] = []
        self._earlier: dict[AttemptKey, tuple[EarlierTry, ...]] = {}
        self._tally = Tally(0, request.k)
        self._not_shown: set[str] = set()
        self._started_at = now_iso()

    async def run(self, timeout_seconds: float | None = None) -> RunOutcome:
        """Run what is not stored yet.

        Raises:
            ConfigError: nothing was started.
        """
        ports = self._ports
        tasks = await self.load_tasks()
        with reading_begins():
            is_new = not is_folder(ports.folder)
        if is_new:
            await self._refuse_unready()
        try:
            stored = await ports.store.open(self._info(tasks))
            kept = self._take_up(stored, tasks)
            if not is_new and kept < len(tasks) * self._request.k:
                await self._refuse_unready()
            with self._interrupts.installed(timeout_seconds):
                await self._run_all(tasks, kept)
            summary = self._summary()
            paths = await ports.store.save_summary(summary)
            self._emit(RunEnded(summary=summary, folder=str(ports.folder)))
        except BaseException:
            self._emit(RunEnded(summary=None, folder=str(ports.folder)))
            raise
        finally:
            await ports.store.close()
        return RunOutcome(summary, paths, self._interrupts.by_signal)

    async def load_tasks(self) -> Sequence[Task]:
        """The selected tasks; each is known to fit the environment.

        Raises:
            ConfigError: bad selection, data or combination.
        """
        request, ports = self._request, self._ports
        self._refuse_bad_pair()
        tasks = await tasks_of(ports.benchmark, request.benchmark, request.selection)
        if not tasks:
            raise ConfigError(f"benchmark {request.benchmark!r}: the selection is empty", hint="see agentcompass tasks")
        ports.specs.check_all(tasks)
        return tasks

    async def _refuse_unready(self) -> None:
        if needs_sandbox(self._ports.harness, self._ports.benchmark):
            await refuse_unready(self._ports.environment, self._request.environment)

    def _refuse_bad_pair(self) -> None:
        """A harness that hands on a model that is none, or with a limit on a cost that nobody knows."""
        request, model = self._request, self._ports.model
        if self._ports.harness.exposes_model() and request.model.name == NO_MODEL:
            message = f"harness {request.harness!r} is to expose the model, and the model named is {NO_MODEL!r}"
            raise ConfigError(message, hint="name a model, or leave expose_model out")
        if model is not None and request.harness_params.get("cost_limit") and model.price is None:
            hint = f"set model.params.prices for {model.name!r}, or leave cost_limit out"
            raise ConfigError("cost_limit needs the model's price, which is not known", hint=hint)

    def _take_up(self, stored: Iterator[tuple[AttemptKey, AttemptRecord]], tasks: Sequence[Task]) -> int:
        """Count what is stored of the selection: how many have a score; any other is a try of the attempt to come."""
        categories = {task.id: task.category for task in tasks}
        self._tally = Tally(len(tasks), self._request.k)
        kept = 0
        for key, record in stored:
            if key.task_id not in categories or key.attempt > self._request.k:
                continue
            self._tally.add(key, categories[key.task_id], record)
            if record.status in GRADED:
                kept += 1
            else:
                self._earlier[key] = (*record.tries, *as_tries(record))
        return kept

    async def _run_all(self, tasks: Sequence[Task], kept: int) -> None:
        request, selected = self._request, len(tasks) * self._request.k
        title = f"{request.benchmark} / {request.harness} / {request.model.name} / {request.environment}"
        self._emit(
            RunStarted(
                run_name=request.run_name,
                run_id=request.run_id,
                title=title,
                selected=selected,
                kept=kept,
                folder=str(self._ports.folder),
                accuracy=self._tally.accuracy_graded(),
                spent=self._tally.spent(),
            )
        )
        if kept < selected:
            self._warn_of_another_address()
        plan = planned(tasks, request.k, self._tally.has_graded)
        runner = AttemptRunner(self._attempt_ports())
        try:
            async with self._swept(selected - kept), asyncio.TaskGroup() as group:
                for _ in range(min(request.task_concurrency, selected - kept)):
                    self._workers.append(group.create_task(self._work(plan, runner)))
        except BaseExceptionGroup as exc:  # several workers may fail alike, of one full disk
            raise exc.exceptions[0] from None

    def _warn_of_another_address(self) -> None:
        """It is no part of the identity, but another model may answer there by the same name."""
        ports, endpoint = self._ports, self._request.model
        if ports.model is None and not ports.harness.exposes_model():
            return
        with reading_begins():
            request = (read_run_file(ports.folder / RUN_INFO) or {}).get("request")
        stored = request.get("model") if isinstance(request, dict) else None
        now = ports.redactor.value(endpoint.base_url)
        if isinstance(stored, dict) and stored.get("base_url", now) != now:
            log.warning("model.address_changed", model=endpoint.name, stored=stored["base_url"], now=now)

    def _swept(self, left: int) -> AbstractAsyncContextManager[None]:
        needed = left and needs_sandbox(self._ports.harness, self._ports.benchmark)
        return dead_runs_swept(self._ports.environment) if needed else nullcontext()

    async def _work(self, plan: Iterator[tuple[Task, AttemptKey]], runner: AttemptRunner) -> None:
        while not self._interrupts.soft and (item := next(plan, None)) is not None:
            task, key = item
            await runner.run(task, key, self._earlier.pop(key, ()))

    def _attempt_ports(self) -> AttemptPorts:
        request, ports = self._request, self._ports
        return AttemptPorts(
            run_id=request.run_id,
            host=this_host(),
            process=this_process(),
            environment=ports.environment,
            harness=ports.harness,
            model=ports.model,
            endpoint=request.model,
            benchmark=ports.benchmark,
            store=ports.store,
            spec_for=ports.specs,
            emit=self._emit,
            finish=self._finish,
            is_ending=lambda: self._interrupts.soft,
            max_retries=request.max_retries,
        )

    async def _finish(self, task: Task, key: AttemptKey, record: AttemptRecord) -> None:
        record = record.model_copy(update={"error": self._ports.redactor.text(record.error)})
        await self._ports.store.save_attempt(key, task.category, record)
        self._tally.add(key, task.category, record)
        accuracy, spent = self._tally.accuracy_graded(), self._tally.spent()
        self._emit(AttemptEnded(key=key, record=record, accuracy=accuracy, spent=spent))

    def _on_soft(self, reason: str) -> None:
        self._emit(RunInterrupted(hard=False, reason=reason))

    def _on_hard(self, reason: str) -> None:
        self._emit(RunInterrupted(hard=True, reason=reason))
        for worker in self._workers:
            worker.cancel()

    def _emit(self, event: Event) -> None:
        """Show it. A display that breaks is an event, once for each kind of what it could not show."""
        kind = type(event).__name__
        try:
            with plugin_border(AgentCompassError):
                self._ports.progress.on(event)
        except AgentCompassError as exc:
            if kind not in self._not_shown:
                self._not_shown.add(kind)
                log.warning("progress.failed", kind=kind, error=str(exc), exc_info=exc)

    def _info(self, tasks: Sequence[Task]) -> RunInfo:
        request, ports = self._request, self._ports
        return RunInfo(
            run_name=request.run_name,
            run_id=request.run_id,
            identity=identity(request, ports.harness, ports.benchmark, tasks, ports.parameters),
            request=request.model_dump(mode="json"),
            versions=versions(),
            dataset=dict(ports.benchmark.dataset()),
            tasks=len(tasks),
            host=this_host(),
            started_at=self._started_at,
        )

    def _summary(self) -> RunSummary:
        request = self._request
        return self._tally.summary(
            run_name=request.run_name,
            run_id=request.run_id,
            benchmark=request.benchmark,
            harness=request.harness,
            model=request.model.name,
            environment=request.environment,
            started_at=self._started_at,
            ended_at=now_iso(),
            interrupted=self._interrupts.soft,
        )
