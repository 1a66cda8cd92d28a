"""YAML and JSON text to plain values; duplicate keys, tags and endless documents are refused.

YAML is read by the core schema of version 1.2: `yes`, `no` and `on` are text, `1e3` is a number, keys are text.
"""

import json
import math
import re
from dataclasses import dataclass, field
from typing import Any, NoReturn

import yaml

try:
    from yaml import CSafeLoader as LibraryLoader
except ImportError:  # PyYAML was built without libyaml
    from yaml import SafeLoader as LibraryLoader  # type: ignore[assignment]

from ...domain.errors import ConfigError
from ...domain.one_line import printable
from .provenance import KeyPath, dotted

MAX_DEPTH = 40
MAX_NODES = 100_000
_TAG = "tag:yaml.org,2002:"
_REWORDED = (
    ("another document", "more than one document in it"),
    ("undefined alias", "text that begins with '*' must be quoted"),
    (r"'\t' that cannot start", "a tab where text begins; indent with spaces"),
    ("expected <block end>", "a line that does not fit those above it; check its indentation and its quotes"),
    ("mapping values are not allowed", "a ':' too many; check the indentation, and quote text that holds ': '"),
    ("unexpected end of stream", "a quoted text has no end"),
    ("could not find expected ':'", "a key without ': ' behind it"),
    ("special characters", "a control character"),
)
"""A phrase of PyYAML's message, and ours instead of the whole."""
_TOKEN = re.compile(r"'<([a-z ]+)>'")
_QUOTED = re.compile(r" '[^']{2,}'|(?<=tag )\S+")
"""What PyYAML quotes from the text, which may be part of a secret that begins with * or !."""
_DANGLING = re.compile(r",? but (found|got)$")


@dataclass(frozen=True)
class Parsed:
    """A document: its value, and the line (from 1) of each key and list item."""

    value: Any = field(repr=False)
    lines: dict[KeyPath, int]


def parse_yaml(text: str, where: str, *, is_own: bool = False) -> Parsed:
    """One YAML document of mappings, lists, text, numbers, true, false and null; empty is null.

    A file of our own is read ten times as fast, by libyaml, which has no good words for faults and no limit of depth.

    Raises:
        ConfigError: anything else, naming `where:line`.
    """
    loader = None
    try:
        loader = _OwnLoader(text) if is_own else _CoreLoader(text)
        node = loader.get_single_node()
        builder = _Builder(where)
        value = None if node is None else builder.build(node, ())
    except yaml.MarkedYAMLError as exc:
        line = exc.problem_mark.line + 1 if exc.problem_mark else 1
        raise ConfigError(f"{where}:{line}: broken YAML: {_told(exc.problem or 'cannot be read')}") from None
    except yaml.reader.ReaderError as exc:
        line = text.count("\n", 0, exc.position) + 1
        raise ConfigError(f"{where}:{line}: broken YAML: {_told(exc.reason)}") from exc
    except RecursionError as exc:
        raise ConfigError(f"{where}: nested too deeply") from exc
    finally:
        if loader is not None:
            loader.dispose()
    return Parsed(value, builder.lines)


def parse_json(text: str, where: str) -> Any:
    """One JSON value.

    Raises:
        ConfigError: broken, a key twice, NaN or Infinity, nested too deeply; naming `where`.
    """
    try:
        value = json.loads(
            text,
            object_pairs_hook=lambda pairs: _without_duplicates(pairs, where),
            parse_constant=lambda name: _refuse_number(where, name),
            parse_float=lambda number: _finite(number, where),
        )
    except json.JSONDecodeError as exc:
        place = f"line {exc.lineno} column {exc.colno}"
        raise ConfigError(f"{where}: not JSON: {exc.msg} ({place})", hint="as in '{\"limit\": 5}', or @file") from exc
    except RecursionError as exc:
        raise ConfigError(f"{where}: nested too deeply") from exc
    except ConfigError:
        raise
    except ValueError as exc:
        raise ConfigError(f"{where}: not JSON: a number is too long") from exc
    _check_depth(value, where)
    return value


def _told(problem: str) -> str:
    for phrase, ours in _REWORDED:
        if phrase in problem:
            return ours
    shown = _QUOTED.sub("", _TOKEN.sub(r"the \1", problem).replace("the stream end", "the end"))
    return printable(_DANGLING.sub("", shown))


_SCALARS = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
)
"""What is no text in the core schema: its tag, its form, and the characters that it may begin with."""


def _resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """As PyYAML keeps them: by first character."""
    found: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for name, form, beginnings in _SCALARS:
        resolver = (_TAG + name, re.compile(rf"(?:{form})\Z"))
        for beginning in beginnings:
            found.setdefault(beginning, []).append(resolver)
    return found


class _CoreLoader(yaml.SafeLoader):
    """Composes nodes whose tags follow the core schema."""

    yaml_implicit_resolvers = _resolvers()


class _OwnLoader(LibraryLoader):
    """The same, by libyaml."""

    yaml_implicit_resolvers = _CoreLoader.yaml_implicit_resolvers


class _Builder:
    def __init__(self, where: str) -> None:
        self.where = where
        self.lines: dict[KeyPath, int] = {}
        self.nodes = 0

    def build(self, node: yaml.Node, path: KeyPath) -> Any:
        self.nodes += 1
        if len(path) > MAX_DEPTH or self.nodes > MAX_NODES:
            self._refuse(node, path, "nested too deeply or too large")
        self.lines.setdefault(path, _line(node))
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            return [self.build(item, (*path, index)) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        return self._refuse_tag(node, path)

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._refuse(key_node, path, "a key must be plain text")
            key_path = (*path, key_node.value)
            if key_node.value in result:
                self._refuse(key_node, key_path, f"the same key again; first in line {self.lines[key_path]}")
            self.lines[key_path] = _line(key_node)
            result[key_node.value] = self.build(value_node, key_path)
        return result

    def _scalar(self, node: yaml.ScalarNode, path: KeyPath) -> Any:
        kind, text = node.tag.removeprefix(_TAG), node.value
        try:
            if kind == "int":
                return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
            if kind == "float":
                return _finite(text.replace(".", "", 1) if text.lower().endswith(("inf", "nan")) else text, self.where)
        except ConfigError:
            self._refuse(node, path, "not a finite number")
        except ValueError:
            self._refuse(node, path, "not a number, or too long a one")
        constants = {"null": None, "bool": text.lower() == "true", "str": text}
        if kind not in constants:
            self._refuse_tag(node, path)
        return constants[kind]

    def _refuse_tag(self, node: yaml.Node, path: KeyPath) -> NoReturn:
        if node.tag.startswith(_TAG):
            self._refuse(node, path, f"the tag !!{printable(node.tag.removeprefix(_TAG))} is not supported")
        self._refuse(node, path, "tags are not supported; quote text that begins with '!'")

    def _refuse(self, node: yaml.Node, path: KeyPath, why: str) -> NoReturn:
        place = f"{self.where}:{_line(node)}"
        raise ConfigError(f"{place}: {dotted(path[:MAX_DEPTH])}: {why}" if path else f"{place}: {why}")


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _without_duplicates(pairs: list[tuple[str, Any]], where: str) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ConfigError(f"{where}: {printable(key)}: the same key again")
        result[key] = value
    return result


def _refuse_number(where: str, name: str) -> NoReturn:
    raise ConfigError(f"{where}: {name} is not a finite number")


def _finite(text: str, where: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse_number(where, printable(text))


def _check_depth(value: Any, where: str) -> None:
    level, depth = [value], 0
    while level:
        if depth > MAX_DEPTH:
            raise ConfigError(f"{where}: nested too deeply")
        level = [child for item in level if isinstance(item, dict | list) for child in _children(item)]
        depth += 1


def _children(item: dict[str, Any] | list[Any]) -> list[Any]:
    return list(item.values()) if isinstance(item, dict) else item
