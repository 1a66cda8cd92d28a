"""The quickstart suite: small tasks of our own, in the package, for a first run without network or images."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from pydantic import JsonValue

from ....domain.value import Parameters
from ..task_directory.benchmark import TaskDirectoryBenchmark, TaskDirectoryParameters
from ..task_directory.limits import TaskLimits

HERE = Path(__file__).parent
RECORDED = HERE / "recorded"
"""A recorded model run of mini_swe_agent for each task (TASK.jsonl), for the `replay` model."""


class QuickstartParameters(TaskLimits):
    """The limits may be changed; the tasks are the package's."""


class QuickstartBenchmark(TaskDirectoryBenchmark):
    """A handful of small tasks of our own, for a first run in docker or host_process."""

    name: ClassVar[str] = "quickstart"
    Parameters: ClassVar[type[Parameters]] = QuickstartParameters

    def __init__(self, parameters: QuickstartParameters, data_dir: Path) -> None:
        super().__init__(TaskDirectoryParameters(path=HERE / "tasks", **parameters.model_dump()), data_dir)

    def dataset(self) -> Mapping[str, JsonValue]:
        """The package itself; its version is the run's."""
        return {"package": "agentcompass"}
