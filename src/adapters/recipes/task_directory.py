"""What a task of the task-directory format asks of its sandbox."""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from ...domain.attempt import Stage
from ...domain.errors import ConfigError
from ...domain.sandbox import Capabilities, ImageBuild, Network
from ...domain.task import Task

_WITH_IMAGES = "use --env docker or --env modal"
DIRECTORIES = tuple(PurePosixPath(f"/logs/{name}") for name in ("agent", "verifier", "artifacts"))


class TaskDirectoryRecipe:
    """Image or build, working directory, resources, network and variables, as task.toml says.

    The platform is left to the engine: the published Terminal-Bench 2 images are linux/amd64, set `platform` on
    machines of another kind. Storage is a request that no engine enforces, hence no field of a sandbox.
    """

    benchmarks: ClassVar[frozenset[str]] = frozenset({"task_directory", "terminal_bench_2", "quickstart"})
    environments: ClassVar[frozenset[str] | None] = None

    def __call__(self, task: Task, capabilities: Capabilities) -> Mapping[str, Any]:
        """The fields of `SandboxSpec` that the task decides.

        Raises:
            ConfigError: where there are no images, a task that needs one, or another user.
        """
        fields: dict[str, Any] = {"directories": DIRECTORIES, **_resources(task)}
        if not capabilities.images:
            _refuse_without_image(task)
            fields["workspace_root"] = PurePosixPath(str(task.metadata.get("workdir") or "/app"))
            return fields
        if task.metadata.get("workdir"):
            fields["workspace_root"] = PurePosixPath(str(task.metadata["workdir"]))
        return fields | _image(task)


def _resources(task: Task) -> dict[str, Any]:
    wanted = {
        "cpu": task.metadata.get("cpus"),
        "memory": task.metadata.get("memory_mb"),
        "env_variables": task.metadata.get("env"),
        "network": Network.NONE if task.metadata.get("network") == "no-network" else None,
    }
    return {name: value for name, value in wanted.items() if value}


def _image(task: Task) -> dict[str, Any]:
    if task.metadata.get("docker_image"):
        return {"image": task.metadata["docker_image"]}
    context = task.metadata.get("dockerfile_context")
    if not context:
        return {}
    budgets, start = task.budgets, Stage.START
    return {
        "build": ImageBuild(context=Path(str(context)), timeout_s=budgets.seconds(start), limit=budgets.name(start))
    }


def _refuse_without_image(task: Task) -> None:
    if task.metadata.get("host_process") is not True:
        raise ConfigError(f"task {task.id!r} needs an image", hint=_WITH_IMAGES)
    users = task.metadata.get("users")
    if users:
        raise ConfigError(f"task {task.id!r} needs the users {users}", hint=_WITH_IMAGES)
