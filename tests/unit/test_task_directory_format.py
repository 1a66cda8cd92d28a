"""task.toml and the folder around it: what is honoured, what is refused, and in which words."""

import errno
import hashlib
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from agentcompass.adapters.benchmarks.quickstart import QuickstartParameters
from agentcompass.adapters.benchmarks.task_directory.benchmark import TaskDirectoryBenchmark, TaskDirectoryParameters
from agentcompass.adapters.benchmarks.task_directory.task_folder import checksum, find_tasks, read_task, strip_canary
from agentcompass.adapters.benchmarks.task_directory.task_toml import TaskProblems, interpolated, parse_task_toml
from agentcompass.adapters.benchmarks.task_directory.verifier_kit import read_kit
from agentcompass.app.identity import score_moving
from agentcompass.domain.errors import ConfigError
from agentcompass.domain.task import Task, TaskSelection
from agentcompass.domain.value import Parameters
from agentcompass.testing.task_folders import TASK_TOML, write_task
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

TB2 = """version = "1.0"

[metadata]
author_name = "A. Author"
author_email = "a@example.org"
difficulty = "medium"
category = "software-engineering"
tags = ["a", "b"]
expert_time_estimate_min = 5.0
junior_time_estimate_min = 20.0
estimated_duration_sec = 12.5
custom_docker_compose = true

[verifier]
timeout_sec = 900.0

[agent]
timeout_sec = 1200.0

[environment]
build_timeout_sec = 600.0
docker_image = "someone/some-task:20251031"
cpus = 2
memory = "4G"
storage = "10G"
"""
TB21 = """schema_version = "1.1"
artifacts = []

[task]
name = "terminal-bench/fix-git"
description = "Mend it."
keywords = ["git"]
[[task.authors]]
name = "A. Author"
email = "a@example.org"

[metadata]
difficulty = "easy"

[verifier]
timeout_sec = 900.0
[verifier.env]

[agent]
timeout_sec = 900.0

[environment]
build_timeout_sec = 600.0
docker_image = "someone/fix-git:20260403"
cpus = 1
memory_mb = 2048
storage_mb = 10240
gpus = 0
allow_internet = true
mcp_servers = []
[environment.env]

[solution.env]
"""


async def load(path: Path, **parameters: object) -> list[Task]:
    benchmark = TaskDirectoryBenchmark(TaskDirectoryParameters(path=path, **parameters), path / "data")
    return list(await benchmark.load_tasks(TaskSelection()))


def problems_of(toml: str) -> list[str]:
    with pytest.raises(TaskProblems) as caught:
        parse_task_toml(toml)
    return caught.value.problems


async def test_every_field_of_the_published_tasks_is_honoured(tmp_path: Path) -> None:
    write_task(tmp_path, "some-task", toml=TB2)
    (task,) = await load(tmp_path)

    assert (task.id, task.category) == ("some-task", "software-engineering")
    assert (task.budgets.start_s, task.budgets.agent_s) == (600, 1200)
    assert task.budgets.names["start"] == "environment.build_timeout_sec (or start_timeout_s)"
    assert task.budgets.names["agent"] == "agent.timeout_sec"
    assert task.budgets.grade_s > 900
    assert task.budgets.names["grade"].startswith("verifier.timeout_sec")
    wanted = {"docker_image": "someone/some-task:20251031", "cpus": 2, "memory_mb": 4096, "storage_mb": 10240}
    assert task.metadata.items() >= wanted.items()
    assert task.metadata["difficulty"] == "medium"
    assert task.metadata["tags"] == ["a", "b"]


async def test_a_byte_order_mark_before_task_toml_is_no_part_of_it(tmp_path: Path) -> None:
    write_task(tmp_path, "fix-git", toml=f"\ufeff{TB21}")
    (task,) = await load(tmp_path)

    assert task.metadata.items() >= {"memory_mb": 2048}.items()


@pytest.mark.parametrize("seconds", ["1e300", "31622401.0", "inf", "nan"])
@pytest.mark.parametrize("field", ["agent.timeout_sec", "verifier.timeout_sec", "environment.build_timeout_sec"])
def test_limits_that_no_clock_can_keep_are_refused(field: str, seconds: str) -> None:
    section, _, name = field.partition(".")
    (problem,) = problems_of(f"[{section}]\n{name} = {seconds}\n")

    assert problem.startswith(f" {field}: input should be")


async def test_a_limit_that_its_multiplier_makes_too_long_is_refused(tmp_path: Path) -> None:
    write_task(tmp_path, "fix-git", toml="[agent]\ntimeout_sec = 31622400.0\n" + '[environment]\ndocker_image = "a"\n')
    with pytest.raises(
        ConfigError, match=r"fix-git/agent\.timeout_sec x timeout_multiplier: .* longest limit"
    ) as caught:
        await load(tmp_path, timeout_multiplier=2)

    assert str(caught.value).isprintable()


def test_the_limit_of_the_start_may_change_when_a_run_is_resumed() -> None:
    for parameters in (TaskDirectoryParameters, QuickstartParameters):
        assert score_moving(parameters(start_timeout_s=3600, timeout_multiplier=2)) == {"timeout_multiplier": 2}


@pytest.mark.parametrize("seconds", [1e300, float("inf"), float("nan")])
@pytest.mark.parametrize("name", ["agent_timeout_s", "verifier_timeout_s", "start_timeout_s", "git_timeout_s"])
@pytest.mark.parametrize("parameters", [TaskDirectoryParameters, QuickstartParameters])
def test_parameters_that_no_clock_can_keep_are_refused(parameters: type[Parameters], name: str, seconds: float) -> None:
    with pytest.raises(ValidationError):
        parameters(**{name: seconds})


async def test_the_fields_of_the_newer_version_are_honoured(tmp_path: Path) -> None:
    write_task(tmp_path, "fix-git", toml=TB21)
    (task,) = await load(tmp_path)

    assert task.id == "fix-git"
    assert task.metadata.items() >= {"memory_mb": 2048, "storage_mb": 10240, "network": "public"}.items()


@pytest.mark.parametrize(
    ("toml", "problem"),
    [
        ('[[steps]]\nname = "a"', "steps: multi-step tasks: not supported"),
        ('multi_step_reward_strategy = "mean"', "multi_step_reward_strategy: multi-step tasks: not supported"),
        ('[verifier]\nenvironment_mode = "separate"', "verifier.environment_mode: a separate verifier environment"),
        ('[verifier.environment]\ndocker_image = "a"', "verifier.environment: a separate verifier environment"),
        ('[environment]\nos = "Windows"', "environment.os: Windows tasks: not supported"),
        ("[environment]\ngpus = 1", "environment.gpus: GPUs: not supported"),
        ('[environment]\ngpu_types = ["H100"]', "environment.gpu_types: GPU types: not supported"),
        ('[environment.tpu]\ntype = "v5"', "environment.tpu: TPUs: not supported"),
        ('[environment]\nnetwork_mode = "allowlist"', "environment.network_mode: a network with an allow list"),
        ('[environment]\nallowed_hosts = ["a"]', "environment.allowed_hosts: a list of allowed hosts: not supported"),
        ('[agent]\nnetwork_mode = "no-network"', "agent.network_mode: a network that differs from the environment's"),
        ('[verifier]\nnetwork_mode = "no-network"', "verifier.network_mode: a network that differs"),
        ('[environment]\nskills_dir = "/skills"', "environment.skills_dir: a folder of skills: not supported"),
        ('[[environment.mcp_servers]]\nname = "x"', "environment.mcp_servers: MCP servers: not supported"),
        ('[[verifier.collect]]\ncommand = "x"\nservice = "db"', "verifier.collect.0.service: input should be 'main'"),
        ('[[artifacts]]\nsource = "/a"\nexclude = ["b"]', "artifacts.0.exclude: patterns to exclude: not supported"),
        ('artifacts = ["/a/../b"]', "artifacts.0: source '/a/../b' has '..'"),
        ('[[artifacts]]\nsource = "/a"\ndestination = "/etc"', "artifacts.0: destination '/etc' is not a relative"),
        ('version = "2.0"', "version: '2.0': only versions 1.x of the format are supported"),
        ('version = "1.0"\nschema_version = "1.1"', "version: schema_version is given too"),
        ('[environment]\nmemory = "2G"\nmemory_mb = 1', "environment.memory: memory_mb is given too"),
        ('[environment]\nstorage = "2G"\nstorage_mb = 1', "environment.storage: storage_mb is given too"),
        ('[environment]\nmemory = "plenty"', "environment.memory: not a size"),
        ("[agent]\ntimeout_sec = 0", "agent.timeout_sec: input should be greater than 0"),
        ("[agent]\ntimeout_sec = inf", "agent.timeout_sec: input should be a finite number"),
        ('[agent]\ntimeout_sec = "900"', "agent.timeout_sec: input should be a valid number"),
        ('[environment]\nworkdir = "app"', "environment.workdir: 'app' is not an absolute path"),
        ('[environment.env]\nAGENTCOMPASS_ROOT = "/x"', "environment.env: 'AGENTCOMPASS_ROOT' cannot be set"),
        ('[task]\nname = "no-org"', "task.name: 'no-org' is not of the form 'org/name'"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(toml: str, problem: str) -> None:
    (told,) = problems_of(toml)

    assert told.startswith(f" {problem}")


@pytest.mark.parametrize(
    ("toml", "problem"),
    [
        ("[enviroment]", "enviroment: unknown field, did you mean 'environment'?"),
        ("[agent]\ntimeout_s = 3", "agent.timeout_s: unknown field, did you mean 'agent.timeout_sec'?"),
        ("timeout_sec = 3", "timeout_sec: unknown field, did you mean 'agent.timeout_sec'?"),
        (
            '[environment.healthcheck]\ncommand = "x"\nretry = 3',
            "environment.healthcheck.retry: unknown field, did you mean 'environment.healthcheck.retries'?",
        ),
        ("[agent]\nzzzzzz = 3", "agent.zzzzzz: unknown field"),
    ],
)
def test_an_unknown_field_is_refused_with_the_nearest_known_one(toml: str, problem: str) -> None:
    assert problems_of(toml) == [f" {problem}"]


def test_metadata_is_free() -> None:
    parsed = parse_task_toml("[metadata]\nanything = 1\n[metadata.at_all]\nday = 2025-01-01")

    assert parsed.metadata["anything"] == 1


async def test_broken_toml_is_told_with_file_and_line(tmp_path: Path) -> None:
    write_task(tmp_path, "torn", toml='version = "1.0"\n[agent\n')
    with pytest.raises(ConfigError) as caught:
        await load(tmp_path)

    assert str(caught.value).startswith("torn/task.toml:2: ")
    assert "\n" not in str(caught.value)


async def test_the_problems_of_all_tasks_are_told_one_a_line(tmp_path: Path) -> None:
    write_task(tmp_path, "a", toml=TASK_TOML + "gpus = 2\n")
    write_task(tmp_path, "b")
    (tmp_path / "b" / "instruction.md").write_text(" \n")
    write_task(tmp_path, "c", toml=TASK_TOML + 'memory = "1G"\nmemory_mb = 4\n')
    (tmp_path / "c" / "tests" / "test.sh").unlink()
    with pytest.raises(ConfigError) as caught:
        await load(tmp_path)

    assert str(caught.value).splitlines()[0].startswith("4 problems in the tasks of ")
    assert str(caught.value).splitlines()[1:] == [
        "a/task.toml environment.gpus: GPUs: not supported",
        "b/instruction.md: empty",
        "c/tests/test.sh: missing",
        "c/task.toml environment.memory: memory_mb is given too",
    ]


async def test_only_selected_tasks_must_be_sound(tmp_path: Path) -> None:
    write_task(tmp_path, "bad", toml="x")
    write_task(tmp_path, "good")
    benchmark = TaskDirectoryBenchmark(TaskDirectoryParameters(path=tmp_path), tmp_path)
    tasks = await benchmark.load_tasks(TaskSelection(sample_ids=("good",)))

    assert [task.id for task in tasks] == ["good"]


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"environment/docker-compose.yaml": "x"}, "environment/docker-compose.yaml: multi-container tasks"),
        ({"steps/one/instruction.md": "x"}, "steps: multi-step tasks: not supported"),
        ({"trajectory.json": "{}"}, "trajectory.json: a trajectory to start from: not supported"),
        ({"tests/.harborignore": "x"}, "tests/.harborignore: files that are not uploaded: not supported"),
        ({"instruction.md": b"\xff\xfe"}, "instruction.md: not UTF-8 at byte 0"),
    ],
)
async def test_a_layout_that_is_not_supported_is_refused_by_name(
    tmp_path: Path, files: dict[str, str | bytes], problem: str
) -> None:
    write_task(tmp_path, "task", files=files)
    with pytest.raises(ConfigError) as caught:
        await load(tmp_path)

    assert str(caught.value).startswith(f"task/{problem}")


async def test_a_task_without_image_and_dockerfile_is_refused(tmp_path: Path) -> None:
    write_task(tmp_path, "task", toml="")
    with pytest.raises(ConfigError, match=r"task/task\.toml environment\.docker_image: missing, and there is no"):
        await load(tmp_path)


async def test_a_link_that_leaves_the_task_is_refused(tmp_path: Path) -> None:
    task = write_task(tmp_path, "task", files={"environment/a.txt": "a"})
    (task / "environment" / "inside").symlink_to("a.txt")
    (task / "environment" / "outside").symlink_to(tmp_path)
    with pytest.raises(ConfigError) as caught:
        await load(tmp_path)

    assert str(caught.value) == "task/environment/outside: a symbolic link that leaves the task directory"


async def test_a_pipe_among_the_files_is_refused(tmp_path: Path) -> None:
    task = write_task(tmp_path, "task")
    os.mkfifo(task / "tests" / "pipe")
    with pytest.raises(ConfigError, match="task/tests/pipe: neither a file, a folder nor a link"):
        await load(tmp_path)


def test_one_task_directory_or_a_tasks_folder_will_do(tmp_path: Path) -> None:
    write_task(tmp_path / "repository" / "tasks", "b")
    write_task(tmp_path / "repository" / "tasks", "a")
    (tmp_path / "repository" / "README.md").write_text("x")

    assert list(find_tasks(tmp_path / "repository")) == ["a", "b"]
    assert list(find_tasks(tmp_path / "repository" / "tasks" / "b")) == ["b"]


@pytest.mark.parametrize("files", [{}, {"a/notes.txt": "x"}])
def test_a_folder_without_tasks_is_refused(tmp_path: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match="no task directory in"):
        find_tasks(tmp_path)


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no folder "):
        find_tasks(tmp_path / "missing")


@pytest.mark.parametrize(
    ("present", "problem"),
    [("instruction.md", "task.toml: missing"), ("task.yaml", "task.yaml: the 0.x format is not supported")],
)
def test_a_folder_that_is_half_a_task_is_told(tmp_path: Path, present: str, problem: str) -> None:
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / present).write_text("x")
    with pytest.raises(TaskProblems) as caught:
        read_task(find_tasks(tmp_path)["task"], "task")

    assert caught.value.problems == [problem]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("<!-- some-canary GUID 1 -->\n\nDo it.\n", "Do it.\n"),
        ("# BENCHMARK canary GUID\n# canary again\n\n\nDo it.\n\nThen stop.", "Do it.\n\nThen stop."),
        ("\n\nDo it.\n", "\n\nDo it.\n"),
        ("# Title\n<!-- canary -->\n", "# Title\n<!-- canary -->\n"),
        ("Find the canary.\r\n", "Find the canary.\r\n"),
    ],
)
def test_canary_lines_at_the_top_are_not_shown_to_the_agent(text: str, left: str) -> None:
    assert strip_canary(text) == left


@given(st.text())
def test_a_text_without_a_canary_is_shown_as_it_is(text: str) -> None:
    shown = strip_canary(text.replace("anary", ""))

    assert shown == text.replace("anary", "")


def test_the_checksum_follows_content_names_and_executable_bits(tmp_path: Path) -> None:
    task = write_task(tmp_path, "task", files={"environment/a.txt": "a"})
    first = checksum(task)
    (task / "environment" / "a.txt").chmod(0o600)
    same = checksum(task)
    (task / "environment" / "a.txt").chmod(0o700)
    executable = checksum(task)
    (task / "environment" / "a.txt").rename(task / "environment" / "b.txt")
    renamed = checksum(task)
    (task / "environment" / "b.txt").write_text("b")
    changed = checksum(task)

    assert same == first
    assert len({first, executable, renamed, changed}) == 4


@pytest.mark.parametrize("name", ["environment/repo/.git/HEAD", "tests/__pycache__/helper.pyc"])
def test_the_checksum_follows_all_that_a_sandbox_is_given(tmp_path: Path, name: str) -> None:
    task = write_task(tmp_path, "task", files={name: "a"})
    first = checksum(task)
    (task / name).write_text("b")

    assert checksum(task) != first


def test_the_checksum_follows_empty_folders_and_not_the_repository_of_the_task(tmp_path: Path) -> None:
    task = write_task(tmp_path, "task")
    first = checksum(task)
    (task / ".git").mkdir()
    (task / ".git" / "index").write_text("x")
    with_repository = checksum(task)
    (task / "environment" / "inbox").mkdir(parents=True)

    assert with_repository == first
    assert checksum(task) != first


def unreadable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the permissions would make it for whoever is not root."""
    for name in ("scandir", "listdir"):
        monkeypatch.setattr(os, name, partial(refusing, getattr(os, name), folder))


def refusing(call: Callable[[str], object], folder: Path, path: str) -> object:
    if Path(path) == folder:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))
    return call(path)


async def test_a_folder_that_cannot_be_read_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = write_task(tmp_path, "task", files={"tests/hidden/check.py": "x"})
    unreadable(task / "tests" / "hidden", monkeypatch)
    with pytest.raises(ConfigError) as caught:
        await load(tmp_path)

    assert str(caught.value) == "task/tests/hidden: Permission denied"


def test_a_folder_of_tasks_that_cannot_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unreadable(tmp_path, monkeypatch)
    with pytest.raises(ConfigError, match="cannot be read: Permission denied"):
        find_tasks(tmp_path)


async def test_a_folder_that_may_not_be_entered_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, stat = write_task(tmp_path, "task"), Path.stat

    def refusing(path: Path, **options: bool) -> os.stat_result:
        if path.parent == task / "tests":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", refusing)
    with pytest.raises(ConfigError) as caught:
        await load(tmp_path)

    assert str(caught.value) == "task/tests/test.sh: Permission denied"


def test_a_checksum_is_never_of_half_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kit" / "bin").mkdir(parents=True)
    unreadable(tmp_path / "kit" / "bin", monkeypatch)
    with pytest.raises(ConfigError, match="kit/bin' cannot be read: Permission denied"):
        checksum(tmp_path / "kit")


def broken(path: Path) -> object:
    """As a read of a bad disk fails, or of a network's: without the file's name."""
    raise OSError(errno.EIO, "Input/output error")


async def test_an_instruction_whose_read_fails_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_task(tmp_path, "task")
    monkeypatch.setattr(Path, "read_bytes", broken)
    with pytest.raises(ConfigError, match=r"task/instruction\.md: Input/output error"):
        await load(tmp_path)


def test_a_checksum_whose_read_fails_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_task(tmp_path, "task")
    monkeypatch.setattr(hashlib, "file_digest", lambda *_: broken(tmp_path))
    with pytest.raises(ConfigError, match=r"task' cannot be read: Input/output error"):
        checksum(tmp_path / "task")


def test_a_kit_whose_settings_cannot_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "env").write_text("A=1\n")
    monkeypatch.setattr(Path, "read_text", lambda path, *_: broken(path))
    with pytest.raises(ConfigError, match="cannot be read: Input/output error"):
        read_kit(tmp_path)


def test_a_kit_in_a_folder_that_may_not_be_entered_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(path: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_dir", refusing)
    with pytest.raises(ConfigError, match="kit' cannot be read: Permission denied"):
        read_kit(tmp_path / "kit")


def test_a_kit_of_a_user_who_is_not_there_is_told() -> None:
    with pytest.raises(ConfigError, match="verifier_kit: no folder '~no-such-user/kit'"):
        read_kit(Path("~no-such-user/kit"))


async def test_tasks_of_a_user_who_is_not_there_are_told(tmp_path: Path) -> None:
    parameters = TaskDirectoryParameters(path=Path("~no-such-user/tasks"))
    with pytest.raises(ConfigError, match="no folder '.*/~no-such-user/tasks'"):
        await TaskDirectoryBenchmark(parameters, tmp_path).load_tasks(TaskSelection())


async def test_a_file_that_is_only_a_pointer_to_its_content_is_refused(tmp_path: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n"
    write_task(tmp_path, "task", files={"tests/data.bin": pointer})
    with pytest.raises(
        ConfigError, match=r"^task/tests/data\.bin: a Git LFS pointer, not the file: run `git lfs pull`"
    ):
        await load(tmp_path)


def test_variables_come_from_the_parameter_and_from_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_RUNNER", "leak")
    env = {"A": "${GIVEN}-${GIVEN:-x}", "B": "${SECRET_OF_THE_RUNNER:-default}", "C": "${EMPTY:-}", "D": "$HOME ${ "}

    assert interpolated(env, {"GIVEN": "g"}, "verifier.env") == {"A": "g-g", "B": "default", "C": "", "D": "$HOME ${ "}


def test_every_variable_that_is_not_declared_is_refused_by_name() -> None:
    with pytest.raises(TaskProblems) as caught:
        interpolated({"A": "${ONE}${TWO}", "B": "${X:?no}"}, {}, "verifier.env")

    assert caught.value.problems == [
        " verifier.env.A: ${ONE} needs the benchmark parameter variables.ONE",
        " verifier.env.A: ${TWO} needs the benchmark parameter variables.TWO",
        " verifier.env.B: '${X:?no}' is not of the form ${NAME} or ${NAME:-default}",
    ]


@pytest.mark.parametrize("section", ["environment", "verifier", "solution"])
async def test_an_undeclared_variable_is_refused_when_the_task_is_loaded(tmp_path: Path, section: str) -> None:
    write_task(tmp_path, "task", toml=f'{TASK_TOML}[{section}.env]\nKEY = "${{MY_KEY}}"\n')
    with pytest.raises(ConfigError, match=rf"task/task\.toml {section}\.env\.KEY: .* needs .* variables\.MY_KEY"):
        await load(tmp_path)

    assert len(await load(tmp_path, variables={"MY_KEY": "x"})) == 1


async def test_limits_can_be_replaced_and_multiplied_and_keep_the_name_that_sets_them(tmp_path: Path) -> None:
    write_task(tmp_path, "task", toml='[environment]\ndocker_image = "a"\n')
    (plain,) = await load(tmp_path)
    (changed,) = await load(tmp_path, agent_timeout_s=10, start_timeout_s=20, verifier_timeout_s=30)
    (doubled,) = await load(tmp_path, timeout_multiplier=2)

    assert (plain.budgets.agent_s, plain.budgets.names["agent"]) == (3600, "agent_timeout_s")
    assert (changed.budgets.agent_s, changed.budgets.start_s) == (10, 20)
    assert [changed.budgets.names[stage] for stage in ("agent", "start")] == ["agent_timeout_s", "start_timeout_s"]
    assert changed.budgets.names["grade"].startswith("verifier_timeout_s")
    assert (doubled.budgets.agent_s, doubled.budgets.start_s) == (7200, 1200)
    assert doubled.budgets.names["agent"] == "agent_timeout_s x timeout_multiplier"


FACTOR = "max(1, timeout_multiplier)"


async def test_the_limits_around_the_agent_are_called_by_the_setting_that_raises_them(tmp_path: Path) -> None:
    check = '[environment.healthcheck]\ncommand = "x"\nretries = 1\ninterval_sec = 1.0\ntimeout_sec = 4.0\n'
    hook = '[[verifier.collect]]\ncommand = "x"\ntimeout_sec = 50.0\n'
    write_task(tmp_path / "plain", "task")
    write_task(tmp_path / "more", "task", toml=TASK_TOML + check + hook)
    (plain,) = await load(tmp_path / "plain")
    (more,) = await load(tmp_path / "more", timeout_multiplier=2)

    assert (plain.budgets.prepare_s, plain.budgets.collect_s) == (300, 300)
    assert {plain.budgets.name(stage) for stage in ("prepare", "collect")} == {f"300 s x {FACTOR}"}
    assert (more.budgets.prepare_s, more.budgets.collect_s) == (2 * (300 + 2 * (1 + 4)), 2 * (300 + 50))
    assert more.budgets.name("prepare") == f"(300 s + environment.healthcheck) x {FACTOR}"
    assert more.budgets.name("collect") == f"(300 s + verifier.collect) x {FACTOR}"


async def test_a_factor_below_one_shortens_no_limit_around_the_agent(tmp_path: Path) -> None:
    write_task(tmp_path, "task")
    (task,) = await load(tmp_path, timeout_multiplier=0.5)

    assert (task.budgets.prepare_s, task.budgets.collect_s) == (300, 300)
    assert task.budgets.name("collect") == f"300 s x {FACTOR}"


async def test_a_limit_around_the_agent_that_is_too_long_is_refused_as_all_others(tmp_path: Path) -> None:
    hook = '[[verifier.collect]]\ncommand = "x"\ntimeout_sec = 31622400.0\n'
    write_task(tmp_path, "task", toml=TASK_TOML + hook)
    with pytest.raises(ConfigError, match=r"task/\(300 s \+ verifier\.collect\) x .*: .* longest limit"):
        await load(tmp_path)


async def test_dates_and_odd_numbers_of_metadata_become_text(tmp_path: Path) -> None:
    extra = "day = 2025-01-02\nrate = nan\nlist = [{ at = 10:00:00 }]\n"
    write_task(tmp_path, "task", toml=TASK_TOML.replace("[metadata]\n", f"[metadata]\n{extra}"))
    (task,) = await load(tmp_path)

    free = {"day": "2025-01-02", "rate": "nan", "list": [{"at": "10:00:00"}]}
    assert isinstance(task.metadata["metadata"], dict)
    assert task.metadata["metadata"].items() >= free.items()


_SCALARS = st.one_of(st.booleans(), st.integers(), st.text(max_size=8), st.floats())
_KEYS = st.sampled_from(
    ["version", "steps", "artifacts", "task", "metadata", "agent", "verifier", "environment", "solution", "odd"]
)
_INNER = st.sampled_from(
    ["timeout_sec", "user", "env", "memory", "memory_mb", "gpus", "network_mode", "healthcheck", "collect", "os", "x"]
)


def told(toml: str) -> list[str]:
    try:
        parse_task_toml(toml)
    except TaskProblems as exc:
        return exc.problems
    return []


@given(st.text(max_size=200))
def test_junk_is_never_anything_but_a_list_of_problems(text: str) -> None:
    assert all("\n" not in problem for problem in told(text))


@given(st.dictionaries(_KEYS, st.one_of(_SCALARS, st.dictionaries(_INNER, st.one_of(_SCALARS, st.lists(_SCALARS))))))
def test_toml_of_the_wrong_shape_is_never_anything_but_a_list_of_problems(data: dict[str, object]) -> None:
    lines = [f"{key} = {_toml(value)}" for key, value in data.items()]

    assert all("\n" not in problem for problem in told("\n".join(lines)))


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{name} = {_toml(item)}' for name, item in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):
        return '"' + "".join(f"\\U{ord(character):08x}" for character in value) + '"'
    return str(value).lower()
