"""What a task of the task-directory format asks of its sandbox."""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from ...domain.errors import ConfigError
from ...domain.sandbox import ImageBuild, Network
from ...domain.task import Task

HOST = "host_process"
DIRECTORIES = tuple(PurePosixPath(f"/logs/{name}") for name in ("agent", "verifier", "artifacts"))


class TaskDirectoryRecipe:
    """Image or build, working directory, resources, network and variables, as task.toml says.

    The platform is left to the engine: the published Terminal-Bench 2 images are linux/amd64, set `platform` on
    machines of another kind. Storage is a request that no engine enforces, hence no field of a sandbox.
    """

    benchmarks: ClassVar[frozenset[str]] = frozenset({"task_directory", "terminal_bench_2", "quickstart"})
    environments: ClassVar[frozenset[str] | None] = None

    def __call__(self, task: Task, environment: str) -> Mapping[str, Any]:
        """The fields of `SandboxSpec` that the task decides.

        Raises:
            ConfigError: on host_process, a task that needs an image or another user.
        """
        fields: dict[str, Any] = {"directories": DIRECTORIES, **_resources(task)}
        if environment == HOST:
            _refuse_on_host(task)
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
    timeout_s = float(str(task.metadata.get("build_timeout_s") or 600))
    return {"build": ImageBuild(context=Path(str(context)), timeout_s=timeout_s)}


def _refuse_on_host(task: Task) -> None:
    if task.metadata.get("host_process") is not True:
        raise ConfigError(f"task {task.id!r} needs an image", hint="use --env docker")
    users = task.metadata.get("users")
    if users:
        raise ConfigError(f"task {task.id!r} needs the users {users}", hint="use --env docker")
