"""From any value to strict JSON: nothing is refused, nothing secret is written."""

import dataclasses
import json
import math
import re
from collections.abc import Iterable, Mapping
from datetime import date, time
from enum import Enum

from pydantic import BaseModel, JsonValue, SecretStr

from ...domain.redaction import MASK, Redactor

_MAX_DEPTH = 100
_MAX_INT_BITS = 4096
"""Below Python's limit of 4300 decimal digits, and more than any number that is one."""
TOO_DEEP = f"<nested deeper than {_MAX_DEPTH} levels>"
_LINE_BREAKS = re.compile("[\u0085\u2028\u2029]")


def json_bytes(value: JsonValue, *, indent: int | None = 2) -> bytes:
    """Strict JSON in UTF-8, one newline at its end; lone surrogates are escaped and load as they were.

    Without `indent` it is one line, also for readers that take U+2028 for the end of one.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    if indent is None:
        text = _LINE_BREAKS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    return (
        text.encode("utf-8", "backslashreplace") + b"\n"
    )  # a surrogate occurs in strings only: "\udc80" is its escape


def stored_form(value: object, redactor: Redactor) -> JsonValue:
    """`value` as it is stored: models field by field, their texts redacted; anything else as `json_safe`, redacted.

    A model's own field names and enum values are structure and never masked.
    """
    if isinstance(value, BaseModel):
        return {name: stored_form(item, redactor) for name, item in value.__dict__.items()}
    if isinstance(value, Enum):
        return json_safe(value.value)
    if isinstance(value, tuple):
        return [stored_form(item, redactor) for item in value]
    return redactor.value(json_safe(value))


def json_safe(value: object, depth: int = 0) -> JsonValue:
    """`value` in terms of strict JSON; what JSON has is unchanged, all else becomes what a reader can still use.

    NaN and infinities: "NaN", "Infinity", "-Infinity". Numbers of more than 4096 bits: their hex digits as text.
    Paths, dates: text. Enums: their value. Bytes: text, what is not UTF-8 as `\\xNN`. Secrets: `***`. Tuples, sets
    (sorted): lists. Models, dataclasses: mappings. Keys that are not text: their text, numbered where equal. Nesting
    beyond 100 levels, so also cycles: a note. Anything else: its repr.
    """
    if value is None or value is True or value is False or type(value) is str:
        return value
    if depth > _MAX_DEPTH:
        return TOO_DEEP
    if isinstance(value, Mapping):
        return _mapping(value.items(), depth)
    if isinstance(value, list | tuple | set | frozenset):
        return _items(value, depth)
    if isinstance(value, int | float):
        return _number(value)
    return _object(value, depth)


def _number(value: float) -> JsonValue:
    if isinstance(value, Enum):
        return json_safe(value.value)
    if isinstance(value, int):
        return int(value) if value.bit_length() <= _MAX_INT_BITS else hex(value)
    if math.isfinite(value):
        return float(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _items(values: Iterable[object], depth: int) -> JsonValue:
    items = [json_safe(item, depth + 1) for item in values]
    if isinstance(values, set | frozenset):
        items.sort(key=lambda item: json.dumps(item, sort_keys=True))
    return items


def _mapping(pairs: Iterable[tuple[object, object]], depth: int) -> JsonValue:
    result: dict[str, JsonValue] = {}
    for key, item in pairs:
        name = _key(key)
        number, unused = 1, name
        while unused in result:
            number += 1
            unused = f"{name}#{number}"
        result[unused] = json_safe(item, depth + 1)
    return result


def _key(key: object) -> str:
    if type(key) is str:
        return key
    safe = json_safe(key)
    return safe if isinstance(safe, str) else json.dumps(safe, ensure_ascii=False)


def _object(value: object, depth: int) -> JsonValue:
    if isinstance(value, Enum):
        return json_safe(value.value, depth + 1)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, SecretStr):
        return MASK
    if isinstance(value, BaseModel):
        return _mapping(value.__dict__.items(), depth)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _mapping(((field.name, getattr(value, field.name, None)) for field in dataclasses.fields(value)), depth)
    return _described(value)


def _described(value: object) -> str:
    try:
        return str(value) if hasattr(value, "__fspath__") else repr(value)
    except Exception as exc:  # noqa: BLE001 - code of a plug-in's object; a result must not be lost for it
        return f"<{type(value).__name__} whose repr raised {type(exc).__name__}>"
