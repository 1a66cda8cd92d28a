"""mini-swe-agent in containers, on a model over HTTP: what it does, what is stored of it, how it is graded."""

import json
import re
from pathlib import Path

import pytest
from agentcompass.testing.task_folders import REWARD
from openai_server import Answer, Call, OpenAIServer
from running import (
    LOCAL_IMAGES,
    SUBMIT,
    Ended,
    Run,
    a_run,
    agentcompass,
    asked_of,
    obey,
    task_directory,
    write_do_task,
)

pytestmark = pytest.mark.docker

COMMAND_LIMIT_S = 2
ALIVE = """for place in /proc/[0-9]*; do
  case $(tr '\\0' ' ' < $place/cmdline 2> /dev/null) in "sleep 600 "*) echo alive ;; esac
done"""
ANSWER_DAEMON = """mkfifo /tmp/asked /tmp/told
(while read -r question < /tmp/asked; do echo "heard $question" > /tmp/told; done) &
echo started"""
ASK_DAEMON = f"""#!/bin/bash
timeout 10 sh -c 'echo hello > /tmp/asked' && told=$(timeout 10 cat /tmp/told)
[ "$told" = "heard hello" ] && echo 1 > {REWARD} || echo 0 > {REWARD}
"""
TASKS = {
    "right": ("echo 42 > answer.txt", "cat answer.txt"),
    "wrong": ("echo 41 > answer.txt",),
    "command-limit": (
        f"sleep 600 & {ALIVE} > seen.txt; kill $!",
        "echo early; sleep 600",
        f'[ "$(cat seen.txt)" = alive ] && [ -z "$({ALIVE})" ] && echo 42 > answer.txt',
    ),
    "daemon": (ANSWER_DAEMON,),
    "fails": ("exit 7", "cat /no/such/file", "echo 42 > answer.txt"),
}


class Story:
    """One run of all the tasks, and how long each trajectory was when the model was asked."""

    def __init__(self, folder: Path, image: str) -> None:
        self.run = a_run(folder)
        self.on_disk: dict[str, list[int]] = {}
        self._words = {
            write_do_task(
                folder / "tasks", name, image, *commands, **({"test": ASK_DAEMON} if name == "daemon" else {})
            ): name
            for name, commands in TASKS.items()
        }
        with OpenAIServer(self._answer) as server:
            self.ended: Ended = agentcompass(
                *("run", "task_directory", "mini_swe_agent", "scripted", "--env", "docker", *LOCAL_IMAGES),
                *(*task_directory(folder / "tasks"), "--model-base-url", server.url),
                *("--harness-params", json.dumps({"timeout": COMMAND_LIMIT_S}), *self.run.place),
                scratch=folder,
            )
            self.calls = server.calls

    def _answer(self, asked: Call) -> Answer:
        task = self._words[asked_of(asked)]
        self.on_disk.setdefault(task, []).append(len(self.run.steps(task)))
        return obey(asked)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, debian_image: str) -> Story:
    return Story(tmp_path_factory.mktemp("mini"), debian_image)


@pytest.fixture(scope="module")
def run(story: Story) -> Run:
    return story.run


def test_every_task_is_graded_by_its_own_tests(story: Story) -> None:
    told = {task: attempt["score"] for task, attempt in story.run.attempts().items()}

    assert story.ended.code == 0, story.ended.err
    assert told == {"right": 1, "wrong": 0, "command-limit": 1, "daemon": 1, "fails": 1}


def test_each_ends_as_submitted(run: Run) -> None:
    assert {attempt["exit_reason"] for attempt in run.attempts().values()} == {"submitted"}


def test_the_model_is_offered_the_shell_as_a_tool(story: Story) -> None:
    body = story.calls[0].body

    assert [tool["function"]["name"] for tool in body["tools"]] == ["bash"]
    assert body["model"] == "scripted"
    assert story.calls[0].path == "/v1/chat/completions"


def test_steps_have_what_was_said_and_what_came_of_it(run: Run) -> None:
    first, second, last = run.steps("right")

    assert "<do>" in first["user_content"]
    assert "helpful assistant" in first["system_prompt"]
    assert [step["step_id"] for step in (first, second, last)] == [1, 2, 3]
    assert second["assistant_content"]["content"] == "Command 2."
    assert json.loads(second["assistant_content"]["tool_calls"][0]["arguments"]) == {"command": "cat answer.txt"}
    assert "42" in second["observation"]
    assert SUBMIT in last["assistant_content"]["tool_calls"][0]["arguments"]
    assert second["metric"]["prompt_tokens_len"] == 100
    assert second["metric"]["env_action_ms"] > 0


def test_steps_are_on_disk_before_the_next_is_asked_for(story: Story) -> None:
    assert story.on_disk["right"] == [0, 1, 2]


def test_usage_is_summed(run: Run) -> None:
    usage = run.attempts()["right"]["usage"]

    assert (usage["input_tokens"], usage["output_tokens"]) == (300, 30)
    assert run.summary()["usage"]["input_tokens"] == 100 * sum(len(commands) + 1 for commands in TASKS.values())


def test_cost_is_unknown_without_a_price(run: Run) -> None:
    assert run.attempts()["right"]["usage"]["cost_usd"] is None
    assert run.summary()["usage"]["cost_usd"] is None


def test_a_command_over_its_limit_is_dead_and_told_of_with_its_limit(run: Run) -> None:
    cut = run.steps("command-limit")[1]["observation"]

    assert "early" in cut
    assert re.search(rf"command limit {COMMAND_LIMIT_S} s reached after [2-9]\.\d s", cut)
    assert run.attempts()["command-limit"]["correct"]


def test_a_daemon_is_left_alone_and_serves_the_verifier(run: Run) -> None:
    assert json.loads(run.steps("daemon")[0]["observation"]) == {"returncode": 0, "output": "started\n"}
    assert run.attempts()["daemon"]["correct"]


def test_a_failed_command_is_told_with_its_status(run: Run) -> None:
    first, second = (json.loads(step["observation"]) for step in run.steps("fails")[:2])

    assert first["returncode"] == 7
    assert "No such file" in second["output"]
