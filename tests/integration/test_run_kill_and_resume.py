"""A run of 40 tasks in containers, killed with kill -9 in the middle: resumed, it equals one that nobody disturbed."""

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from docker import APIClient
from openai_server import Answer, Call, OpenAIServer
from running import LOCAL_IMAGES, Ended, Run, Running, a_run, agentcompass, asked_of, obey, task_directory
from running import write_do_task as write

pytestmark = pytest.mark.docker

TASKS = 24
AT_ONCE = 8
SCORED_BEFORE_THE_KILL = 6
OF_THE_MOMENT = {"started_at", "ended_at", "timings", "id", "duration_s", "tries", "artifacts"}
"""Times, ids, and what is left of tries that were cut."""


class Story:
    """What happened, in order; and who asked the model how often, before the kill and after it."""

    def __init__(self, folder: Path, image: str, client: APIClient) -> None:
        self.cut, self.whole = a_run(folder), a_run(folder)
        self._words = {
            write(
                folder / "tasks", f"task-{number:02}", image, f"echo {42 if number % 4 else 41} > answer.txt"
            ): f"task-{number:02}"
            for number in range(TASKS)
        }
        self._lock = threading.Lock()
        self._asked: Counter[str] = Counter()
        with OpenAIServer(self._answer) as server:
            self._folder, self._url = folder, server.url
            self._tell(client)

    def _tell(self, client: APIClient) -> None:
        with self._started(self.cut) as running:
            running.until(lambda: len(self.cut.scored()) >= SCORED_BEFORE_THE_KILL, "scored tasks")
            running.kill()
        self.scored_before = self.cut.scored()
        self.files_before = {task: self._file(task) for task in self.scored_before}
        self.left = self.cut.containers(client)
        self._next_count()
        self.cleanup = self._cleanup(self.cut)
        self.left_after_cleanup = self.cut.containers(client)
        with self._started(self.whole) as running:
            running.until(lambda: self.whole.containers(client), "container of the undisturbed run")
            self.cleanup_of_the_live = self._cleanup(self.whole)
            self.whole_ended = running.ended()
        self._next_count()
        with self._started(self.cut) as running:
            self.resumed = running.ended()
        self.asked_by_the_resumed = self._next_count()
        self.left_at_the_end = self.cut.containers(client) | self.whole.containers(client)

    def _started(self, run: Run) -> Running:
        return Running(
            *("run", "task_directory", "mini_swe_agent", "scripted", "--env", "docker", *LOCAL_IMAGES),
            *(*task_directory(self._folder / "tasks"), "--model-base-url", self._url, *run.place),
            *("--task-concurrency", str(AT_ONCE), "--progress", "plain"),
            scratch=self._folder,
        )

    def _cleanup(self, run: Run) -> Ended:
        # Of one run: other runs' leftovers at this engine may belong to tests that need them.
        return agentcompass("cleanup", "--env", "docker", "--run-id", run.id, scratch=self._folder)

    def _answer(self, asked: Call) -> Answer:
        with self._lock:
            self._asked[self._words[asked_of(asked)]] += 1
        return obey(asked)

    def _next_count(self) -> Counter[str]:
        with self._lock:
            counted, self._asked = self._asked, Counter()
        return counted

    def _file(self, task: str) -> bytes:
        return (self.cut.folder / "details" / f"{task}.json").read_bytes()

    def changed_files(self) -> set[str]:
        return {task for task, before in self.files_before.items() if self._file(task) != before}


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, debian_image: str, docker_client: APIClient) -> Story:
    return Story(tmp_path_factory.mktemp("killed"), debian_image, docker_client)


def timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in value.items() if key not in OF_THE_MOMENT}
    return [timeless(item) for item in value] if isinstance(value, list) else value


def test_the_kill_came_in_the_middle(story: Story) -> None:
    assert SCORED_BEFORE_THE_KILL <= len(story.scored_before) < TASKS
    assert story.left


def test_the_resumed_run_equals_the_undisturbed_one(story: Story) -> None:
    cut, whole = timeless(story.cut.details()), timeless(story.whole.details())

    assert story.resumed.code == 0, story.resumed.err
    assert story.whole_ended.code == 0, story.whole_ended.err
    assert len(cut) == TASKS
    assert cut == whole
    assert story.cut.summary()["counts"] == story.whole.summary()["counts"]
    assert story.cut.summary()["counts"]["correct"] == TASKS * 3 / 4


def test_the_trajectories_are_those_of_the_undisturbed_run(story: Story) -> None:
    def said(run: Run) -> dict[str, list[str]]:
        return {task: [json.dumps(step["assistant_content"]) for step in run.steps(task)] for task in run.details()}

    assert said(story.cut) == said(story.whole)
    assert {len(steps) for steps in said(story.cut).values()} == {2}


def test_no_scored_attempt_ran_twice(story: Story) -> None:
    assert not story.scored_before & set(story.asked_by_the_resumed)
    assert story.changed_files() == set()


def test_what_was_cut_ran_again_from_its_start(story: Story) -> None:
    again = {task for task in story.cut.details() if task not in story.scored_before}

    assert story.asked_by_the_resumed == Counter(dict.fromkeys(again, 2))


def test_cleanup_removes_what_the_killed_run_left(story: Story) -> None:
    assert story.cleanup.code == 0, story.cleanup.err
    assert story.left_after_cleanup == set()
    assert story.left & set(story.cleanup.out.split())  # the engine may have been removing others


def test_cleanup_leaves_the_containers_of_a_live_run_alone(story: Story) -> None:
    assert story.cleanup_of_the_live.out == "0 stopped, 0 could not be stopped\n"
    assert {len(attempt["tries"]) for attempt in story.whole.attempts().values()} == {0}


def test_no_container_is_left_in_the_end(story: Story) -> None:
    assert story.left_at_the_end == set()
