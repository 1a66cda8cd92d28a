"""The contract suite of Benchmark over the quickstart tasks, and their recorded runs: for any environment."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ..adapters.benchmarks.quickstart import RECORDED, QuickstartBenchmark, QuickstartParameters
from ..adapters.recipes.task_directory import TaskDirectoryRecipe
from ..domain.ports import Benchmark, Environment
from ..domain.sandbox import Command
from ..domain.task import TaskSelection
from .benchmark import BenchmarkContract

SUBMITTED = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT\n"


def recorded_commands(task_id: str) -> list[str]:
    """The commands of a task's recorded run, in order."""
    lines = [json.loads(line) for line in (RECORDED / f"{task_id}.jsonl").read_text("utf-8").splitlines()]
    return [json.loads(call["arguments"])["command"] for line in lines[1:] for call in line["tool_calls"]]


class QuickstartContract(BenchmarkContract):
    """Give the fixture `environment`."""

    recipe = TaskDirectoryRecipe()

    @pytest.fixture
    def make_benchmark(self, tmp_path: Path) -> Callable[[], Benchmark]:
        """The suite as it ships."""
        return lambda: QuickstartBenchmark(QuickstartParameters(), tmp_path / "data")

    @pytest.mark.parametrize("task_id", sorted(file.stem for file in RECORDED.glob("*.jsonl")))
    async def test_the_recorded_run_ends_correct(
        self, make_benchmark: Callable[[], Benchmark], environment: Environment, tmp_path: Path, task_id: str
    ) -> None:
        benchmark = make_benchmark()
        (task,) = await benchmark.load_tasks(TaskSelection(sample_ids=(task_id,)))
        commands = recorded_commands(task_id)
        async with self.opened(benchmark, environment, task, tmp_path) as (prepared, sandbox):
            outputs = [(await sandbox.exec(Command(script=command, timeout_s=60))).stdout for command in commands]
            grade = await self.graded(benchmark, environment, prepared, sandbox, tmp_path)

        assert len(commands) >= 3
        assert outputs[-1] == SUBMITTED
        assert grade.correct
