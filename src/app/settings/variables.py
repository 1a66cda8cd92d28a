"""The layer of environment variables: AGENTCOMPASS_<SECTION>__<KEY>, in any case, `__` for each level."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ...domain.errors import ConfigError
from ...domain.one_line import printable
from ...domain.suggest import did_you_mean, nearest
from .provenance import KeyPath, Layer, LayerKind, Origin, dotted
from .shape import child, known_keys, takes, takes_null, takes_text
from .text import parse_yaml

PREFIX = "AGENTCOMPASS_"
NAMED_SECTIONS = ("environments", "benchmarks", "harnesses", "recipes")
IN_SANDBOXES = frozenset({"ROOT", "EXEC", "MODEL", "INSTRUCTION_FILE", "ANSWER_FILE"})
"""Variables of our prefix that commands in a sandbox are given: no settings, where this program runs in one."""
SECTIONS = ("run", "model", *NAMED_SECTIONS)


@dataclass(frozen=True)
class VariableText:
    """A variable's text, whose type is told by the setting that it belongs to."""

    name: str
    text: str = field(repr=False)


def variable_layer(environ: Mapping[str, str], adapters: Mapping[str, list[str]]) -> Layer:
    """The settings among `environ`. `adapters` holds the names of each section that has named parts.

    Adapter names are written with '_' for '-'. Keys of settings are lower case; those below (as in
    `..__ENV_VARIABLES__HTTP_PROXY`) stay as they are written.

    Raises:
        ConfigError: a variable of our prefix that names no section, or two that set the same key.
    """
    values: dict[str, Any] = {}
    origins: dict[KeyPath, Origin] = {}
    for name in sorted(environ):
        if name.upper().startswith(PREFIX) and name[len(PREFIX) :] not in IN_SANDBOXES:
            path = _path(name, adapters)
            _put(values, path, VariableText(name, environ[name]))
            for spelling in {path, tuple(part.lower() for part in path)}:
                origins |= {
                    spelling[:end]: Origin(LayerKind.VARIABLE, printable(name)) for end in range(1, len(path) + 1)
                }
    return Layer(LayerKind.VARIABLE, values, origins)


def _path(name: str, adapters: Mapping[str, list[str]]) -> tuple[str, ...]:
    parts = name[len(PREFIX) :].split("__")
    section = parts[0].lower()
    if section not in SECTIONS:
        raise ConfigError(f"{printable(name)}: no such setting; {_instead(section)}")
    if len(parts) < (3 if section in NAMED_SECTIONS else 2) or not all(parts):
        form = f"{PREFIX}{section.upper()}__{'NAME__' if section in NAMED_SECTIONS else ''}KEY"
        raise ConfigError(f"{printable(name)}: names no key; write {form}")
    if section in NAMED_SECTIONS:
        return (section, _adapter(parts[1], adapters.get(section, [])), parts[2].lower(), *parts[3:])
    return (section, parts[1].lower(), *parts[2:])


def _adapter(part: str, names: list[str]) -> str:
    form = part.lower().replace("-", "_")
    return next((name for name in names if name.lower().replace("-", "_") == form), part.lower())


def _instead(section: str) -> str:
    for known in SECTIONS:
        if section.startswith(f"{known}_"):
            rest = section[len(known) :].strip("_").upper()
            return f"write {PREFIX}{known.upper()}__{printable(rest)}"
    near = nearest(section, SECTIONS)
    return f"did you mean {PREFIX}{near[0].upper()}__...?" if near else did_you_mean(section, SECTIONS)


def _put(values: dict[str, Any], path: tuple[str, ...], leaf: VariableText) -> None:
    target = values
    for part in path[:-1]:
        below = target.setdefault(part, {})
        if isinstance(below, VariableText):
            raise ConfigError(f"{printable(leaf.name)}: {printable(below.name)} sets the whole of it already")
        target = below
    other = target.get(path[-1])
    if other is not None:
        clash = other.name if isinstance(other, VariableText) else "another variable"
        raise ConfigError(f"{printable(leaf.name)}: {printable(clash)} sets the same")
    target[path[-1]] = leaf


def typed(value: Any, annotation: Any, path: KeyPath) -> Any:
    """`value` (at `path`) with each variable's text read as the annotation asks, and keys of models in lower case.

    Text settings take the text as it is (`null` is null where the setting may be null); all others read it as YAML
    or JSON.

    Raises:
        ConfigError: broken YAML, or an empty variable for a setting that is no text.
    """
    if isinstance(value, VariableText):
        return _read(value, annotation, f"{printable(value.name)}: {dotted(path)}")
    if isinstance(value, dict):
        keys = {_key(key, annotation): item for key, item in value.items()}
        return {key: typed(item, child(annotation, key), (*path, key)) for key, item in keys.items()}
    return value


def _key(key: str, annotation: Any) -> str:
    return key.lower() if key.lower() in known_keys(annotation) else key


def _read(variable: VariableText, annotation: Any, where: str) -> Any:
    text = takes_text(annotation)
    if text and takes_null(annotation) and variable.text == "null":
        return None
    if not variable.text.strip():
        return variable.text if text else _refuse_empty(where)
    try:
        value = parse_yaml(variable.text, where).value
    except ConfigError:
        if text:
            return variable.text
        raise
    return value if not text or takes(annotation, value) else variable.text


def _refuse_empty(where: str) -> NoReturn:
    raise ConfigError(f"{where}: the variable is empty", hint="unset it, or give a value")
