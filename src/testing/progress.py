"""What every progress display promises: whatever happens in a run, and to its stream, it never raises."""

import io
from typing import TextIO

from ..domain.attempt import AttemptKey, AttemptRecord, Failure, Stage, Status
from ..domain.events import (
    AttemptEnded,
    AttemptRetried,
    Event,
    RunEnded,
    RunInterrupted,
    RunStarted,
    StageEntered,
)
from ..domain.model import Usage
from ..domain.ports import Progress
from ..domain.run import Interval, Rate, Spent

AWKWARD_TASK = "odd/[bold]id\x1b[2J\udc80 中文"
"""Markup, a terminal command, a lone surrogate, wide characters."""
_TIME = "2026-01-01T00:00:00Z"


def attempt_ended(
    task_id: str, *, attempt: int = 1, correct: bool = True, error: str = "", spent: Spent | None = None
) -> AttemptEnded:
    """The event of an attempt that was graded, or that ended in `error`; `spent` is its own unless it is given."""
    failure = Failure(stage=Stage.START, kind="SandboxLost", elapsed_s=1.5, transient=True) if error else None
    record = AttemptRecord(
        status=Status.RUN_ERROR if error else Status.COMPLETED,
        correct=correct and not error,
        score=None if error else float(correct),
        error=error,
        failure=failure,
        usage=Usage(input_tokens=1000, output_tokens=100, cost_usd=0.25),
        started_at=_TIME,
        ended_at=_TIME,
    )
    accuracy = Rate(correct=1, total=2, value=0.5, interval=Interval(low=0.1, high=0.9))
    key = AttemptKey(task_id=task_id, attempt=attempt)
    return AttemptEnded(key=key, record=record, accuracy=accuracy, spent=spent or Spent(usage=record.usage))


def run_started(selected: int, *, kept: int = 0) -> RunStarted:
    """The first event of a run."""
    title = "benchmark / harness / model / environment"
    return RunStarted(run_name="name", run_id="id", title=title, selected=selected, kept=kept, folder="results/name/id")


def every_event(task_id: str = AWKWARD_TASK) -> list[Event]:
    """A run in which everything happens once."""
    key = AttemptKey(task_id=task_id, attempt=1)
    return [
        run_started(3),
        *(StageEntered(key=key, stage=stage, try_number=1) for stage in Stage),
        AttemptRetried(key=key, try_number=1, error="the sandbox\ndied"),
        StageEntered(key=key, stage=Stage.START, try_number=2),
        attempt_ended(task_id, error="the sandbox died again"),
        attempt_ended("other", correct=False),
        RunInterrupted(hard=False, reason="interrupted"),
        RunInterrupted(hard=True, reason="interrupted again"),
        RunEnded(summary=None, folder="results/name/id"),
    ]


class BrokenPipe(io.StringIO):
    """A stream whose reader has gone."""

    def write(self, text: str) -> int:
        """Raise as a broken pipe does."""
        raise BrokenPipeError(32, "Broken pipe")


def closed_stream() -> TextIO:
    """A stream that was closed."""
    stream = io.StringIO()
    stream.close()
    return stream


class ProgressContract:
    """Subclass it and define `make(stream)`, which returns the display; pytest runs the promises over it."""

    def make(self, stream: TextIO) -> Progress:
        """The display under test, writing to `stream`."""
        raise NotImplementedError

    def test_shows_a_whole_run_without_raising(self) -> None:
        """Every kind of event, with awkward text in it."""
        stream = io.StringIO()
        display = self.make(stream)
        for event in every_event():
            display.on(event)

        assert "\x1b[2J" not in stream.getvalue()

    def test_survives_a_reader_that_has_gone(self) -> None:
        """A broken pipe ends the showing, not the run."""
        stream = BrokenPipe()
        display = self.make(stream)
        for event in every_event():
            display.on(event)

        assert stream.getvalue() == ""

    def test_survives_a_stream_that_is_closed(self) -> None:
        """So does a closed stderr."""
        stream = closed_stream()
        display = self.make(stream)
        for event in every_event():
            display.on(event)

        assert stream.closed

    def test_bears_the_end_of_an_attempt_that_never_began(self) -> None:
        """As when a run is resumed or cut."""
        stream = io.StringIO()
        display = self.make(stream)
        display.on(run_started(1))
        display.on(attempt_ended("never-began"))
        display.on(RunEnded(summary=None, folder="results/name/id"))

        assert "Traceback" not in stream.getvalue()
