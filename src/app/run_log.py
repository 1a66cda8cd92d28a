"""The run's log follows the run: attached while it lasts, with a line for each thing that happens in it."""

from pathlib import Path
from typing import Any

import structlog

from ..domain.attempt import AttemptKey
from ..domain.events import AttemptEnded, AttemptRetried, Event, RunEnded, RunInterrupted, RunStarted, StageEntered
from ..domain.ports import Progress
from .logs import Logs

log = structlog.get_logger()


class LoggedProgress:
    """A display, with run.log attached from RunStarted to RunEnded."""

    def __init__(self, logs: Logs, progress: Progress) -> None:
        self._logs, self._progress = logs, progress

    def on(self, event: Event) -> None:
        """Log the event, and show it."""
        if isinstance(event, RunStarted):
            self._logs.attach_run_log(Path(event.folder) / "run.log")
        _note(event)
        self._progress.on(event)
        if isinstance(event, RunEnded):
            self._logs.detach_run_log()


def _note(event: Event) -> None:
    if isinstance(event, StageEntered):
        log.debug("stage.entered", **_key(event.key), stage=event.stage.value, try_number=event.try_number)
    elif isinstance(event, AttemptRetried):
        log.info("attempt.retried", **_key(event.key), try_number=event.try_number, error=event.error)
    elif isinstance(event, AttemptEnded):
        log.info("attempt.ended", **_key(event.key), **_outcome(event))
    elif isinstance(event, RunStarted):
        log.info("run.started", title=event.title, selected=event.selected, kept=event.kept)
    elif isinstance(event, RunInterrupted):
        log.info("run.interrupted", hard=event.hard, reason=event.reason)
    elif isinstance(event, RunEnded):
        log.info("run.ended", **(event.summary.counts.model_dump() if event.summary else {"broke": True}))


def _key(key: AttemptKey) -> dict[str, Any]:
    return {"task_id": key.task_id, "attempt": key.attempt}


def _outcome(event: AttemptEnded) -> dict[str, Any]:
    record = event.record
    return {
        "status": record.status.value,
        "correct": record.correct,
        "score": record.score,
        "exit_reason": record.exit_reason.value if record.exit_reason else None,
        "error": record.error,
        "total_s": record.timings.get("total"),
    }
