"""The settings of one adapter outside a run, for `tasks`, `doctor` and `cleanup`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..domain.task import TaskSelection
from ..domain.value import Parameters
from .catalog import Catalog, Kind, parameters_of
from .problems import refuse
from .provenance import Layer
from .settings import adapter_names, base_layers, cache_dir, needed_section, read_run, section_model
from .settings_layers import Flags, params_flag, settings_flags
from .settings_sections import RunSettings, TaskKeys
from .settings_structure import outline_problems


@dataclass(frozen=True)
class BenchmarkSettings:
    """A benchmark's own parameters, the selection asked for, and where it caches data."""

    parameters: Parameters
    selection: TaskSelection
    data_dir: Path


def load_environment(name: str, *, config: Sequence[Path], environ: Mapping[str, str], catalog: Catalog) -> Parameters:
    """The parameters of an environment. Raises ConfigError as a run would."""
    layers = _layers(config, environ, catalog)
    model = section_model(Kind.ENVIRONMENTS, catalog.load(Kind.ENVIRONMENTS, name))
    parameters = needed_section((Kind.ENVIRONMENTS.value, name), layers, model).parameters
    assert isinstance(parameters, Parameters)
    return parameters


def load_benchmark(
    name: str, *, config: Sequence[Path], flags: Flags, environ: Mapping[str, str], catalog: Catalog
) -> BenchmarkSettings:
    """The settings of a benchmark. Raises ConfigError as a run would."""
    layers = [*_layers(config, environ, catalog), settings_flags(flags)]
    adapter = catalog.load(Kind.BENCHMARKS, name)
    path = (Kind.BENCHMARKS.value, name)
    layers.append(params_flag(flags, "benchmark_params", path))
    values = needed_section(path, layers, section_model(Kind.BENCHMARKS, adapter)).values
    keys = TaskKeys.model_validate({key: values.pop(key) for key in TaskKeys.model_fields if key in values})
    run = read_run(layers, catalog).parameters
    assert isinstance(run, RunSettings)
    return BenchmarkSettings(
        parameters=parameters_of(adapter).model_validate(values),
        selection=TaskSelection(sample_ids=keys.sample_ids, limit=keys.limit),
        data_dir=(run.data_dir or cache_dir(environ)).expanduser(),
    )


def _layers(config: Sequence[Path], environ: Mapping[str, str], catalog: Catalog) -> list[Layer]:
    layers = base_layers(config, environ, catalog)
    refuse(outline_problems(layers, adapter_names(catalog)))
    return layers
