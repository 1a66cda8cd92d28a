"""What a SWE-bench instance asks of its sandbox."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, ClassVar

from ...domain.errors import ConfigError
from ...domain.sandbox import Capabilities
from ...domain.task import Task

ROOT = PurePosixPath("/testbed")
PLATFORM = "linux/amd64"


class SweBenchRecipe:
    """The image that the instance's row names, with the repository in /testbed.

    The images are built for linux/amd64, which an environment that can choose is told. The network stays open: nearly
    every instance installs its repository again before its tests. Upstream sets no resources, hence none here.
    """

    benchmarks: ClassVar[frozenset[str]] = frozenset(
        {"swebench", "swebench_verified", "swebench_lite", "swebench_multilingual"}
    )
    environments: ClassVar[frozenset[str] | None] = None

    def __call__(self, task: Task, capabilities: Capabilities) -> Mapping[str, Any]:
        """The fields of `SandboxSpec` that the task decides.

        Raises:
            ConfigError: where there are no images.
        """
        if not capabilities.images:
            raise ConfigError(f"instance {task.id!r} needs its image", hint="use --env docker or --env modal")
        fields: dict[str, Any] = {"image": task.metadata["image"], "workspace_root": ROOT}
        return fields | {"platform": PLATFORM} if "platform" in capabilities.resources else fields
