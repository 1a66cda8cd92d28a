"""`run_info.json`: the run's identity as first started, and every start since."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from ...domain.errors import ConfigError
from ...domain.one_line import cut
from ...domain.redaction import Redactor
from ...domain.run import RunInfo
from .durable import UnreadableResult, read_json_object
from .serialising import stored_form

_SHOWN_DIFFERENCES = 8
_SHOWN_CHARS = 200
_PER_START = ("started_at", "ended_at", "host", "versions", "request")


def identity_digest(identity: JsonValue) -> str:
    """SHA-256 of an identity, whatever the order of its keys."""
    text = json.dumps(identity, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def read_run_file(path: Path) -> dict[str, Any] | None:
    """The stored document; None where there is none.

    Raises:
        UnreadableResult: it is not what this program writes.
        UnreachableResult: it cannot be read now.
    """
    try:
        document = read_json_object(path)
    except UnreadableResult as exc:
        if isinstance(exc.__cause__, FileNotFoundError):
            return None
        raise
    if not isinstance(document.get("identity"), dict):
        raise UnreadableResult("no identity in it")
    return document


def started(stored: Mapping[str, Any] | None, run: RunInfo, redactor: Redactor) -> dict[str, JsonValue]:
    """The document after one more start: first identity and first start are kept, the rest is of this start.

    Raises:
        ConfigError: the stored identity is another one.
    """
    fresh = stored_form(run, redactor)
    assert isinstance(fresh, dict)  # a model's form is a mapping
    start: JsonValue = {name: fresh[name] for name in _PER_START}
    if stored is None:
        return {**fresh, "starts": [start]}
    _refuse_another(stored["identity"], fresh["identity"], run)
    first = {name: stored[name] for name in ("identity", "started_at") if name in stored}
    earlier = stored.get("starts")
    return {**stored, **fresh, **first, "starts": [*(earlier if isinstance(earlier, list) else []), start]}


def ended(document: Mapping[str, JsonValue], ended_at: str) -> dict[str, JsonValue]:
    """The document with the end of its last start."""
    starts = document["starts"]
    assert isinstance(starts, list)
    assert isinstance(starts[-1], dict)
    return {**document, "ended_at": ended_at, "starts": [*starts[:-1], {**starts[-1], "ended_at": ended_at}]}


def _refuse_another(stored: Any, asked: JsonValue, run: RunInfo) -> None:
    differences = list(_differences(stored, asked, ""))
    if differences:
        shown = "; ".join(differences[:_SHOWN_DIFFERENCES])
        more = len(differences) - _SHOWN_DIFFERENCES
        rest = f"; and {more} more" if more > 0 else ""
        raise ConfigError(
            f"run {run.run_name}/{run.run_id} is stored with other settings: {shown}{rest}",
            hint="use another --run-id, or the stored settings",
        )


def _differences(stored: Any, asked: Any, where: str) -> Iterator[str]:
    if isinstance(stored, dict) and isinstance(asked, dict):
        for key in sorted(stored.keys() | asked.keys()):
            path = f"{where}.{key}" if where else key
            yield from _differences(stored.get(key, _NOT_SET), asked.get(key, _NOT_SET), path)
    elif stored != asked or isinstance(stored, bool) != isinstance(asked, bool):
        yield f"{where}: stored {_shown(stored)}, now {_shown(asked)}"


_NOT_SET = object()


def _shown(value: Any) -> str:
    if value is _NOT_SET:
        return "(not set)"
    return cut(json.dumps(value), _SHOWN_CHARS)
