"""The quickstart suite: small tasks of our own, in the package, for a first run without network or images."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from pydantic import Field, JsonValue

from ....domain.sandbox import LONGEST_TIMEOUT_S
from ....domain.task import Task, TaskSelection
from ....domain.value import Parameters
from ..task_directory.benchmark import TaskDirectoryBenchmark, TaskDirectoryParameters

HERE = Path(__file__).parent
RECORDED = HERE / "recorded"
"""A recorded model run of mini_swe_agent for each task (TASK.jsonl), for the `replay` model."""


class QuickstartParameters(Parameters):
    """The limits may be changed; the tasks are the package's."""

    agent_timeout_s: float | None = Field(default=None, gt=0, le=LONGEST_TIMEOUT_S)
    """Instead of every task's agent.timeout_sec."""
    verifier_timeout_s: float | None = Field(default=None, gt=0, le=LONGEST_TIMEOUT_S)
    """Instead of every task's verifier.timeout_sec."""
    start_timeout_s: float | None = Field(default=None, gt=0, le=LONGEST_TIMEOUT_S)
    """Pull and start: instead of every task's environment.build_timeout_sec."""
    timeout_multiplier: float = Field(default=1, gt=0, le=1000, allow_inf_nan=False)
    """Multiplies the limits of agent, verifier and start."""


class QuickstartBenchmark(TaskDirectoryBenchmark):
    """A handful of small tasks of our own, for a first run in docker or host_process."""

    name: ClassVar[str] = "quickstart"
    Parameters: ClassVar[type[Parameters]] = QuickstartParameters

    def __init__(self, parameters: QuickstartParameters, data_dir: Path) -> None:
        super().__init__(TaskDirectoryParameters(path=HERE / "tasks", **parameters.model_dump()), data_dir)

    async def load_tasks(self, selection: TaskSelection) -> Sequence[Task]:
        """The selected tasks."""
        tasks = await super().load_tasks(selection)
        self._dataset = {"package": "agentcompass"}
        return tasks

    def dataset(self) -> Mapping[str, JsonValue]:
        """The package itself; its version is the run's."""
        return dict(self._dataset)
