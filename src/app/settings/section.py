"""One section of the settings: its layers merged and validated, its secrets wrapped."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, SecretStr

from ...domain.errors import ConfigError
from ...domain.merging import merged
from .problems import SHARED_SECRET, Problem, problem_at, validated
from .provenance import KeyPath, Layer, LayerKind, Origin, Origins, stacked
from .variables import VariableText, typed


@dataclass(frozen=True)
class Section:
    """One section of all layers. `defaults` (defaults.yaml) and `explicit` (above it) are the values as given."""

    path: KeyPath
    parameters: BaseModel = field(repr=False)
    defaults: dict[str, Any] = field(repr=False)
    explicit: dict[str, Any] = field(repr=False)
    origins: Origins = field(repr=False)

    @property
    def values(self) -> dict[str, Any]:
        """Both halves merged; secrets are SecretStr."""
        return merged(self.defaults, self.explicit)

    def origin(self, *keys: str | int) -> Origin | None:
        """Where the value at `keys` of this section comes from; None is the default of its model."""
        path = (*self.path, *keys)
        ends = range(len(path), len(self.path), -1)
        return next((self.origins[path[:end]] for end in ends if path[:end] in self.origins), None)


def read_section(
    path: KeyPath, layers: Sequence[Layer], model: type[BaseModel], *, skip: str = ""
) -> tuple[Section | None, list[Problem]]:
    """The section at `path`, or what is wrong with it; the key `skip` is read by itself elsewhere."""
    origins: dict[KeyPath, Origin] = {}
    parts: list[tuple[Layer, dict[str, Any]]] = []
    problems: list[Problem] = []
    for layer in layers:
        origins = stacked(origins, {key: origin for key, origin in layer.origins.items() if key[: len(path)] == path})
        try:
            parts.append((layer, _part(layer, path, model, skip)))
        except ConfigError as exc:
            problems.append(Problem("", (), str(exc)))
    problems = problems or _clashes(parts, path)
    if problems:
        return None, problems
    return _checked(path, model, parts, origins)


def _checked(
    path: KeyPath, model: type[BaseModel], parts: list[tuple[Layer, dict[str, Any]]], origins: Origins
) -> tuple[Section | None, list[Problem]]:
    halves: dict[bool, dict[str, Any]] = {True: {}, False: {}}
    for layer, part in parts:
        is_default = layer.kind is LayerKind.DEFAULTS
        halves[is_default] = merged(halves[is_default], part)
    parameters, problems = validated(path, model, merged(halves[True], halves[False]), origins)
    if parameters is None:
        return None, problems
    leaked = [problem for layer, part in parts if layer.shared for problem in _leaks(layer, path, part, parameters)]
    if leaked:
        return None, leaked
    defaults, explicit = (with_secrets(halves[is_default], parameters) for is_default in (True, False))
    return Section(path, parameters, defaults, explicit, origins), []


def part_of(values: Any, path: KeyPath) -> Any:
    """What nested mappings hold at `path`; {} where they hold nothing."""
    for key in path:
        values = values.get(key) if isinstance(values, dict) else None
    return {} if values is None else values


def with_secrets(values: Any, checked: Any) -> Any:
    """The plain `values`, each one that became a SecretStr in `checked` replaced by it."""
    if isinstance(checked, SecretStr):
        return checked if values is not None else None
    if isinstance(values, dict) and isinstance(checked, BaseModel | Mapping):
        return {key: with_secrets(item, _at(checked, key)) for key, item in values.items()}
    if isinstance(values, list) and isinstance(checked, list | tuple) and len(values) == len(checked):
        return [with_secrets(item, below) for item, below in zip(values, checked, strict=True)]
    return values


def secret_paths(values: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    """Where `values` hold a SecretStr."""
    if isinstance(values, SecretStr):
        yield path
    elif isinstance(values, dict | list):
        items = values.items() if isinstance(values, dict) else enumerate(values)
        for key, item in items:
            yield from secret_paths(item, (*path, key))


def _part(layer: Layer, path: KeyPath, model: type[BaseModel], skip: str) -> dict[str, Any]:
    part = part_of(layer.values, path)
    if isinstance(part, VariableText):
        part = typed(part, dict[str, Any], path)
    if not isinstance(part, dict):
        raise ConfigError(problem_at(path, layer.origins, "expected a mapping of settings").line())
    typed_part: dict[str, Any] = typed({key: item for key, item in part.items() if key != skip}, model, path)
    return typed_part


def _clashes(parts: list[tuple[Layer, dict[str, Any]]], path: KeyPath) -> list[Problem]:
    found: list[Problem] = []
    below: dict[str, Any] = {}
    for layer, part in parts:
        clashes = list(_mixed(below, part, path))
        found.extend(problem_at(at, layer.origins, text) for at, text in clashes)
        below = below if clashes else merged(below, part)
    return found


def _mixed(lower: Any, higher: Any, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(lower, dict) and isinstance(higher, dict):
        for key in lower.keys() & higher.keys():
            yield from _mixed(lower[key], higher[key], (*path, key))
    elif isinstance(lower, dict):
        yield path, "expected a mapping, as in the layer below"
    elif isinstance(higher, dict):
        yield path, "is a mapping here, but a plain value in the layer below"


def _leaks(layer: Layer, path: KeyPath, part: dict[str, Any], parameters: BaseModel) -> Iterator[Problem]:
    for below in secret_paths(with_secrets(part, parameters)):
        yield problem_at((*path, *below), layer.origins, SHARED_SECRET)


def _at(checked: BaseModel | Mapping[Any, Any], key: str) -> Any:
    if isinstance(checked, Mapping):
        return checked.get(key)
    for name, info in type(checked).model_fields.items():
        if key in (name, info.alias):
            return getattr(checked, name, None)
    return None
