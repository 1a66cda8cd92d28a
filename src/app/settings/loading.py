"""The settings of one run, from all their layers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel

from ...domain.errors import ConfigError
from ...domain.model import NO_MODEL
from ...domain.redaction import secrets_of
from ...domain.value import Parameters
from ..catalog import Catalog, Kind, parameters_of
from ..logs import mask_from_now
from .effective import Settings, Used
from .layers import Flags, defaults_layer, params_flag, private_layer, settings_flags
from .models import ModelSettings, NoParameters, RunSettings, benchmark_section
from .outline import outline_problems
from .problems import Problem, refuse
from .provenance import Layer
from .section import Section, part_of, read_section
from .variables import NAMED_SECTIONS, variable_layer

NO_FLAGS = Flags()


def load_settings(
    used: Used,
    *,
    config: Sequence[Path] = (),
    flags: Flags = NO_FLAGS,
    environ: Mapping[str, str],
    catalog: Catalog | None = None,
) -> Settings:
    """defaults.yaml < `config` files < `environ` < `flags`, for the adapters that the run uses.

    Raises:
        ConfigError: anything wrong in the layers' outline or in the sections used; one line that names the place,
            the key, what is expected and the nearest valid key.
    """
    catalog = catalog or Catalog()
    layers = [*base_layers(config, environ, catalog), settings_flags(flags)]
    run = run_section(layers, catalog)
    if used.environment is None:
        used = replace(used, environment=run_of(run).environment)
    sections = _adapter_sections(used, layers, flags, catalog)
    model = needed_section(("model",), layers, ModelSettings, skip="params")
    sections["model_params"] = _model_params(used, model, layers, flags, catalog)
    return Settings(used, run_of(run), _model(model), {"run": run, "model": model, **sections}, dict(environ))


def base_layers(config: Sequence[Path], environ: Mapping[str, str], catalog: Catalog) -> list[Layer]:
    """Every layer below the flags, lowest first.

    Raises:
        ConfigError: a layer that cannot be read, a section or an adapter that is not known, a secret out of place.
    """
    layers = [read() for read in layer_readers(config, environ, catalog)]
    refuse(outline_problems(layers, adapter_names(catalog)))
    return layers


def layer_readers(config: Sequence[Path], environ: Mapping[str, str], catalog: Catalog) -> list[Callable[[], Layer]]:
    """One function for each layer below the flags, lowest first; each reads its own and raises its own ConfigError."""
    private = [partial(private_layer, path) for path in config]
    return [defaults_layer, *private, lambda: variable_layer(environ, adapter_names(catalog))]


def adapter_names(catalog: Catalog) -> dict[str, list[str]]:
    """The known names of each section that has named parts."""
    return {section: catalog.names(Kind(section)) for section in NAMED_SECTIONS}


def needed_section(
    path: tuple[str, ...], layers: Sequence[Layer], model: type[BaseModel], *, skip: str = ""
) -> Section:
    """The section at `path`, its secrets known from now on. Raises ConfigError with the first thing wrong with it."""
    section, problems = read_section(path, layers, model, skip=skip)
    refuse(problems)
    if section is None:
        raise ConfigError(f"{'.'.join(path)}: cannot be read")
    mask_from_now(secrets_of(section.parameters))
    return section


def run_section(layers: Sequence[Layer], catalog: Catalog) -> Section:
    """The section `run`, the recipes that it names known. Raises ConfigError."""
    section = needed_section(("run",), layers, RunSettings)
    for name in run_of(section).enabled_recipes or ():
        _named_by(section, "enabled_recipes", catalog, Kind.RECIPES, name)
    return section


def run_of(section: Section) -> RunSettings:
    """What the section `run` says."""
    return cast(RunSettings, section.parameters)


def protocol_of(model: Section, catalog: Catalog) -> type[Any]:
    """The class that speaks `model.api_protocol`. Raises ConfigError."""
    name = _model(model).api_protocol
    _named_by(model, "api_protocol", catalog, Kind.MODELS, name)
    return catalog.load(Kind.MODELS, name)


def section_model(kind: Kind, adapter: type[Any]) -> type[Parameters]:
    """What the section of an adapter may hold."""
    parameters = parameters_of(adapter)
    return benchmark_section(parameters) if kind is Kind.BENCHMARKS else parameters


def _adapter_sections(used: Used, layers: Sequence[Layer], flags: Flags, catalog: Catalog) -> dict[str, Section]:
    sections = {}
    for one, kind, name in (
        ("benchmark", Kind.BENCHMARKS, used.benchmark),
        ("harness", Kind.HARNESSES, used.harness),
        ("environment", Kind.ENVIRONMENTS, used.environment or ""),
    ):
        adapter = catalog.load(kind, name)
        path = (kind.value, name)
        flag = params_flag(flags, f"{one}_params", path)
        sections[one] = needed_section(path, [*layers, flag], section_model(kind, adapter))
    return sections


def _model_params(used: Used, model: Section, layers: Sequence[Layer], flags: Flags, catalog: Catalog) -> Section:
    harness = catalog.load(Kind.HARNESSES, used.harness)
    if harness.needs_model and used.model.strip() in ("", NO_MODEL):
        raise ConfigError(f"harness {used.harness!r} needs a model, and the model named is {used.model!r}")
    path = ("model", "params")
    given = params_flag(flags, "model_params", path)
    if not harness.needs_model and part_of(given.values, path):
        label = flags.spelled("model_params")
        raise ConfigError(
            f"{label}: harness {used.harness!r} asks no model through the runner, so they would have no effect",
            hint="leave them out; an agent of your own has such settings in its command or its variables",
        )
    layers = [*layers, given]
    if not harness.needs_model and not any(part_of(layer.values, path) for layer in layers):
        return Section(path, NoParameters(), {}, {}, {})
    return needed_section(path, layers, parameters_of(protocol_of(model, catalog)))


def _named_by(section: Section, key: str, catalog: Catalog, kind: Kind, name: str) -> None:
    try:
        catalog.entry(kind, name)
    except ConfigError as exc:
        origin = section.origin(key)
        problem = Problem(origin.where if origin else "", (*section.path, key), exc.message)
        raise ConfigError(problem.line(), hint=exc.hint) from exc


def _model(section: Section) -> ModelSettings:
    return cast(ModelSettings, section.parameters)
