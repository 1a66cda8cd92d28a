"""What a display knows of a run: counts, who is running, sums; of bounded size whatever the number of attempts."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from ...domain.attempt import AttemptKey, Stage, Status
from ...domain.events import AttemptEnded, Event, RunStarted, StageEntered
from ...domain.run import Rate, Spent

Clock = Callable[[], float]


@dataclass(slots=True)
class Running:
    """An attempt at work: its stage, its try, and when (by the tally's clock) it began."""

    stage: Stage
    try_number: int
    since: float


class Tally:
    """The sum of the events so far. Memory grows with the attempts that run at once, not with those that have ended."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._started = clock()
        self.selected = 0
        self.kept = 0
        self.ended = 0
        self.errors = 0
        self.cancelled = 0
        self.accuracy: Rate | None = None
        self.spent = Spent()
        self.running: dict[AttemptKey, Running] = {}

    def on(self, event: Event) -> None:
        """Count `event`."""
        if isinstance(event, RunStarted):
            self._started = self._clock()
            self.selected, self.kept = event.selected, event.kept
            self.accuracy, self.spent = event.accuracy, event.spent
        elif isinstance(event, StageEntered):
            self._enter(event)
        elif isinstance(event, AttemptEnded):
            self._end(event)

    @property
    def done(self) -> int:
        """Attempts that are stored, those of an earlier start included."""
        return self.kept + self.ended

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run started."""
        return self._clock() - self._started

    @property
    def eta_s(self) -> float | None:
        """Seconds that the rest takes at this run's pace so far; None before the first attempt has ended."""
        if not self.ended:
            return None
        return max(self.selected - self.done, 0) * self.elapsed_s / self.ended

    def age_s(self, running: Running) -> float:
        """Seconds since that attempt began."""
        return self._clock() - running.since

    def _enter(self, event: StageEntered) -> None:
        running = self.running.get(event.key)
        if running is None:
            self.running[event.key] = Running(event.stage, event.try_number, self._clock())
        else:
            running.stage, running.try_number = event.stage, event.try_number

    def _end(self, event: AttemptEnded) -> None:
        self.running.pop(event.key, None)
        self.ended += 1
        self.accuracy, self.spent = event.accuracy, event.spent
        self.errors += event.record.status in (Status.RUN_ERROR, Status.EVAL_ERROR)
        self.cancelled += event.record.status is Status.CANCELLED
