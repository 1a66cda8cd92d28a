"""The composition root: from a RunRequest to a RunEvaluation, every adapter made once and by name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from dependency_injector import containers, providers
from pydantic import ValidationError

from ..adapters.results.file_store import FileResultStore
from ..domain.errors import ConfigError
from ..domain.events import Event, RunStarted
from ..domain.ports import Benchmark, Environment, Harness, Model, Progress, Recipe, ResultStore
from ..domain.redaction import Redactor, secrets_of
from ..domain.run import RunRequest
from ..domain.value import Parameters, first_fault
from .catalog import Catalog, Kind, parameters_of
from .logs import mask_from_now
from .plugins import making
from .run_evaluation import RunEvaluation, RunPorts
from .specs import SpecResolver

log = structlog.get_logger()


@dataclass(frozen=True)
class Places:
    """Where a run keeps its results, and where benchmarks cache their data."""

    results_dir: Path
    data_dir: Path


def parameters_for(adapter: type[Any], values: Mapping[str, Any], section: str) -> Parameters:
    """The adapter's own parameters.

    Raises:
        ConfigError: the first value that does not fit; its input is not shown, it may be a secret.
    """
    try:
        return parameters_of(adapter).model_validate(dict(values))
    except ValidationError as exc:
        raise ConfigError(first_fault(exc, section), hint="see agentcompass config schema") from None


@dataclass(frozen=True)
class Chosen:
    """The classes that a request names, and their parameters."""

    environment: type[Any]
    harness: type[Any]
    benchmark: type[Any]
    model: type[Any] | None
    parameters: dict[str, Parameters]


def choose(request: RunRequest, catalog: Catalog) -> Chosen:
    """Look the request's adapters up. Raises ConfigError for a name or a parameter that is wrong."""
    environment = catalog.load(Kind.ENVIRONMENTS, request.environment)
    harness = catalog.load(Kind.HARNESSES, request.harness)
    benchmark = catalog.load(Kind.BENCHMARKS, request.benchmark)
    model = catalog.load(Kind.MODELS, request.model.protocol) if harness.needs_model else None
    defaults = {key: value for key, value in request.environment_defaults.items() if value is not None}
    environment_values = {**defaults, **request.environment_params}
    parameters = {
        "environment": parameters_for(environment, environment_values, f"environments.{request.environment}"),
        "harness": parameters_for(harness, request.harness_params, f"harnesses.{request.harness}"),
        "benchmark": parameters_for(benchmark, request.benchmark_params, f"benchmarks.{request.benchmark}"),
    }
    if model is not None:
        parameters["model"] = parameters_for(model, request.model_params, "model.params")
    return Chosen(environment, harness, benchmark, model, parameters)


def redactor_for(request: RunRequest, chosen: Chosen, environment: Environment) -> Redactor:
    """Knows every secret of the request, those in its URLs included, and those that the environment found."""
    of_adapters = (text for each in chosen.parameters.values() for text in secrets_of(each))
    secrets = {*secrets_of(request), *of_adapters, *environment.secrets()}
    mask_from_now(secrets)
    return Redactor(secrets)


def _environment(chosen: Chosen, request: RunRequest) -> Environment:
    with making(f"environment {request.environment!r}"):
        environment: Environment = chosen.environment(chosen.parameters["environment"])
        return environment


def _harness(chosen: Chosen, request: RunRequest) -> Harness:
    with making(f"harness {request.harness!r}"):
        harness: Harness = chosen.harness(chosen.parameters["harness"])
        return harness


def _benchmark(chosen: Chosen, request: RunRequest, places: Places) -> Benchmark:
    with making(f"benchmark {request.benchmark!r}"):
        benchmark: Benchmark = chosen.benchmark(chosen.parameters["benchmark"], places.data_dir)
        return benchmark


def _model(chosen: Chosen, request: RunRequest) -> Model | None:
    if chosen.model is None:
        return None
    with making(f"model {request.model.protocol!r}"):
        model: Model = chosen.model(chosen.parameters["model"], request.model)
        return model


def _recipes(request: RunRequest, catalog: Catalog) -> Sequence[Recipe]:
    names = catalog.names(Kind.RECIPES) if request.enabled_recipes is None else request.enabled_recipes
    return [catalog.load(Kind.RECIPES, name)() for name in names]


def _specs(
    request: RunRequest, benchmark: Benchmark, environment: Environment, recipes: Sequence[Recipe]
) -> SpecResolver:
    """An environment's own defaults are the lowest layer: a third party's are in no defaults.yaml."""
    own = dict(type(environment).Parameters())
    defaults = {**own, **{key: value for key, value in request.environment_defaults.items() if value is not None}}
    return SpecResolver(benchmark, environment, recipes, defaults, request.environment_params)


def _store(request: RunRequest, places: Places, redactor: Redactor) -> FileResultStore:
    if not request.reuse and run_folder(request, places).exists():
        where = run_folder(request, places)
        raise ConfigError(f"run {str(where)!r} exists, and reuse is off", hint="choose another run_id")
    return FileResultStore(places.results_dir, redactor)


class _WarningOfPlainWords:
    """A display; as the run starts, it is warned that a secret may stand in texts that are no secret."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def on(self, event: Event) -> None:
        self._progress.on(event)
        if isinstance(event, RunStarted):
            log.warning(
                "secret.found_plain",
                effect="a key of the settings is a plain word: it is masked wherever the word stands, "
                "in stored submissions too, and such a one can be neither exported nor graded again",
                hint="use another key; where the server checks none, EMPTY",
            )


def run_folder(request: RunRequest, places: Places) -> Path:
    """RESULTS_DIR/RUN_NAME/RUN_ID."""
    return places.results_dir / request.run_name / request.run_id


def _ports(
    request: RunRequest,
    places: Places,
    chosen: Chosen,
    environment: Environment,
    harness: Harness,
    model: Model | None,
    benchmark: Benchmark,
    store: ResultStore,
    progress: Progress,
    specs: SpecResolver,
    redactor: Redactor,
) -> RunPorts:
    return RunPorts(
        environment=environment,
        harness=harness,
        model=model,
        benchmark=benchmark,
        store=store,
        progress=_WarningOfPlainWords(progress) if redactor.knows_a_plain_word else progress,
        specs=specs,
        parameters=chosen.parameters,
        folder=run_folder(request, places),
        redactor=redactor,
    )


class Container(containers.DeclarativeContainer):
    """Everything of one run. `request`, `places` and `progress` are given; override any other to replace it."""

    request = providers.Dependency(instance_of=RunRequest)
    places = providers.Dependency(instance_of=Places)
    progress: providers.Dependency[Progress] = providers.Dependency()
    catalog = providers.Singleton(Catalog)
    chosen = providers.Singleton(choose, request, catalog)
    environment = providers.Singleton(_environment, chosen, request)
    redactor = providers.Singleton(redactor_for, request, chosen, environment)
    harness = providers.Singleton(_harness, chosen, request)
    benchmark = providers.Singleton(_benchmark, chosen, request, places)
    model = providers.Singleton(_model, chosen, request)
    recipes = providers.Singleton(_recipes, request, catalog)
    specs = providers.Singleton(_specs, request, benchmark, environment, recipes)
    store = providers.Singleton(_store, request, places, redactor)
    ports = providers.Singleton(
        _ports, request, places, chosen, environment, harness, model, benchmark, store, progress, specs, redactor
    )
    evaluation = providers.Factory(RunEvaluation, request, ports)
