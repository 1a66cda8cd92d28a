"""A stored run graded again: its benchmark and environment, its submissions, no agent."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..adapters.results.reading import StoredRun
from ..domain.errors import ConfigError
from ..domain.redaction import MASK
from ..domain.task import GradingMode
from .catalog import Catalog, Kind
from .settings import Flags, Settings, Used, load_settings

HARNESS = "resubmit"


def regrade_settings(run: StoredRun, environment: str | None, config: Sequence[Path], flags: Flags) -> Settings:
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
    if catalog.load(Kind.BENCHMARKS, benchmark).grading is GradingMode.SAME:
        raise ConfigError(
            f"{benchmark} grades in the agent's own sandbox, which is gone",
            hint="only benchmarks with a submission, as SWE-bench, can be graded again",
        )
    used = Used(benchmark, HARNESS, run.summary.model, environment or request.get("environment"))
    stored: dict[str, Any] = {
        "benchmark_params": _benchmark_params(request),
        "environment_params": {} if environment else _mapping(request, "environment_params"),
        "harness_params": {"run": str(run.folder.absolute())},
        "run_name": run.folder.parent.name,
        "run_id": f"{run.folder.name}-regrade",
    }
    given = {name: value for name, value in stored.items() if getattr(flags, name) is None}
    return load_settings(used, config=config, flags=replace(flags, **given), environ=os.environ, catalog=catalog)


def _benchmark_params(request: Mapping[str, Any]) -> dict[str, Any]:
    selection = {name: value for name, value in _mapping(request, "selection").items() if value}
    return {**_mapping(request, "benchmark_params"), **selection, "k": request.get("k", 1)}


def _mapping(request: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = request.get(name)
    return {key: item for key, item in value.items() if MASK not in str(item)} if isinstance(value, dict) else {}
