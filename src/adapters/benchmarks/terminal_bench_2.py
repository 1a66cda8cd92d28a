"""Terminal-Bench 2.0: the published tasks, at the commit that its results are about."""

from pathlib import Path
from typing import ClassVar

from .task_directory.benchmark import TaskDirectoryBenchmark

UPSTREAM_URL = "https://github.com/laude-institute/terminal-bench-2.git"
UPSTREAM_COMMIT = "69671fbaac6d67a7ef0dfec016cc38a64ef7a77c"


class TerminalBench2Benchmark(TaskDirectoryBenchmark):
    """Terminal-Bench 2.0, at the published commit.

    `path` or `git_url` names a copy, or another version of the tasks.
    """

    name: ClassVar[str] = "terminal_bench_2"

    async def _source(self) -> Path:
        if self._parameters.path is not None or self._parameters.git_url is not None:
            return await super()._source()
        return await self._checkout(UPSTREAM_URL, self._parameters.revision or UPSTREAM_COMMIT)
