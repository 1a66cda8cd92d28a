"""What an agent's container holds and reaches, and whose verdict counts, in tasks run from the command line."""

import json
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agentcompass.testing.task_folders import REWARD, write_task
from docker import APIClient
from fake_registry import serving
from running import (
    FOLLOW_INSTRUCTION,
    Ended,
    Run,
    a_run,
    agentcompass,
    task_directory,
    task_toml,
)

pytestmark = pytest.mark.docker

ODD_NAME = "Größe (größer) 'x'"
SECRET = f"secret-{secrets.token_hex(6)}"
CORRECT = f"#!/bin/bash\necho 1 > {REWARD}\n"
WRONG = f"#!/bin/bash\necho 0 > {REWARD}\n"
LOOK = f"""ls -a / /logs /logs/*
find / -xdev -name '*{SECRET}*'
grep -rls '{SECRET[:6]}''{SECRET[6:]}' / --exclude-dir=proc --exclude-dir=sys
ls -d /tests /solution /oracle /verifier-kit /.staged*
env"""
FORGE = (
    "mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt; echo '{\"reward\": 1}' > /logs/verifier/reward.json"
)
CONNECT = """read -r hex < <(awk '$2 == "00000000" {print $3}' /proc/net/route)
gateway=$((16#${hex:6:2})).$((16#${hex:4:2})).$((16#${hex:2:2})).$((16#${hex:0:2}))
ls /sys/class/net
if timeout 5 bash -c "exec 3<> /dev/tcp/${gateway:-172.17.0.1}/PORT"; then echo reached; else echo out of reach; fi
if timeout 20 getent hosts localhost.example.org; then echo resolved; fi"""


class Suite:
    """One run of many tasks, each a case."""

    def __init__(self, folder: Path, image: str, missing: str, port: int) -> None:
        self._folder, self._image = folder, image
        self._see()
        self._grade()
        self._specify(missing, port)
        self.run: Run = a_run(folder / "results")
        self.ended: Ended = agentcompass(
            *("run", "task_directory", "command", "none", "--env", "docker"),
            *(*task_directory(folder / "tasks"), "--harness-params", FOLLOW_INSTRUCTION, *self.run.place),
            *("--env-params", json.dumps({"start_tries": 2}), "--max-retries", "0"),
            scratch=folder,
        )
        self.attempts: dict[str, Any] = self.run.attempts()

    def said(self, task: str) -> str:
        """What the task's agent printed."""
        return self.run.log(task, "agent.txt")

    def _task(
        self, name: str, script: str, test: str = CORRECT, files: dict[str, str] | None = None, **toml: Any
    ) -> None:
        text = task_toml(toml.pop("image", self._image), **toml)
        write_task(self._folder / "tasks", name, toml=text, instruction=f"{script}\n", test=test, files=files)

    def _see(self) -> None:
        hidden = {f"tests/{SECRET}.txt": SECRET, f"solution/{SECRET}.txt": SECRET}
        test = f"#!/bin/bash\n[ -e /tests/{SECRET}.txt ] && [ ! -e /solution ] && echo 1 > {REWARD}\n"
        self._task("looks", LOOK, test, hidden)

    def _grade(self) -> None:
        self._task("forges-and-fails", FORGE, WRONG)
        self._task("forges-and-no-verdict", FORGE, "#!/bin/bash\necho nothing to say\n")
        self._task("no-verdict", "true", "#!/bin/bash\necho nothing to say; exit 3\n")
        self._task("slow-tests", "true", "#!/bin/bash\necho begun; sleep 600\n", verifier_s=2)
        self._task("agent-fails", "exit 5", CORRECT)

    def _specify(self, missing: str, port: int) -> None:
        connect = CONNECT.replace("PORT", str(port))
        self._task("online", connect)
        self._task("offline", connect, environment="allow_internet = false")
        self._task("environment", 'echo "$GREETING"; pwd', environment='env = { GREETING = "good day" }')
        self._task("user", "id -un; echo 42 > /tmp/mine", agent='user = "nobody"')
        self._task(
            "limits",
            "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes",
            environment="memory_mb = 64",
        )
        dockerfile = (
            f"FROM {self._image}\nCOPY data.txt /built/data.txt\nRUN tr a-z A-Z < /built/data.txt > /built/upper.txt\n"
        )
        files = {"environment/Dockerfile": dockerfile, "environment/data.txt": SECRET}
        self._task("built", "cat /built/upper.txt", files=files, image=None)
        self._task("missing", "true", image=missing)
        self._task(ODD_NAME, "echo done")


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory, debian_image: str, docker_client: APIClient) -> Iterator[Suite]:
    listening = socket.create_server(("0.0.0.0", 0))
    with serving(b"") as registry, listening:
        registry.refusals.extend([(404, "MANIFEST_UNKNOWN")] * 100)
        port = listening.getsockname()[1]
        suite = Suite(tmp_path_factory.mktemp("seen"), debian_image, registry.name("missing"), port)
        yield suite
        for sandbox in suite.attempts["built"]["sandboxes"]:
            docker_client.remove_image(sandbox["image"])


def test_an_agent_sees_neither_tests_nor_solution(suite: Suite) -> None:
    said = suite.said("looks")

    assert "verifier" in said
    assert SECRET not in said
    assert "tests" not in said.replace("cannot access '/tests'", "")
    assert suite.attempts["looks"]["score"] == 1


def test_an_agents_own_verdict_does_not_count(suite: Suite) -> None:
    assert suite.attempts["forges-and-fails"]["score"] == 0


@pytest.mark.parametrize("task", ["no-verdict", "forges-and-no-verdict"])
def test_tests_that_leave_no_verdict_are_an_error(suite: Suite, task: str) -> None:
    attempt = suite.attempts[task]

    assert (attempt["status"], attempt["score"]) == ("eval_error", None)
    assert attempt["failure"]["kind"] == "VerdictMissing"
    assert "no reward.txt or reward.json" in attempt["error"]
    assert suite.run.log(task, "verifier/test-stdout.txt") == "nothing to say\n"


def test_tests_over_their_limit_are_an_error_that_names_it(suite: Suite) -> None:
    attempt = suite.attempts["slow-tests"]

    assert (attempt["status"], attempt["failure"]["limit"]) == ("eval_error", "verifier.timeout_sec")
    assert "limit verifier.timeout_sec of 2 s reached after 2." in attempt["error"]
    assert suite.run.log("slow-tests", "verifier/test-stdout.txt") == "begun\n"


def test_an_agent_that_ends_with_an_error_is_graded_all_the_same(suite: Suite) -> None:
    attempt = suite.attempts["agent-fails"]

    assert (attempt["exit_reason"], attempt["score"]) == ("agent_error", 1)
    assert attempt["extra"]["harness"]["exit_code"] == 5


def test_a_task_may_be_without_a_network(suite: Suite) -> None:
    assert "\nout of reach\n" in suite.said("offline")
    assert "resolved" not in suite.said("offline")
    assert "eth0" not in suite.said("offline")


def test_a_task_has_a_network_unless_it_says_otherwise(suite: Suite) -> None:
    assert "\nreached\n" in suite.said("online")


def test_variables_and_working_directory_of_the_task_hold(suite: Suite) -> None:
    assert suite.said("environment") == "good day\n/app\n"


def test_the_agent_runs_as_the_tasks_user(suite: Suite) -> None:
    assert suite.said("user") == "nobody\n"


def test_the_tasks_memory_is_the_containers_limit(suite: Suite) -> None:
    assert str(64 << 20) in suite.said("limits")


def test_a_task_without_an_image_has_its_dockerfile_built(suite: Suite) -> None:
    assert suite.said("built") == SECRET.upper()
    assert suite.attempts["built"]["score"] == 1


def test_a_tasks_name_may_be_any_folders(suite: Suite) -> None:
    assert suite.attempts[ODD_NAME]["score"] == 1
    assert suite.said(ODD_NAME) == "done\n"


def test_an_image_that_is_nowhere_is_an_error_of_its_task_alone(suite: Suite) -> None:
    attempt = suite.attempts["missing"]

    assert suite.ended.code == 1
    assert (attempt["status"], attempt["score"]) == ("run_error", None)
    assert (attempt["failure"]["stage"], attempt["failure"]["kind"]) == ("start", "SandboxStartFailed")
    assert "/missing:latest" in attempt["error"]
    assert {name for name, one in suite.attempts.items() if one["status"] == "run_error"} == {"missing"}
