"""The layers of the settings, each read from its source: defaults.yaml, private files, flags."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from importlib.resources import files
from pathlib import Path, PurePath
from typing import Any

from ...domain.errors import ConfigError
from ...domain.local_path import expanded
from ...domain.one_line import printable
from .provenance import KeyPath, Layer, LayerKind, Origin
from .text import Parsed, parse_json, parse_yaml

DEFAULTS_LABEL = "config/defaults.yaml"
JsonOrMapping = str | Mapping[str, Any]
"""JSON text, `@file`, or the mapping itself."""


@dataclass(frozen=True, repr=False)
class Flags:
    """What the caller gave; None is not given, and overwrites nothing."""

    benchmark_params: JsonOrMapping | None = None
    harness_params: JsonOrMapping | None = None
    environment_params: JsonOrMapping | None = None
    model_params: JsonOrMapping | None = None
    model_base_url: str | None = None
    model_api_key: Any = None
    model_api_protocol: str | None = None
    task_concurrency: int | None = None
    max_retries: int | None = None
    timeout_seconds: float | None = None
    results_dir: PurePath | str | None = None
    data_dir: PurePath | str | None = None
    run_name: str | None = None
    run_id: str | None = None
    progress: str | None = None
    enabled_recipes: str | Sequence[str] | None = None
    """`A,B` or a sequence; empty is none."""
    log_level: str | None = None
    as_options: bool = field(default=True)
    """Messages name `--env-params`; else the keyword `environment_params` of the SDK."""

    def spelled(self, name: str) -> str:
        """What the user calls the field `name`."""
        option = {"environment_params": "env-params"}.get(name, name.replace("_", "-"))
        return f"--{option}" if self.as_options else name


def defaults_layer() -> Layer:
    """config/defaults.yaml, as installed."""
    text = files("agentcompass.config").joinpath("defaults.yaml").read_text(encoding="utf-8")
    return _file_layer(LayerKind.DEFAULTS, DEFAULTS_LABEL, parse_yaml(text, DEFAULTS_LABEL, is_own=True), shared=True)


def private_layer(path: Path) -> Layer:
    """A YAML file given with --config.

    Raises:
        ConfigError: it cannot be read, is no UTF-8, or no mapping.
    """
    label = printable(str(path))
    return _file_layer(
        LayerKind.FILE, label, parse_yaml(_text_of(path, "--config"), label), shared=_in_repository(path)
    )


def settings_flags(flags: Flags) -> Layer:
    """The flags of the sections `run` and `model`."""
    values: dict[str, Any] = {"run": {}, "model": {}}
    origins: dict[KeyPath, Origin] = {}
    for each in fields(flags):
        value = getattr(flags, each.name)
        if value is None or each.name.endswith("_params") or each.name == "as_options":
            continue
        section, key = ("model", each.name[6:]) if each.name.startswith("model_") else ("run", each.name)
        if each.name == "enabled_recipes" and isinstance(value, str):
            value = [part.strip() for part in value.split(",") if part.strip()]
        values[section][key] = _plain(value)
        origins[(section, key)] = Origin(LayerKind.FLAG, flags.spelled(each.name))
    return Layer(LayerKind.FLAG, values, origins)


def params_flag(flags: Flags, name: str, path: tuple[str, ...]) -> Layer:
    """The flag `name` (one of `*_params`) as a layer that sets the section at `path`.

    Raises:
        ConfigError: broken JSON, a file that cannot be read, or no mapping.
    """
    given, label = getattr(flags, name), flags.spelled(name)
    parsed, label = (Parsed({}, {}), label) if given is None else _params(given, label)
    if not isinstance(parsed.value, dict):
        raise ConfigError(f"{label}: expected a mapping of settings", hint="as in '{\"limit\": 5}'")
    values: Any = parsed.value
    for key in reversed(path):
        values = {key: values}
    origins = {(*path, *below): _at(LayerKind.FLAG, label, line) for below, line in parsed.lines.items()}
    return Layer(LayerKind.FLAG, values, origins)


def _params(given: JsonOrMapping, label: str) -> tuple[Parsed, str]:
    if not isinstance(given, str):
        return _without_lines(_plain(given)), label
    if not given.startswith("@"):
        return _without_lines(parse_json(given, label)), label
    if given == "@":
        raise ConfigError(f"{label} @: names no file", hint="write @ and the file's path")
    path = Path(given[1:])
    label = f"{label} {given}"
    text = _text_of(path, label.split(" ")[0])
    return (_without_lines(parse_json(text, label)) if path.suffix == ".json" else parse_yaml(text, label)), label


def _without_lines(value: Any) -> Parsed:
    return Parsed(value, dict.fromkeys(_paths(value, ()), 0))


def _paths(value: Any, path: KeyPath) -> list[KeyPath]:
    below = value.items() if isinstance(value, dict) else []
    return [path, *(deeper for key, item in below for deeper in _paths(item, (*path, key)))]


def _at(kind: LayerKind, label: str, line: int) -> Origin:
    return Origin(kind, f"{label}:{line}" if line else label)


def _file_layer(kind: LayerKind, label: str, parsed: Parsed, *, shared: bool) -> Layer:
    if parsed.value is not None and not isinstance(parsed.value, dict):
        raise ConfigError(f"{label}: expected a mapping of sections (run, model, environments, ...)")
    origins = {path: _at(kind, label, line) for path, line in parsed.lines.items() if path}
    return Layer(kind, parsed.value or {}, origins, shared)


def _text_of(path: Path, flag: str) -> str:
    try:
        return expanded(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as exc:
        raise ConfigError(f"{flag} {printable(str(path))}: is not UTF-8 text (byte {exc.start})") from exc
    except ConfigError as exc:
        raise ConfigError(f"{flag} {exc.message}", hint=exc.hint) from exc
    except (OSError, ValueError) as exc:
        reason = getattr(exc, "strerror", None) or "cannot be read"
        raise ConfigError(f"{flag} {printable(str(path))}: {reason}") from exc


def _in_repository(path: Path) -> bool:
    installed = Path(str(files("agentcompass.config"))).resolve()
    folders = expanded(path).resolve().parents
    return installed in folders or any(each.name == "config" and (each / "defaults.yaml").is_file() for each in folders)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, PurePath) else value
