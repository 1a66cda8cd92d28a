"""One JSON object an event, for machines."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TextIO

from ...domain.events import Event, RunEnded
from .writer import LineWriter

LARGE_FIELDS = {"record": {"extra", "final_answer"}}
"""Left out: they are in the task's file, and may be megabytes."""


class JsonLinesDisplay:
    """`{"type": "attempt_ended", "time": ..., ...the event's fields}`, one a line; other lines as `{"type": "log"}`."""

    def __init__(self, stream: TextIO, *, redact: Callable[[str], str] = str) -> None:
        self._writer = LineWriter(stream)
        self._redact = redact

    def on(self, event: Event) -> None:
        """Write the event."""
        fields = event.model_dump(exclude=LARGE_FIELDS)
        self._write(_snake(type(event).__name__), fields)
        if isinstance(event, RunEnded):
            self._writer.finish()

    def print_line(self, text: str) -> None:
        """Write `text` as an object of its own, so that every line stays JSON."""
        self._write("log", {"text": text})

    def _write(self, kind: str, fields: dict[str, Any]) -> None:
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        redacted = _redacted({"type": kind, "time": time, **fields}, self._redact)
        self._writer.line(json.dumps(redacted))


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def _redacted(value: Any, redact: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {redact(str(key)): _redacted(item, redact) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted(item, redact) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if value is None or isinstance(value, bool | int | float):
        return value
    return redact(str(value))
