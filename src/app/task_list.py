"""The tasks of a benchmark, outside a run."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..domain.ports import Benchmark
from ..domain.task import Task
from .catalog import Catalog, Kind
from .plugins import making, tasks_of
from .settings import Flags, load_benchmark


def load_task_list(name: str, config: Sequence[Path], flags: Flags, environ: Mapping[str, str]) -> Sequence[Task]:
    """The tasks that the benchmark's settings select.

    Raises:
        ConfigError: as a run of them would.
    """
    catalog = Catalog()
    chosen = load_benchmark(name, config=config, flags=flags, environ=environ, catalog=catalog)
    with making(f"benchmark {name!r}"):
        benchmark: Benchmark = catalog.load(Kind.BENCHMARKS, name)(chosen.parameters, chosen.data_dir)
    return asyncio.run(tasks_of(benchmark, name, chosen.selection))
