"""The quickstart suite through the command line: the same verdicts in containers and on the host."""

import json
from pathlib import Path
from typing import Any

import pytest
from running import LOCAL_IMAGES, Ended, Run, a_run, agentcompass

pytestmark = pytest.mark.docker

ENVIRONMENTS = ("docker", "host_process")
RECORDED = json.dumps({"path": "package:agentcompass.adapters.benchmarks.quickstart/recorded"})
REPLAY = ("mini_swe_agent", "recorded", "--model-api-protocol", "replay", "--model-params", RECORDED)


class Runs:
    """Each kind of run once a session."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._done: dict[tuple[str, ...], tuple[Run, Ended]] = {}

    def __call__(self, environment: str, *who: str) -> tuple[Run, Ended]:
        key = (environment, *who)
        if key not in self._done:
            run = a_run(self._folder)
            images = LOCAL_IMAGES if environment == "docker" else ()
            arguments = ("run", "quickstart", *who, "--env", environment, *images, *run.place, "--progress", "plain")
            self._done[key] = run, agentcompass(*arguments, scratch=self._folder)
        return self._done[key]

    def attempts(self, environment: str, *who: str) -> dict[str, Any]:
        return self(environment, *who)[0].attempts()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, debian_image: str) -> Runs:
    return Runs(tmp_path_factory.mktemp("quickstart"))


def scores(attempts: dict[str, Any]) -> set[float]:
    return {attempt["score"] for attempt in attempts.values()}


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_the_oracle_solves_every_task(runs: Runs, environment: str) -> None:
    run, ended = runs(environment, "oracle", "none")

    assert ended.code == 0, ended.err
    assert len(run.attempts()) >= 8
    assert scores(run.attempts()) == {1}


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_nobody_solves_no_task(runs: Runs, environment: str) -> None:
    run, ended = runs(environment, "nop", "none")

    assert ended.code == 0, ended.err
    assert len(run.attempts()) >= 8
    assert scores(run.attempts()) == {0}


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_the_recorded_model_solves_every_task_with_mini_swe_agent(runs: Runs, environment: str) -> None:
    run, ended = runs(environment, *REPLAY)

    assert ended.code == 0, ended.err
    assert scores(run.attempts()) == {1}
    assert {attempt["exit_reason"] for attempt in run.attempts().values()} == {"submitted"}


@pytest.mark.parametrize("who", [("oracle", "none"), ("nop", "none"), REPLAY], ids=["oracle", "nop", "mini_swe_agent"])
def test_containers_and_host_agree_on_verdict_steps_and_end(runs: Runs, who: tuple[str, ...]) -> None:
    told = [
        {
            task: (one["status"], one["correct"], one["score"], one["exit_reason"], one["extra"]["steps"])
            for task, one in runs.attempts(environment, *who).items()
        }
        for environment in ENVIRONMENTS
    ]

    assert told[0] == told[1]


def test_the_table_on_stdout_adds_up(runs: Runs) -> None:
    run, ended = runs("docker", *REPLAY)
    counts = run.summary()["counts"]

    assert counts["selected"] == counts["correct"] == len(run.attempts())
    assert f"{counts['selected']} selected = {counts['correct']} correct" in ended.out


def test_the_host_is_warned_of(runs: Runs) -> None:
    _, ended = runs("host_process", "nop", "none")

    assert "isolate" in ended.err
