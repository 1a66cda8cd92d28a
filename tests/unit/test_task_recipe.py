"""What the task-directory recipe asks of a sandbox."""

from pathlib import Path, PurePosixPath

import pytest
from agentcompass.adapters.benchmarks.task_directory.benchmark import TaskDirectoryBenchmark, TaskDirectoryParameters
from agentcompass.adapters.recipes.task_directory import TaskDirectoryRecipe
from agentcompass.domain.errors import ConfigError
from agentcompass.domain.resolving import resolve_spec
from agentcompass.domain.sandbox import Capabilities, ImageBuild, Network, SandboxSpec
from agentcompass.domain.task import Task, TaskSelection
from agentcompass.testing.task_folders import TASK_TOML, write_task

FULL = """[environment]
docker_image = "someone/task:1"
cpus = 2
memory = "2G"
allow_internet = false
workdir = "/srv/work"
[environment.env]
GREETING = "hello ${NAME:-you}"
"""
BUILT = "[environment]\nbuild_timeout_sec = 77.0\n"
WITH_IMAGES, WITHOUT_IMAGES = Capabilities(images=True), Capabilities()
ON_HOST = "[metadata]\nhost_process = true\n"


async def a_task(folder: Path, toml: str, *, dockerfile: bool = False, **limits: float) -> Task:
    write_task(folder, "task", toml=toml, files={"environment/Dockerfile": "FROM x\n"} if dockerfile else {})
    parameters = TaskDirectoryParameters(path=folder, **limits)
    (task,) = await TaskDirectoryBenchmark(parameters, folder).load_tasks(TaskSelection())
    return task


def spec(task: Task, capabilities: Capabilities = WITH_IMAGES) -> SandboxSpec:
    return resolve_spec({}, TaskDirectoryRecipe()(task, capabilities), {}, 100)


async def test_image_folder_resources_network_and_variables_are_the_tasks(tmp_path: Path) -> None:
    asked = spec(await a_task(tmp_path, FULL))

    assert (asked.image, asked.build) == ("someone/task:1", None)
    assert asked.workspace_root == PurePosixPath("/srv/work")
    assert (asked.cpu, asked.memory, asked.network) == (2, 2048, Network.NONE)
    assert asked.env_variables == {"GREETING": "hello you"}
    assert [str(path) for path in asked.directories] == ["/logs/agent", "/logs/verifier", "/logs/artifacts"]


async def test_the_published_image_is_preferred_to_building(tmp_path: Path) -> None:
    asked = spec(await a_task(tmp_path, FULL, dockerfile=True))

    assert (asked.image, asked.build) == ("someone/task:1", None)


async def test_a_task_without_an_image_is_built(tmp_path: Path) -> None:
    asked = spec(await a_task(tmp_path, BUILT, dockerfile=True))

    assert asked.image is None
    limit = "environment.build_timeout_sec (or start_timeout_s)"
    assert asked.build == ImageBuild(context=tmp_path / "task" / "environment", timeout_s=77, limit=limit)
    assert asked.workspace_root is None


@pytest.mark.parametrize(
    ("limits", "limit_s"),
    [
        ({"start_timeout_s": 3600}, 3600),
        ({"timeout_multiplier": 2}, 154),
        ({"start_timeout_s": 3600, "timeout_multiplier": 2}, 7200),
    ],
)
async def test_a_build_may_take_as_long_as_the_start(tmp_path: Path, limits: dict[str, float], limit_s: float) -> None:
    task = await a_task(tmp_path, BUILT, dockerfile=True, **limits)
    build = spec(task).build

    assert build is not None
    assert (build.timeout_s, task.budgets.start_s) == (limit_s, limit_s)


@pytest.mark.parametrize(("toml", "dockerfile"), [(FULL, False), (BUILT, True)])
async def test_a_task_that_needs_an_image_is_refused_where_there_are_none(
    tmp_path: Path, toml: str, dockerfile: bool
) -> None:
    task = await a_task(tmp_path, toml, dockerfile=dockerfile)
    with pytest.raises(ConfigError, match=r"task 'task' needs an image \(use --env docker or --env modal\)"):
        TaskDirectoryRecipe()(task, WITHOUT_IMAGES)


async def test_a_task_that_says_so_runs_without_its_image(tmp_path: Path) -> None:
    asked = spec(await a_task(tmp_path, TASK_TOML), WITHOUT_IMAGES)

    assert (asked.image, asked.build, asked.workspace_root) == (None, None, PurePosixPath("/app"))


async def test_the_host_flag_must_be_true_itself(tmp_path: Path) -> None:
    task = await a_task(tmp_path, TASK_TOML.replace("host_process = true", 'host_process = "yes"'))
    with pytest.raises(ConfigError, match="needs an image"):
        TaskDirectoryRecipe()(task, WITHOUT_IMAGES)


@pytest.mark.parametrize("section", ["agent", "verifier"])
async def test_a_task_with_users_is_refused_where_there_are_none(tmp_path: Path, section: str) -> None:
    toml = f'{ON_HOST}[{section}]\nuser = "nobody"\n[environment]\ndocker_image = "a"\n'
    task = await a_task(tmp_path, toml)
    with pytest.raises(ConfigError, match="needs the users"):
        TaskDirectoryRecipe()(task, WITHOUT_IMAGES)


async def test_what_the_user_sets_outranks_the_recipe(tmp_path: Path) -> None:
    fields = TaskDirectoryRecipe()(await a_task(tmp_path, BUILT, dockerfile=True), WITH_IMAGES)
    asked = resolve_spec({}, fields, {"image": "mine:1", "cpu": 8}, 100)

    assert (asked.image, asked.build, asked.cpu) == ("mine:1", None, 8)
