"""Task directories in containers: users, images without bash, and forged start-up files."""

import os
from pathlib import Path

import pytest
from agentcompass.adapters.benchmarks.task_directory.benchmark import TaskDirectoryBenchmark, TaskDirectoryParameters
from agentcompass.adapters.environments.docker.endpoint import resolve_endpoint
from agentcompass.adapters.environments.docker.environment import DockerEnvironment, DockerParameters
from agentcompass.adapters.recipes.task_directory import TaskDirectoryRecipe
from agentcompass.domain.resolving import resolve_spec
from agentcompass.domain.sandbox import Command
from agentcompass.domain.task import Grade, TaskSelection
from agentcompass.testing.benchmark import a_context
from agentcompass.testing.environment import an_owner
from agentcompass.testing.task_folders import ANSWER_TEST, REWARD, TASK_TOML, write_task
from docker import APIClient

pytestmark = pytest.mark.docker


async def graded(
    folder: Path, image: str, agent: str, *, test: str = ANSWER_TEST, toml: str = TASK_TOML, user: str | None = None
) -> Grade:
    """The grade of a made-up task in which the agent ran the script `agent`."""
    write_task(folder / "tasks", "task", test=test, toml=toml.replace("debian:bookworm-slim", image))
    benchmark = TaskDirectoryBenchmark(TaskDirectoryParameters(path=folder / "tasks"), folder)
    (task,) = await benchmark.load_tasks(TaskSelection())
    spec = resolve_spec({}, TaskDirectoryRecipe()(task, DockerEnvironment.capabilities), {"user": user}, 300)
    context = a_context(task, folder)
    async with DockerEnvironment(DockerParameters(pull_policy="never")).open(spec, an_owner()) as sandbox:
        prepared = await benchmark.prepare(task, sandbox, context)
        worked = await sandbox.exec(Command(script=agent, timeout_s=60))
        assert worked.ok, worked.stderr
        submission = await benchmark.collect(prepared, sandbox, None, context)
        return await benchmark.grade(prepared, submission, sandbox, context)


async def test_tests_run_as_the_verifiers_user_in_a_sandbox_of_root(tmp_path: Path, debian_image: str) -> None:
    toml = TASK_TOML.replace("[verifier]\n", '[verifier]\nuser = "nobody"\n')
    test = f"#!/bin/bash\nid -un\n[ -w /tests/test.sh ] || echo 1 > {REWARD}\n"
    grade = await graded(tmp_path, debian_image, "true", test=test, toml=toml)

    assert isinstance(grade.extra["verify_log"], dict)
    assert grade.correct
    assert grade.extra["verify_log"]["test_stdout"] == "nobody\n"


async def test_a_sandbox_of_another_user_is_graded_all_the_same(tmp_path: Path, debian_image: str) -> None:
    test = f"#!/bin/bash\nid -un\necho 1 > {REWARD}\n"
    grade = await graded(tmp_path, debian_image, "echo 1 > /logs/verifier/reward.txt", test=test, user="nobody")

    assert isinstance(grade.extra["verify_log"], dict)
    assert grade.extra["verify_log"]["test_stdout"] == "nobody\n"


@pytest.mark.parametrize(("answer", "score"), [("42", 1), ("41", 0)])
async def test_an_image_without_bash_runs_the_tests_with_sh(
    tmp_path: Path, busybox_image: str, answer: str, score: int
) -> None:
    grade = await graded(tmp_path, busybox_image, f"echo {answer} > answer.txt")

    assert grade.score == score


@pytest.mark.parametrize("place", ["/usr/lib/python3/dist-packages", "$(python3 -m site --user-site)"])
async def test_start_up_files_of_python_that_the_agent_left_do_not_run(
    tmp_path: Path, python_image: str, place: str
) -> None:
    agent = f"""set -e; place={place}; mkdir -p "$place"
    for name in sitecustomize usercustomize; do
      printf 'open("/logs/verifier/reward.txt", "w").write("1"); import os; os._exit(0)\\n' > "$place/$name.py"
      touch -d 2001-01-01 "$place/$name.py"
    done"""
    test = f"#!/bin/bash\necho 0 > {REWARD}\npython3 -c 'print(\"the tests ran\")'\n"
    grade = await graded(tmp_path, python_image, agent, test=test)

    assert isinstance(grade.extra["verify_log"], dict)
    assert grade.score == 0
    assert grade.extra["verify_log"]["test_stdout"] == "the tests ran\n"
    assert grade.extra["verify_log"]["removed"]


FORGE = 'open("/logs/verifier/reward.txt", "w").write("1"); import os; os._exit(0)'
COMPILE = (
    "python3 -c 'import sys; from py_compile import *; "
    'compile("/code", sys.argv[1], invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)\''
)
PYTHON = "$(python3 -c 'import sysconfig; print(sysconfig.get_path(\"stdlib\"))')"


@pytest.mark.parametrize(
    "plant",
    [
        "cat code > /usr/lib/python3.11/sitecustomize.py",
        f"mkdir {PYTHON}/usercustomize; cp code {PYTHON}/usercustomize/__init__.py",
        f"{COMPILE} /usr/lib/python3/dist-packages/usercustomize.pyc",
        f"{COMPILE} {PYTHON}/__pycache__/sitecustomize.cpython-311.pyc",
    ],
)
async def test_start_up_files_of_python_in_any_form_do_not_run(tmp_path: Path, python_image: str, plant: str) -> None:
    agent = f"set -e; cd /; cat > code <<'END'\n{FORGE}\nEND\n{plant}"
    test = f"#!/bin/bash\necho 0 > {REWARD}\npython3 -c 'print(\"the tests ran\")'\n"
    grade = await graded(tmp_path, python_image, agent, test=test)

    assert isinstance(grade.extra["verify_log"], dict)
    assert grade.score == 0
    assert grade.extra["verify_log"]["test_stdout"] == "the tests ran\n"


@pytest.mark.parametrize(
    "folder",
    [
        "/root/.local/share/uv/python/cpython-3.13/lib/python3.13/site-packages",
        "/root/.local/share/uv/tools/pytest/lib/python3.13/site-packages",
        "/root/.cache/uv/archive-v0/a/lib/python3.13/site-packages",
        "/root/.cache/uv/archive-v0/a",
    ],
)
async def test_start_up_files_in_what_uv_keeps_are_removed(tmp_path: Path, debian_image: str, folder: str) -> None:
    agent = f"mkdir -p {folder}; echo > {folder}/sitecustomize.py; echo > {folder}/other.py"
    test = f"#!/bin/bash\nls {folder}\necho 1 > {REWARD}\n"
    grade = await graded(tmp_path, debian_image, agent, test=test)

    assert isinstance(grade.extra["verify_log"], dict)
    assert grade.extra["verify_log"]["test_stdout"] == "other.py\n"
    assert grade.extra["verify_log"]["removed"] == [f"{folder}/sitecustomize.py"]


async def test_start_up_files_of_the_image_itself_stay(tmp_path: Path, python_image: str) -> None:
    test = f"#!/bin/bash\npython3 -c 'import sitecustomize; print(sitecustomize.__file__)'\necho 1 > {REWARD}\n"
    grade = await graded(tmp_path, python_image, "true", test=test)

    assert isinstance(grade.extra["verify_log"], dict)
    assert "removed" not in grade.extra["verify_log"]
    assert str(grade.extra["verify_log"]["test_stdout"]).endswith("sitecustomize.py\n")


async def test_tools_that_the_agent_put_in_are_told_and_stay(tmp_path: Path, debian_image: str) -> None:
    agent = (
        "sleep 2; printf '#!/bin/sh\\n' > /usr/local/bin/grep; printf x > /usr/local/bin/mine; echo >> /root/.bashrc"
    )
    test = f"#!/bin/bash\n[ -e /usr/local/bin/grep ] && echo 1 > {REWARD}\n"
    grade = await graded(tmp_path, debian_image, agent, test=test)

    assert isinstance(grade.extra["verify_log"], dict)
    assert grade.correct
    assert grade.extra["verify_log"]["changed_tools"] == ["/usr/local/bin/grep", "/root/.bashrc"]


async def test_nothing_is_told_of_the_tools_of_the_image_itself(tmp_path: Path, debian_image: str) -> None:
    grade = await graded(tmp_path, debian_image, "true")

    assert isinstance(grade.extra["verify_log"], dict)
    assert "changed_tools" not in grade.extra["verify_log"]


@pytest.mark.parametrize("user", [None, "nobody"])
@pytest.mark.parametrize("loss", ["rm -rf /app", "rm -rf /app; touch /app"])
async def test_a_container_without_its_working_directory_is_graded_all_the_same(
    tmp_path: Path, debian_image: str, loss: str, user: str | None
) -> None:
    toml = TASK_TOML.replace("[verifier]\n", f'[verifier]\nuser = "{user}"\n' if user else "[verifier]\n")
    grade = await graded(tmp_path, debian_image, f"cd /; {loss}", toml=toml)

    assert grade.score == 0


@pytest.mark.parametrize(("answer", "score"), [("42", 1), ("41", 0)])
async def test_an_image_with_volumes_where_the_verifier_works_is_graded(
    tmp_path: Path, debian_image: str, answer: str, score: int
) -> None:
    folder = tmp_path / "image"
    folder.mkdir()
    (folder / "Dockerfile").write_text(f"FROM {debian_image}\nVOLUME /tests\nVOLUME /logs/verifier\n")
    client = APIClient(base_url=resolve_endpoint(None, None, os.environ).url)
    tag = "agentcompass-test/volumes:latest"
    for _ in client.build(path=str(folder), tag=tag, rm=True, decode=True):
        pass
    client.close()
    agent = f"echo {answer} > answer.txt; echo 1 > /logs/verifier/reward.txt; echo exit > /tests/test.sh"
    grade = await graded(tmp_path, tag, agent)

    assert grade.score == score


async def test_a_container_whose_processes_clear_the_verifiers_folder_is_graded(
    tmp_path: Path, debian_image: str
) -> None:
    test = f"#!/bin/bash\nsleep 0.3\necho 0 > {REWARD}\n"
    loop = "while :; do rm -rf /logs/verifier; mkdir /logs/verifier; sleep 0.01; done"
    grade = await graded(tmp_path, debian_image, f"setsid sh -c '{loop}' > /dev/null 2>&1 < /dev/null &", test=test)

    assert isinstance(grade.extra["verify_log"], dict)
    assert grade.score == 0
    assert grade.extra["verify_log"]["processes_killed"] is True


@pytest.mark.parametrize(("name", "verdict"), [("reward.txt", "1"), ("reward.json", '{"reward": 1}')])
async def test_a_process_that_goes_on_writing_the_verdict_does_not_decide_it(
    tmp_path: Path, debian_image: str, name: str, verdict: str
) -> None:
    loop = f"while :; do mkdir -p /logs/verifier; echo '{verdict}' > /logs/verifier/{name}; sleep 0.005; done"
    agent = f'cat > /loop.sh <<"END"\n{loop}\nEND\nsetsid sh /loop.sh > /dev/null 2>&1 < /dev/null &'
    grade = await graded(tmp_path, debian_image, agent, test=f"#!/bin/bash\necho 0 > {REWARD}\n")

    assert isinstance(grade.extra["verify_log"], dict)
    assert grade.score == 0
    assert grade.extra["verify_log"]["processes_killed"] is True
