"""What `config show` and `config check` say."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr

from ...domain.errors import ConfigError
from ...domain.redaction import MASK, Redactor, url_secrets, variable_secrets
from ..catalog import Catalog, Kind, SdkMissing, parameters_of
from .loading import adapter_names, base_layers, layer_readers, protocol_of, run_section, section_model
from .models import ModelSettings, RunSettings
from .outline import outline_problems
from .provenance import KeyPath, Layer, LayerKind, Origin, dotted, origin_of
from .section import Section, part_of, read_section
from .variables import NAMED_SECTIONS, VariableText


@dataclass(frozen=True)
class Line:
    """One effective setting: its dotted key, its masked value, and where that comes from."""

    key: str
    value: Any
    layer: str
    where: str

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {"value": self.value, "layer": self.layer, "where": self.where}


@dataclass
class Report:
    """What a check found: `problems`, and `notes` on what could not be checked."""

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Read:
    path: tuple[str, ...]
    section: Section | None = None
    problems: Sequence[str] = ()
    missing: str = ""
    """Why the adapter is not installed whole."""
    broken: str = ""
    """Why it cannot be loaded otherwise."""


def shown(config: Sequence[Path], environ: Mapping[str, str], catalog: Catalog) -> list[Line]:
    """Every effective setting of every section; those of an adapter that cannot be loaded are masked altogether.

    Raises:
        ConfigError: the first thing wrong in any of them.
    """
    layers = base_layers(config, environ, catalog)
    lines: list[Line] = []
    for read in _read_all(layers, catalog):
        if read.problems:
            raise ConfigError(read.problems[0])
        lines.extend(_lines(read.section) if read.section else _masked_lines(read.path, layers))
    return lines


def check(config: Sequence[Path], environ: Mapping[str, str], catalog: Catalog) -> Report:
    """Everything that is wrong with the settings, for all adapters that can be loaded."""
    problems: list[str] = []
    notes: list[str] = []
    layers: list[Layer] = []
    for read_layer in layer_readers(config, environ, catalog):
        try:
            layers.append(read_layer())
        except ConfigError as exc:
            problems.append(str(exc))
    problems.extend(problem.line() for problem in outline_problems(layers, adapter_names(catalog)))
    for read in _read_all(layers, catalog):
        problems.extend(read.problems)
        problems.extend([read.broken] if read.broken else [])
        if read.missing and _is_set(read.path, layers):
            notes.append(f"{dotted(read.path)}: not checked: {read.missing}")
    return Report(list(dict.fromkeys(problems)), notes)


def _read_all(layers: Sequence[Layer], catalog: Catalog) -> Iterator[_Read]:
    yield _read(("run",), layers, lambda: RunSettings, then=lambda: run_section(layers, catalog))
    model = _read(("model",), layers, lambda: ModelSettings, skip="params")
    yield model
    if model.section is not None:
        section = model.section
        yield _read(("model", "params"), layers, lambda: parameters_of(protocol_of(section, catalog)))
    for kind, name in _adapters(layers, catalog):
        yield _read((kind.value, name), layers, partial(_model_of, catalog, kind, name))


def _read(
    path: tuple[str, ...],
    layers: Sequence[Layer],
    model: Callable[[], type[BaseModel]],
    *,
    skip: str = "",
    then: Callable[[], object] = lambda: None,
) -> _Read:
    try:
        section_class = model()
    except SdkMissing as exc:
        return _Read(path, missing=str(exc))
    except ConfigError as exc:
        return _Read(path, broken=str(exc))
    section, problems = read_section(path, layers, section_class, skip=skip)
    try:
        if not problems:
            then()
    except ConfigError as exc:
        return _Read(path, problems=[str(exc)])
    return _Read(path, section, [problem.line() for problem in problems])


def _model_of(catalog: Catalog, kind: Kind, name: str) -> type[BaseModel]:
    return section_model(kind, catalog.load(kind, name))


def _adapters(layers: Sequence[Layer], catalog: Catalog) -> Iterator[tuple[Kind, str]]:
    for section in NAMED_SECTIONS:
        given = [part_of(layer.values, (section,)) for layer in layers]
        paths = [name for names in given if isinstance(names, dict) for name in names if ":" in name]
        for name in dict.fromkeys([*catalog.names(Kind(section)), *paths]):
            yield Kind(section), name


def _is_set(path: KeyPath, layers: Sequence[Layer]) -> bool:
    return any(part_of(layer.values, path) for layer in layers if layer.kind is not LayerKind.DEFAULTS)


def _lines(section: Section) -> Iterator[Line]:
    checked = section.parameters
    effective = {**checked.model_dump(mode="json"), **section.values}
    if section.path == ("model",):
        effective.pop("params")
    for path, value in _leaves(effective, ()):
        yield _line((*section.path, *path), value, section.origin(*path))


def _masked_lines(path: KeyPath, layers: Sequence[Layer]) -> Iterator[Line]:
    for layer in layers:
        for below, _ in _leaves(part_of(layer.values, path), ()):
            at = (*path, *below)
            yield _line(at, SecretStr("?"), origin_of(layer.origins, at))


def _line(path: KeyPath, value: Any, origin: Origin | None) -> Line:
    shown = MASK if any(variable_secrets({path[-1]: value})) else _masked(value)
    if origin is None:
        return Line(dotted(path), shown, "built-in", "the adapter's own default")
    return Line(dotted(path), shown, origin.layer.value, origin.where)


def _leaves(values: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(values, dict) and (values or not path):
        for key, item in values.items():
            yield from _leaves(item, (*path, key))
    elif path:
        yield path, values


def _masked(value: Any) -> Any:
    if isinstance(value, SecretStr | VariableText):
        return MASK
    if isinstance(value, list):
        return [_masked(item) for item in value]
    if isinstance(value, dict):
        return {key: _masked(item) for key, item in value.items()}
    return Redactor(url_secrets(value)).text(value) if isinstance(value, str) else value
