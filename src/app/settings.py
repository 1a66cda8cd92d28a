"""The settings of one run: all layers read, checked and merged before anything starts.

This is the one place that reads the environment; callers hand it over as `environ`.
"""

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel

from ..domain.errors import ConfigError
from ..domain.model import ModelEndpoint
from ..domain.run import RunRequest
from ..domain.task import TaskSelection
from ..domain.value import Parameters
from .catalog import Catalog, Kind, parameters_of
from .problems import Problem, refuse
from .provenance import Layer
from .settings_check import Section, part_of, read_section
from .settings_layers import Flags, defaults_layer, params_flag, private_layer, settings_flags
from .settings_sections import ModelSettings, NoParameters, RunSettings, TaskKeys, benchmark_section
from .settings_structure import outline_problems
from .settings_variables import NAMED_SECTIONS, variable_layer

NO_MODEL = "none"
"""The model's name where a harness needs none."""


@dataclass(frozen=True)
class Used:
    """What a run uses, each by name or `module:Class`; no environment asks for that of the section `run`."""

    benchmark: str
    harness: str
    model: str
    environment: str | None = None


@dataclass(frozen=True)
class Settings:
    """The effective settings of one run; each section knows where its values come from."""

    used: Used
    run: RunSettings
    model: ModelSettings
    """Its `params` are in the section `model_params`."""
    sections: Mapping[str, Section] = field(repr=False)
    """`run`, `model`, `model_params`, `benchmark`, `harness`, `environment`."""
    environ: Mapping[str, str] = field(repr=False)

    @property
    def results_dir(self) -> Path:
        """Where runs are kept."""
        return self.run.results_dir.expanduser()

    @property
    def data_dir(self) -> Path:
        """Where benchmarks cache their data: as set, or agentcompass in the user's cache folder."""
        return (self.run.data_dir or cache_dir(self.environ)).expanduser()

    def request(self, *, reuse: bool = True) -> RunRequest:
        """The run asked for; name and id are made up where none is set."""
        benchmark = self.sections["benchmark"].values
        keys = {name: benchmark.pop(name) for name in TaskKeys.model_fields if name in benchmark}
        tasks = TaskKeys.model_validate(keys)
        return RunRequest(
            benchmark=self.used.benchmark,
            harness=self.used.harness,
            environment=self.used.environment or "",
            model=ModelEndpoint(
                name=self.used.model,
                base_url=self.model.base_url,
                api_key=self.model.api_key,
                protocol=self.model.api_protocol,
            ),
            selection=TaskSelection(sample_ids=tasks.sample_ids, limit=tasks.limit),
            k=tasks.k,
            benchmark_params=benchmark,
            harness_params=self.sections["harness"].values,
            model_params=self.sections["model_params"].values,
            environment_defaults=self.sections["environment"].defaults,
            environment_params=self.sections["environment"].explicit,
            enabled_recipes=self.run.enabled_recipes,
            task_concurrency=self.run.task_concurrency,
            max_retries=self.run.max_retries,
            run_name=self.run.run_name or default_run_name(self.used),
            run_id=self.run.run_id or new_run_id(),
            reuse=reuse,
        )


def base_layers(config: Sequence[Path], environ: Mapping[str, str], catalog: Catalog) -> list[Layer]:
    """Every layer below the flags, lowest first, its outline not checked yet.

    Raises:
        ConfigError: broken YAML, a key twice, a file that cannot be read, a variable that names no section.
    """
    return [read() for read in layer_readers(config, environ, catalog)]


def layer_readers(config: Sequence[Path], environ: Mapping[str, str], catalog: Catalog) -> list[Callable[[], Layer]]:
    """One function for each layer below the flags, lowest first; each reads its own and raises its own ConfigError."""
    private = [partial(private_layer, path) for path in config]
    return [defaults_layer, *private, lambda: variable_layer(environ, adapter_names(catalog))]


def adapter_names(catalog: Catalog) -> dict[str, list[str]]:
    """The known names of each section that has named parts."""
    return {section: catalog.names(Kind(section)) for section in NAMED_SECTIONS}


def load_settings(
    used: Used,
    *,
    config: Sequence[Path] = (),
    flags: Flags = Flags(),  # noqa: B008 - frozen
    environ: Mapping[str, str],
    catalog: Catalog | None = None,
) -> Settings:
    """defaults.yaml < `config` files < `environ` < `flags`, for the adapters that the run uses.

    Raises:
        ConfigError: anything wrong in the layers' outline or in the sections used; one line that names the place,
            the key, what is expected and the nearest valid key.
    """
    catalog = catalog or Catalog()
    layers = base_layers(config, environ, catalog)
    refuse(outline_problems(layers, adapter_names(catalog)))
    layers.append(settings_flags(flags))
    run = read_run(layers, catalog)
    used = replace(used, environment=used.environment or _run(run).environment)
    sections = _adapter_sections(used, layers, flags, catalog)
    model = needed_section(("model",), layers, ModelSettings, skip="params")
    sections["model_params"] = _model_params(used, model, layers, flags, catalog)
    return Settings(used, _run(run), _model(model), {"run": run, "model": model, **sections}, dict(environ))


def needed_section(
    path: tuple[str, ...], layers: Sequence[Layer], model: type[BaseModel], *, skip: str = ""
) -> Section:
    """The section at `path`. Raises ConfigError with the first thing that is wrong with it."""
    section, problems = read_section(path, layers, model, skip=skip)
    refuse(problems)
    if section is None:
        raise ConfigError(f"{'.'.join(path)}: cannot be read")
    return section


def read_run(layers: Sequence[Layer], catalog: Catalog) -> Section:
    """The section `run`, the recipes that it names known. Raises ConfigError."""
    section = needed_section(("run",), layers, RunSettings)
    for name in _run(section).enabled_recipes or ():
        _named_by(section, "enabled_recipes", catalog, Kind.RECIPES, name)
    return section


def protocol_of(model: Section, catalog: Catalog) -> type[Any]:
    """The class that speaks `model.api_protocol`. Raises ConfigError."""
    name = _model(model).api_protocol
    _named_by(model, "api_protocol", catalog, Kind.MODELS, name)
    return catalog.load(Kind.MODELS, name)


def section_model(kind: Kind, adapter: type[Any]) -> type[Parameters]:
    """What the section of an adapter may hold."""
    parameters = parameters_of(adapter)
    return benchmark_section(parameters) if kind is Kind.BENCHMARKS else parameters


def default_run_name(used: Used) -> str:
    """`BENCHMARK-HARNESS-MODEL`, safe as the name of a folder."""
    name = "-".join((used.benchmark, used.harness, used.model))
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).lstrip("._-")[:100] or "run"


def new_run_id() -> str:
    """The time (UTC) and six random hex digits."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"


def cache_dir(environ: Mapping[str, str]) -> Path:
    """agentcompass in the user's cache folder: $XDG_CACHE_HOME where it is absolute, else ~/.cache."""
    cache = Path(environ.get("XDG_CACHE_HOME", ""))
    return (cache if cache.is_absolute() else Path("~/.cache")) / "agentcompass"


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
    layers = [*layers, params_flag(flags, "model_params", path)]
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


def _run(section: Section) -> RunSettings:
    return cast(RunSettings, section.parameters)


def _model(section: Section) -> ModelSettings:
    return cast(ModelSettings, section.parameters)
