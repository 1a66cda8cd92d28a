"""One line a milestone, for log files and pipes; the more attempts, the fewer lines each."""

import time
from collections.abc import Callable
from typing import TextIO

from ...domain.attempt import Status
from ...domain.events import AttemptEnded, Event, RunEnded, RunStarted, StageEntered
from ...domain.one_line import cut
from .tally import Clock, Tally
from .wording import MAX_CHARS, duration, label, outcome, score, state, warning
from .writer import LineWriter

STAGES_UP_TO = 4
"""Runs of more attempts show no line a stage."""
ATTEMPTS_UP_TO = 100
"""Runs of more attempts show errors, and the state once every hundredth of the way or every minute."""
STATE_EVERY_S = 60.0
WARNINGS_PER_S = 2.0


class PlainDisplay:
    """Lines of text."""

    def __init__(self, stream: TextIO, *, redact: Callable[[str], str] = str, clock: Clock = time.monotonic) -> None:
        self._writer = LineWriter(stream)
        self._redact = redact
        self._tally = Tally(clock)
        self._clock = clock
        self._begun = False
        self._state_at, self._state_done = clock(), 0
        self._warnings_left, self._warned_at, self._withheld = 10.0, clock(), 0

    def on(self, event: Event) -> None:
        """Show the event, or count it for a later line."""
        self._tally.on(event)
        if isinstance(event, RunStarted):
            self._begin(event)
        elif isinstance(event, StageEntered):
            self._stage(event)
        elif isinstance(event, AttemptEnded):
            self._attempt(event)
        elif isinstance(event, RunEnded):
            self._end(event)
        elif text := warning(event):
            self._warn(text)

    def print_line(self, text: str) -> None:
        """Write the line."""
        self._writer.line(self._redact(text))

    def _begin(self, event: RunStarted) -> None:
        self._begun = True
        kept = f", {event.kept} of them done before ({score(event.accuracy)})" if event.kept else ""
        self.print_line(f"{event.title}: {event.selected} attempts{kept}; results in {event.folder}")
        self._state_at, self._state_done = self._clock(), event.kept

    def _stage(self, event: StageEntered) -> None:
        if self._tally.selected - self._tally.kept <= STAGES_UP_TO:
            again = f" (try {event.try_number})" if event.try_number > 1 else ""
            self.print_line(f"{label(event.key)}: {event.stage}{again}")
        elif self._clock() - self._state_at >= STATE_EVERY_S:
            self._show_state()

    def _attempt(self, event: AttemptEnded) -> None:
        line = cut(self._redact(f"{label(event.key)}: {outcome(event.record)}"), MAX_CHARS)
        if self._tally.selected - self._tally.kept <= ATTEMPTS_UP_TO:
            self.print_line(f"{line} · {state(self._tally)}")
            self._state_at = self._clock()
            return
        if event.record.status is not Status.COMPLETED:
            self._warn(line)
        farther = self._tally.done - self._state_done >= self._tally.selected / 100
        if farther or self._clock() - self._state_at >= STATE_EVERY_S:
            self._show_state()

    def _show_state(self) -> None:
        eta = self._tally.eta_s
        left = f" · about {duration(eta)} left" if eta is not None else ""
        self.print_line(f"{state(self._tally)}{left} · {len(self._tally.running)} running")
        self._state_at, self._state_done = self._clock(), self._tally.done

    def _warn(self, text: str) -> None:
        """Ten at once, then two a second; the rest is counted, and told with the next that is shown."""
        now = self._clock()
        self._warnings_left = min(10.0, self._warnings_left + (now - self._warned_at) * WARNINGS_PER_S)
        self._warned_at = now
        if self._warnings_left < 1:
            self._withheld += 1
            return
        self._warnings_left -= 1
        self._tell_withheld()
        self.print_line(cut(self._redact(text), MAX_CHARS))

    def _tell_withheld(self) -> None:
        if self._withheld:
            self.print_line(f"({self._withheld} more warnings not shown, see run.log)")
            self._withheld = 0

    def _end(self, event: RunEnded) -> None:
        self._tell_withheld()
        if self._begun:
            self.print_line(f"{'ended' if event.summary else 'broken off'}: {state(self._tally)} · {event.folder}")
        self._writer.finish()
