"""No display; only lines that somebody asks to be shown."""

from collections.abc import Callable
from typing import TextIO

from ...domain.events import Event
from .writer import QuietStream


class NoDisplay:
    """Shows no event."""

    def __init__(self, stream: TextIO, *, redact: Callable[[str], str] = str) -> None:
        self._stream = QuietStream(stream)
        self._redact = redact

    def on(self, event: Event) -> None:
        """Do nothing."""

    def print_line(self, text: str) -> None:
        """Write the line."""
        self._stream.write(f"{self._redact(text)}\n")
        self._stream.flush()
