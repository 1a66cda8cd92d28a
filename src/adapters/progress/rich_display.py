"""A live table on a terminal."""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TextIO, cast

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ...domain.attempt import Status
from ...domain.events import AttemptEnded, Event, RunEnded, RunStarted
from ...domain.one_line import cut
from .tally import Clock, Tally
from .wording import MAX_CHARS, cost, duration, label, outcome, score, state, tokens, warning
from .writer import QuietStream

REFRESH_S = 0.25
MAX_ROWS = 12
MAX_WAITING_LINES = 1000
STOP_LIMIT_S = 2.0


class RichDisplay:
    """Draws from a thread of its own, so that a stopped terminal never holds up the run."""

    def __init__(self, stream: TextIO, *, redact: Callable[[str], str] = str, clock: Clock = time.monotonic) -> None:
        self._console = Console(file=cast(TextIO, QuietStream(stream)), highlight=False, markup=False, emoji=False)
        self._redact = redact
        self._tally = Tally(clock)
        self._title = ""
        self._lines: deque[Text] = deque(maxlen=MAX_WAITING_LINES)
        self._lock = threading.RLock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def on(self, event: Event) -> None:
        """Take the event into the next drawing; RunStarted shows the table, RunEnded replaces it by one line."""
        with self._lock:
            self._tally.on(event)
            if notice := self._notice(event):
                self._lines.append(notice)
        if isinstance(event, RunStarted):
            self._begin(event)
        elif isinstance(event, RunEnded):
            self._end(event)

    def print_line(self, text: str) -> None:
        """Show the line above the table."""
        with self._lock:
            self._lines.append(Text(self._redact(text)))
        if self._thread is None or self._ended.is_set():
            self._print_waiting()

    def _notice(self, event: Event) -> Text | None:
        if isinstance(event, AttemptEnded):
            if event.record.status is Status.COMPLETED:
                return None
            return Text(cut(self._redact(f"{label(event.key)}: {outcome(event.record)}"), MAX_CHARS), style="red")
        text = warning(event)
        return Text(cut(self._redact(text), MAX_CHARS), style="yellow") if text else None

    def _begin(self, event: RunStarted) -> None:
        self._title = self._redact(event.title)
        self.print_line(f"{event.title} → {event.folder}")
        self._thread = threading.Thread(target=self._draw, name="progress-display", daemon=True)
        self._thread.start()

    def _end(self, event: RunEnded) -> None:
        if self._thread is None:
            return
        with self._lock:
            how = "ended" if event.summary else "broken off"
            self._lines.append(Text(self._redact(f"{how}: {state(self._tally)} · {event.folder}")))
        self._ended.set()
        self._thread.join(STOP_LIMIT_S)

    def _draw(self) -> None:
        with Live(
            get_renderable=self._view,
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        ) as live:
            while not self._ended.wait(REFRESH_S):
                self._print_waiting()
                live.refresh()
        self._print_waiting()

    def _print_waiting(self) -> None:
        with self._lock:
            lines = list(self._lines)
            self._lines.clear()
        if lines:
            self._console.print(Text("\n").join(lines), soft_wrap=True)

    def _view(self) -> RenderableType:
        with self._lock:
            return Group(self._header(), self._rows())

    def _header(self) -> RenderableType:
        tally = self._tally
        first = Table.grid(padding=(0, 2))
        bar = ProgressBar(total=max(tally.selected, 1), completed=tally.done, width=30)
        eta = "" if tally.eta_s is None else f"about {duration(tally.eta_s)} left"
        first.add_row(Text(f"{tally.done}/{tally.selected}"), bar, Text(duration(tally.elapsed_s)), Text(eta))
        second = Table.grid(padding=(0, 2))
        second.add_row(
            Text(score(tally.accuracy), style="bold"),
            Text(f"errors {tally.errors}", style="red" if tally.errors else ""),
            Text(f"tokens {tokens(tally.spent)}"),
            Text(f"cost {cost(tally.spent)}"),
        )
        return Group(Text(self._title, style="dim", no_wrap=True, overflow="ellipsis"), first, second)

    def _rows(self) -> RenderableType:
        """The attempts that have run longest, as many as fit."""
        table = Table.grid(padding=(0, 2))
        room = max(min(MAX_ROWS, self._console.size.height - 6), 1)
        for key, running in list(self._tally.running.items())[:room]:
            again = f"try {running.try_number}" if running.try_number > 1 else ""
            name = Text(label(key), no_wrap=True, overflow="ellipsis")
            table.add_row(name, Text(running.stage), Text(duration(self._tally.age_s(running))), Text(again))
        more = len(self._tally.running) - room
        return Group(table, Text(f"and {more} more running", style="dim")) if more > 0 else table
