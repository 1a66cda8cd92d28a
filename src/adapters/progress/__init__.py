"""The displays of a running run, chosen by name; each is imported only when it is used."""

import io
from collections.abc import Callable
from typing import Protocol, TextIO

from ...domain.errors import ConfigError
from ...domain.events import Event

NAMES = ("auto", "rich", "plain", "json", "none")
Redact = Callable[[str], str]


class Display(Protocol):
    """A `Progress` that also shows lines of text, so that log lines do not tear a live table."""

    def on(self, event: Event) -> None:
        """Show `event`; never raises, never blocks for long."""

    def print_line(self, text: str) -> None:
        """Show one line, before, during or after the run; never raises."""


def make_progress(name: str, stream: TextIO | None, *, redact: Redact = str) -> Display:
    """The display called `name` (one of NAMES), writing to `stream`; `redact` is applied to every text it shows.

    `auto` is `rich` on a terminal that can move its cursor, else `plain`. None, which is the stderr of a process that
    was started without one, shows nothing.

    Raises:
        ConfigError: no such display.
    """
    if stream is None:
        stream = io.StringIO()
        stream.close()
    if name == "auto":
        name = "rich" if _is_capable_terminal(stream) else "plain"
    if name == "rich":
        from .rich_display import RichDisplay

        return RichDisplay(stream, redact=redact)
    if name == "plain":
        from .plain import PlainDisplay

        return PlainDisplay(stream, redact=redact)
    if name == "json":
        from .json_lines import JsonLinesDisplay

        return JsonLinesDisplay(stream, redact=redact)
    if name == "none":
        from .none import NoDisplay

        return NoDisplay(stream, redact=redact)
    raise ConfigError(f"no progress display {name!r}", hint=f"use one of {', '.join(NAMES)}")


def _is_capable_terminal(stream: TextIO) -> bool:
    try:
        if not stream.isatty():
            return False
    except ValueError:  # closed
        return False
    from rich.console import Console

    return not Console(file=stream).is_dumb_terminal
