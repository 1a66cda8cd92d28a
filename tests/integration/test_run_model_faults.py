"""A model endpoint that is busy, broken, or refuses, seen from the command line: never a zero, and resumable."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from openai_server import Answer, Call, OpenAIServer, Reply, error
from running import LOCAL_IMAGES, Ended, a_run, agentcompass, asked_of, obey, task_directory, write_do_task

pytestmark = pytest.mark.docker

QUICK_RETRIES = {"max_wait_s": 0.05}
TASKS = ("busy", "well", "broken", "refused", "untold")


class Story:
    """One run whose model has another fault for each task; then a second start, with a model that is well."""

    def __init__(self, folder: Path, image: str) -> None:
        self.run, self._folder = a_run(folder / "results"), folder
        self._words = {write_do_task(folder / "tasks", name, image, "echo 42 > answer.txt"): name for name in TASKS}
        self.asked: Counter[str] = Counter()
        self.first = self._start(self._faulty)
        self.attempts, self.summary = self.run.attempts(), self.run.summary()
        self.asked_first = Counter(self.asked)
        self.second = self._start(self._well)
        self.asked_second = self.asked - self.asked_first

    def _start(self, script: Callable[[Call], Answer]) -> Ended:
        with OpenAIServer(script) as server:
            return agentcompass(
                *("run", "task_directory", "mini_swe_agent", "scripted", "--env", "docker", *LOCAL_IMAGES),
                *(*task_directory(self._folder / "tasks"), "--model-base-url", server.url, *self.run.place),
                *("--model-params", json.dumps({**QUICK_RETRIES, "max_tries": 4}), "--max-retries", "0"),
                scratch=self._folder,
            )

    def _named(self, asked: Call) -> str:
        name = self._words[asked_of(asked)]
        self.asked[name] += 1
        return name

    def _well(self, asked: Call) -> Answer:
        self._named(asked)
        return obey(asked)

    def _faulty(self, asked: Call) -> Answer:
        name = self._named(asked)
        if name == "busy" and self.asked[name] <= 3:
            return error(429, "slow down", headers={"retry-after": "7200"})
        if name == "broken":
            return error(500, "out of order")
        if name == "refused":
            return error(401, "who are you?")
        answer = obey(asked)
        return replace(answer, usage=None) if name == "untold" and isinstance(answer, Reply) else answer


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, debian_image: str) -> Story:
    return Story(tmp_path_factory.mktemp("faults"), debian_image)


def test_a_model_that_is_busy_three_times_scores_as_ever(story: Story) -> None:
    assert story.attempts["busy"]["score"] == 1
    assert story.attempts["busy"]["tries"] == []
    assert story.asked_first["busy"] == 3 + story.asked_first["well"]


def test_a_model_that_is_out_of_order_is_an_error_and_no_zero(story: Story) -> None:
    attempt = story.attempts["broken"]

    assert (attempt["status"], attempt["score"]) == ("run_error", None)
    assert (attempt["failure"]["stage"], attempt["failure"]["kind"]) == ("agent", "ModelBusy")
    assert "HTTP 500: out of order" in attempt["error"]
    assert story.asked_first["broken"] == 4


def test_a_refusal_is_not_tried_again(story: Story) -> None:
    attempt = story.attempts["refused"]

    assert (attempt["status"], attempt["score"]) == ("run_error", None)
    assert attempt["failure"]["kind"] == "ModelRefused"
    assert "HTTP 401: who are you?" in attempt["error"]
    assert story.asked_first["refused"] == 1


def test_errors_are_exit_code_1_and_named_beside_the_score(story: Story) -> None:
    assert story.first.code == 1
    assert "5 selected = 3 correct + 0 incorrect + 2 errors" in story.first.out
    assert story.summary["accuracy_graded"]["value"] == 1
    assert story.summary["accuracy_selected"]["value"] == 3 / 5
    assert story.summary["errors_by_kind"] == {"agent: ModelBusy": 1, "agent: ModelRefused": 1}


def test_usage_that_is_not_told_is_unknown(story: Story) -> None:
    usage = story.attempts["untold"]["usage"]

    assert usage["input_tokens"] is None
    assert usage["cost_usd"] is None
    assert "$0" not in story.first.out


def test_a_resume_with_a_model_that_is_well_scores_what_had_none(story: Story) -> None:
    assert story.second.code == 0, story.second.err
    assert {attempt["score"] for attempt in story.run.attempts().values()} == {1}
    assert set(story.asked_second) == {"broken", "refused"}
    assert [one["failure"]["kind"] for one in story.run.attempts()["broken"]["tries"]] == ["ModelBusy"]


@pytest.fixture(scope="module")
def priced(tmp_path_factory: pytest.TempPathFactory, debian_image: str) -> dict[str, Any]:
    """Usage by task, of a model with a price that leaves out the usage of one task; and the run's summary as `all`."""

    def answer(asked: Call) -> Answer:
        said = obey(asked)
        return replace(said, usage=None) if isinstance(said, Reply) and asked_of(asked) == untold else said

    folder = tmp_path_factory.mktemp("priced")
    write_do_task(folder / "tasks", "told", debian_image, "echo 42 > answer.txt")
    untold = write_do_task(folder / "tasks", "untold", debian_image, "echo 42 > answer.txt")
    run = a_run(folder / "results")
    with OpenAIServer(answer) as server:
        ended = agentcompass(
            *("run", "task_directory", "mini_swe_agent", "scripted", "--env", "docker", *LOCAL_IMAGES),
            *(*task_directory(folder / "tasks"), "--model-base-url", server.url, *run.place),
            *("--model-params", json.dumps({"price": {"input": 10, "output": 100}})),
            scratch=folder,
        )
    assert ended.code == 0, ended.err
    of_tasks = {task: attempt["usage"] for task, attempt in run.attempts().items()}
    return {**of_tasks, "all": run.summary()}


def test_with_a_price_cost_is_counted(priced: dict[str, Any]) -> None:
    assert priced["told"]["cost_usd"] == pytest.approx(2 * (100 * 10 + 10 * 100) / 1e6)


def test_with_a_price_but_no_usage_cost_is_unknown_and_the_sum_says_that_it_is_partial(priced: dict[str, Any]) -> None:
    assert priced["untold"]["cost_usd"] is None
    assert priced["all"]["usage"]["cost_usd"] == priced["told"]["cost_usd"]
    assert priced["all"]["attempts_without_cost"] == 1
    assert priced["all"]["usage"]["input_tokens"] == 200
