"""One attempt of one task, to a stored record; tried again after a transient error."""

import asyncio
from collections.abc import Sequence

from structlog.contextvars import bound_contextvars

from ..adapters.support.cleanup import finished_despite_cancel
from ..domain.attempt import AttemptKey, AttemptRecord, EarlierTry, Status
from ..domain.events import AttemptRetried
from ..domain.task import GradingMode, Task
from .attempt_try import MAX_RETRY_WAIT_S, AttemptPorts, AttemptTry

SAVE_LIMIT_S = 360.0
"""Above a store's own limit for one write, which says what was not written."""


class AttemptRunner:
    """Runs attempts; never raises for what went wrong in one, only for our own bugs and a store that cannot write."""

    def __init__(self, ports: AttemptPorts) -> None:
        self._ports = ports

    async def run(self, task: Task, key: AttemptKey, earlier: Sequence[EarlierTry] = ()) -> None:
        """Run one attempt to a stored record; `earlier` are the tries of former starts of the run.

        Cancelled, it is stored as `cancelled`, unless it had a verdict by then or waited to be tried again, and the
        cancellation is passed on. When the run is ending it is not tried again.
        """
        tries = list(earlier)
        with bound_contextvars(run_id=self._ports.run_id, task_id=task.id, attempt=key.attempt):
            for number in range(1, self._ports.max_retries + 2):
                current = AttemptTry(self._ports, task, key, number)
                try:
                    record = await current.run()
                except asyncio.CancelledError:
                    await self._finish(task, key, current.cancelled(), tries)
                    raise
                if number > self._ports.max_retries or not self._may_try_again(record):
                    break
                self._ports.emit(AttemptRetried(key=key, try_number=number, error=record.error))
                try:
                    await self._ports.sleep(min(2.0**number, MAX_RETRY_WAIT_S))
                except asyncio.CancelledError:
                    await self._finish(task, key, record, tries)
                    raise
                if self._ports.is_ending():
                    break
                tries += [*record.tries, *as_tries(record)]
            await self._finish(task, key, record, tries)

    def _may_try_again(self, record: AttemptRecord) -> bool:
        """Not where a submission is kept that is graded apart: that has been tried again already, without the agent."""
        graded_apart = self._ports.benchmark.grading is not GradingMode.SAME
        if self._ports.is_ending():
            return False
        if record.failure is None or (record.status is Status.EVAL_ERROR and graded_apart):
            return False
        return record.failure.transient

    async def _finish(self, task: Task, key: AttemptKey, record: AttemptRecord, tries: list[EarlierTry]) -> None:
        stored = self._ports.finish(task, key, record.model_copy(update={"tries": (*tries, *record.tries)}))
        await finished_despite_cancel(stored, SAVE_LIMIT_S)


def as_tries(record: AttemptRecord) -> list[EarlierTry]:
    """The record of a try that failed, as one of its successor's `tries`."""
    if record.failure is None:
        return []
    return [
        EarlierTry(
            error=record.error,
            failure=record.failure,
            started_at=record.started_at,
            ended_at=record.ended_at,
            usage=record.usage,
        )
    ]
