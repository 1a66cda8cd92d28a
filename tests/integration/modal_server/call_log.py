"""What was called, when, with what."""

import time
from collections import Counter
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

MAX_TEXT = 2000
MAX_CALLS = 100_000


class CallLog:
    """Calls in order of arrival, each a JSON-able mapping."""

    def __init__(self) -> None:
        self._calls: list[dict[str, Any]] = []

    def clear(self) -> None:
        self._calls.clear()

    def begin(self, method: str, request: Message | None, headers: dict[str, str]) -> dict[str, Any]:
        """Add a call; `status` and `duration_s` of the result are filled in when it ends."""
        call = {
            "method": method,
            "time": time.time(),
            "request": _readable(request),
            "headers": headers,
            "status": "RUNNING",
            "duration_s": None,
        }
        if len(self._calls) < MAX_CALLS:
            self._calls.append(call)
        return call

    def end(self, call: dict[str, Any], status: str) -> None:
        call["status"] = status
        call["duration_s"] = time.time() - call["time"]

    def calls(self, method: str | None = None) -> list[dict[str, Any]]:
        return [call for call in self._calls if method in (None, call["method"])]

    def counts(self) -> dict[str, int]:
        return dict(Counter(call["method"] for call in self._calls))


def _readable(request: Message | None) -> dict[str, Any]:
    if request is None:
        return {}
    fields = MessageToDict(request, preserving_proto_field_name=True)
    return {name: _shortened(value) for name, value in fields.items()}


def _shortened(value: Any) -> Any:
    if isinstance(value, str) and len(value) > MAX_TEXT:
        return f"{value[:MAX_TEXT]}... ({len(value)} characters)"
    if isinstance(value, dict):
        return {name: _shortened(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_shortened(item) for item in value]
    return value
