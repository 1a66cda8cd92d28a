"""The quickstart suite: the benchmark contract on host_process, and the recorded runs."""

import json
from pathlib import Path

import pytest
from agentcompass.adapters.benchmarks.quickstart import HERE as QUICKSTART
from agentcompass.adapters.benchmarks.quickstart import RECORDED, QuickstartBenchmark, QuickstartParameters
from agentcompass.adapters.environments.host_process.environment import HostProcessEnvironment, HostProcessParameters
from agentcompass.domain.ports import Environment
from agentcompass.domain.task import TaskSelection
from agentcompass.testing.quickstart import QuickstartContract

TASKS = sorted(folder.name for folder in (QUICKSTART / "tasks").iterdir())


class TestQuickstartOnHostProcess(QuickstartContract):
    @pytest.fixture
    def environment(self, tmp_path: Path) -> Environment:
        return HostProcessEnvironment(HostProcessParameters(root_folder=tmp_path / "sandboxes"))


def test_there_are_at_least_eight_tasks_in_several_categories() -> None:
    assert len(TASKS) >= 8
    assert len({line for name in TASKS for line in _toml(name).splitlines() if line.startswith("category")}) >= 6


def _toml(name: str) -> str:
    return (QUICKSTART / "tasks" / name / "task.toml").read_text()


def test_every_task_has_a_recording_that_serves_it_and_no_other() -> None:
    instructions = {name: (QUICKSTART / "tasks" / name / "instruction.md").read_text() for name in TASKS}
    served = {}
    for file in RECORDED.iterdir():
        match = json.loads(file.read_text().splitlines()[0])["match"]
        served[file.stem] = [name for name, text in instructions.items() if match in text]

    assert served == {name: [name] for name in TASKS}


async def test_a_limit_of_every_task_can_be_replaced(tmp_path: Path) -> None:
    benchmark = QuickstartBenchmark(QuickstartParameters(agent_timeout_s=7, timeout_multiplier=2), tmp_path)
    (task,) = await benchmark.load_tasks(TaskSelection(limit=1))

    assert task.budgets.agent_s == 14
    assert task.budgets.name("agent") == "agent_timeout_s x timeout_multiplier"


async def test_the_data_is_the_package(tmp_path: Path) -> None:
    benchmark = QuickstartBenchmark(QuickstartParameters(), tmp_path)

    assert dict(benchmark.dataset()) == {"package": "agentcompass"}
