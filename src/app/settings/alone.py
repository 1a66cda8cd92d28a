"""Settings outside a run: of one adapter for `tasks`, `doctor` and `cleanup`, of the results for `results`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...domain.local_path import expanded
from ...domain.task import TaskSelection
from ...domain.value import Parameters
from ..catalog import Catalog, Kind, parameters_of
from .effective import data_dir
from .layers import Flags, params_flag, settings_flags
from .loading import base_layers, needed_section, run_of, run_section, section_model
from .models import without_task_keys


@dataclass(frozen=True)
class BenchmarkSettings:
    """A benchmark's own parameters, the selection asked for, and where it caches data."""

    parameters: Parameters
    selection: TaskSelection
    data_dir: Path


def load_environment(
    name: str, *, config: Sequence[Path], flags: Flags, environ: Mapping[str, str], catalog: Catalog
) -> Parameters:
    """The parameters of an environment. Raises ConfigError as a run would."""
    path = (Kind.ENVIRONMENTS.value, name)
    layers = [*base_layers(config, environ, catalog), params_flag(flags, "environment_params", path)]
    model = section_model(Kind.ENVIRONMENTS, catalog.load(Kind.ENVIRONMENTS, name))
    parameters = needed_section(path, layers, model).parameters
    assert isinstance(parameters, Parameters)
    return parameters


def load_benchmark(
    name: str, *, config: Sequence[Path], flags: Flags, environ: Mapping[str, str], catalog: Catalog
) -> BenchmarkSettings:
    """The settings of a benchmark. Raises ConfigError as a run would."""
    layers = [*base_layers(config, environ, catalog), settings_flags(flags)]
    adapter = catalog.load(Kind.BENCHMARKS, name)
    path = (Kind.BENCHMARKS.value, name)
    layers.append(params_flag(flags, "benchmark_params", path))
    section = needed_section(path, layers, section_model(Kind.BENCHMARKS, adapter))
    tasks, own = without_task_keys(section.values)
    run = run_of(run_section(layers, catalog))
    return BenchmarkSettings(parameters_of(adapter).model_validate(own), tasks.selection, data_dir(run, environ))


def load_results_dir(flags: Flags, *, config: Sequence[Path], environ: Mapping[str, str]) -> Path:
    """Where runs are kept. Raises ConfigError as a run would."""
    catalog = Catalog()
    layers = [*base_layers(config, environ, catalog), settings_flags(flags)]
    return expanded(run_of(run_section(layers, catalog)).results_dir)
