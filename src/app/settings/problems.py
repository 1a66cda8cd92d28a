"""What is wrong with settings, each fault in one line: where, which key, what is expected, the nearest valid key."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, SecretStr, ValidationError

from ...domain.errors import ConfigError
from ...domain.one_line import printable
from ...domain.suggest import did_you_mean
from .provenance import KeyPath, Origins, dotted, origin_of
from .shape import child, known_keys

_OF_NUMBERS = ("at least", "at most", "more than", "less than", "number")
"""Where one of these is expected, the number given is no secret and is shown."""
_REWORDED = (
    ("Input should be ", "expected "),
    ("expected None", "expected null"),
    ("greater than or equal to", "at least"),
    ("less than or equal to", "at most"),
    ("greater than", "more than"),
    ("Value error, ", ""),
    ("Assertion failed, ", ""),
    ("a valid array", "a list"),
    ("a valid dictionary", "a mapping"),
    ("an object", "a mapping"),
    ("a valid string", "text"),
    ("a valid integer", "a whole number"),
    ("a valid number", "a number"),
    ("a valid boolean", "true or false"),
)
UNKNOWN = "unknown key"
SHARED_SECRET = (
    "a secret in a file of the repository's config folder; "
    "use an environment variable, or a private file given with --config"
)
_PLAIN = (str, int, float, SecretStr, type(None))
_KINDS: Mapping[type, str] = {
    type(None): "null",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "a mapping",
}


@dataclass(frozen=True)
class Problem:
    """A fault at `path`, set in `where` (a file and line, a variable, a flag)."""

    where: str
    path: KeyPath
    text: str

    def line(self) -> str:
        """`where: path: text`, on one line."""
        return ": ".join(part for part in (printable(self.where), dotted(self.path), printable(self.text)) if part)


def problem_at(path: KeyPath, origins: Origins, text: str) -> Problem:
    """The fault, set where the value at `path` (or what is around it) was."""
    origin = origin_of(origins, path)
    return Problem(origin.where if origin else "", path, text)


def refuse(problems: Sequence[Problem]) -> None:
    """Raise the first problem, if there is one, as a ConfigError that counts the rest."""
    if problems:
        more = len(problems) - 1
        hint = f"and {more} more" if more else ""
        raise ConfigError(problems[0].line(), hint=hint)


def validated(
    path: KeyPath, model: type[BaseModel], values: dict[str, Any], origins: Origins
) -> tuple[BaseModel | None, list[Problem]]:
    """`values` as an instance of `model`, strictly (no text for a number), or what is wrong with them."""
    unplain = [problem_at((*path, *below), origins, text) for below, text in _unplain(values, ())]
    if unplain:
        return None, unplain
    try:
        return model.model_validate_json(json.dumps(values, default=_revealed), strict=True), []
    except ValidationError as exc:
        return None, sorted(_problems(path, model, values, origins, exc), key=lambda each: UNKNOWN not in each.text)
    except Exception as exc:  # noqa: BLE001 - an adapter's own validators may raise anything
        return None, [problem_at(path, origins, f"its validation broke: {type(exc).__name__}: {exc}")]


def _problems(
    path: KeyPath, model: type[BaseModel], values: Any, origins: Origins, error: ValidationError
) -> Iterator[Problem]:
    texts: dict[KeyPath, list[str]] = {}
    for fault in error.errors(include_url=False, include_input=False, include_context=False):
        below = _existing(values, fault["loc"])
        if fault["type"] == "missing":
            texts[below] = [f"the key {fault['loc'][-1]!r} is missing in it"]
        else:
            texts.setdefault(below, []).append(_reworded(fault["type"], fault["msg"], model, below))
    for below, alternatives in texts.items():
        expected = [text.removeprefix("expected ") for text in dict.fromkeys(alternatives)]
        text = alternatives[0] if len(expected) == 1 else f"expected {', or '.join(expected)}"
        yield problem_at((*path, *below), origins, text + _given(values, below, text))


def _existing(values: Any, loc: tuple[str | int, ...]) -> KeyPath:
    """The part of a location that names keys given; pydantic adds the names of a union's alternatives."""
    path: list[str | int] = []
    for part in loc:
        if isinstance(values, dict) and part in values or isinstance(values, list) and isinstance(part, int):
            values = values[part]  # type: ignore[index] # the key is of the container's kind, see above
            path.append(part)
    return tuple(path)


def _reworded(kind: str, message: str, model: Any, path: KeyPath) -> str:
    if kind == "extra_forbidden" and path:
        annotation: Any = model
        for key in path[:-1]:
            annotation = child(annotation, key)
        return f"{UNKNOWN}; {did_you_mean(str(path[-1]), known_keys(annotation))}"
    if kind == "json_invalid":
        return "expected text that is valid Unicode"
    for ours, plain in _REWORDED:
        message = message.replace(ours, plain)
    return message


def _given(values: Any, path: KeyPath, text: str) -> str:
    if not text.startswith("expected "):
        return ""
    for key in path:
        values = values[key]
    if isinstance(values, int | float) and not isinstance(values, bool) and any(word in text for word in _OF_NUMBERS):
        return f", not {values}"
    kind = _KINDS.get(type(values), "")
    return f", not {kind}" if kind and kind not in text and not text.startswith("expected '") else ""


def _unplain(values: Any, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(values, dict | list):
        items = values.items() if isinstance(values, dict) else enumerate(values)
        for key, item in items:
            yield from _unplain(item, (*path, key))
    elif isinstance(values, float) and not math.isfinite(values):
        yield path, "not a finite number"
    elif not isinstance(values, _PLAIN):
        yield path, f"not a plain value: {type(values).__name__}"


def _revealed(value: SecretStr) -> str:
    return value.get_secret_value()
