"""A stored run graded again: its benchmark and environment, its submissions, no agent."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..adapters.results.reading import StoredRun
from ..domain.errors import ConfigError
from ..domain.redaction import MASK
from ..domain.task import GradingMode
from .catalog import Catalog, Kind, parameters_of
from .container import Container, Places
from .identity import tasks_digest
from .plugins import tasks_of
from .running import run_to_end
from .settings import Flags, Settings, Used, load_settings

HARNESS = "resubmit"


def regrade(
    run: StoredRun, environment: str | None, config: Sequence[Path], flags: Flags, environ: Mapping[str, str]
) -> tuple[str, int]:
    """Grade `run`'s submissions again, as `regrade_settings` say; the table for stdout, and the exit code.

    Raises:
        ConfigError: nothing was started; also where the data are no longer those of the run.
    """
    settings = regrade_settings(run, environment, config, flags, environ)
    refuse_other_data(run, settings)
    return run_to_end(settings)


def regrade_settings(
    run: StoredRun, environment: str | None, config: Sequence[Path], flags: Flags, environ: Mapping[str, str]
) -> Settings:
    """The settings of a run that grades `run`'s submissions again, named RUN_NAME/RUN_ID-regrade unless `flags` say so.

    What `flags` give goes over what was stored. Secrets are not stored: they come from the usual layers.

    Raises:
        ConfigError: the stored request cannot be read, or its benchmark keeps no submissions.
    """
    catalog = Catalog()
    request = run.run_info.get("request")
    if not isinstance(request, dict) or not isinstance(request.get("benchmark"), str):
        raise ConfigError(f"run_info.json of {run.name} does not say what was run", hint="run the benchmark again")
    benchmark = request["benchmark"]
    adapter = catalog.load(Kind.BENCHMARKS, benchmark)
    if adapter.grading is GradingMode.SAME:
        raise ConfigError(
            f"{benchmark} grades in the agent's own sandbox, which is gone",
            hint="only benchmarks with a submission, as SWE-bench, can be graded again",
        )
    folder = run.folder.absolute()
    stored: dict[str, Any] = {
        "benchmark_params": {**_benchmark_params(request), **_data_params(run, adapter)},
        "environment_params": {} if environment else _mapping(request, "environment_params"),
        "harness_params": {"run": str(folder)},
        "enabled_recipes": request.get("enabled_recipes"),
        "run_name": folder.parent.name,
        "run_id": f"{folder.name}-regrade",
    }
    given = {name: value for name, value in stored.items() if getattr(flags, name) is None}
    used = Used(benchmark, HARNESS, run.summary.model, environment or request.get("environment"))
    return load_settings(used, config=config, flags=replace(flags, **given), environ=environ, catalog=catalog)


def refuse_other_data(run: StoredRun, settings: Settings) -> None:
    """Load the tasks that `settings` select, and hold them and their data set against those of `run`.

    The version of the grader, where the data set names it, may be another: run_info.json tells.

    Raises:
        ConfigError: they differ (the keys that do), or `run` does not tell what its data were.
    """
    request = settings.request()
    benchmark = Container(request=request, places=Places(settings.results_dir, settings.data_dir)).benchmark()
    tasks = asyncio.run(tasks_of(benchmark, request.benchmark, request.selection))
    now = {f"dataset.{name}": value for name, value in benchmark.dataset().items()}
    now["tasks_sha256"] = tasks_digest(tasks)
    then = _recorded_data(run)
    programs = {f"dataset.{name}" for name in _mapping(run.run_info, "versions")}
    keys = sorted((then.keys() | now.keys()) - programs)
    differing = [key for key in keys if then.get(key) != now.get(key)]
    if differing:
        raise ConfigError(
            f"the data are not those of run {run.name}: {', '.join(differing)} differ",
            hint="put the data of that run back, or run the benchmark again",
        )


def _recorded_data(run: StoredRun) -> dict[str, Any]:
    digest = _mapping(run.run_info, "identity").get("tasks_sha256")
    if digest is None:
        raise ConfigError(
            f"run_info.json of {run.name} does not say what its data were", hint="run the benchmark again"
        )
    dataset = _mapping(run.run_info, "dataset")
    return {**{f"dataset.{name}": value for name, value in dataset.items()}, "tasks_sha256": digest}


def _data_params(run: StoredRun, adapter: type[Any]) -> dict[str, Any]:
    """Where the data were found and at which commit, rather than what was asked for, in the benchmark's own words."""
    own = parameters_of(adapter).model_fields
    return {name: value for name, value in _mapping(run.run_info, "dataset").items() if name in own}


def _benchmark_params(request: Mapping[str, Any]) -> dict[str, Any]:
    selection = {name: value for name, value in _mapping(request, "selection").items() if value}
    return {**_mapping(request, "benchmark_params"), **selection, "k": request.get("k", 1)}


def _mapping(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = document.get(name)
    return _unmasked(value) if isinstance(value, dict) else {}


def _unmasked(values: Mapping[str, Any]) -> dict[str, Any]:
    """`values` without what was masked, at any depth, since layers merge key by key; a list is one value."""
    below = {key: _unmasked(item) if isinstance(item, dict) else item for key, item in values.items()}
    return {key: item for key, item in below.items() if MASK not in f"{key} {item}"}
