"""What a run refuses before it starts anything: another run's folder, and a folder that is in use."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docker import APIClient
from openai_server import Answer, Call, OpenAIServer
from running import LOCAL_IMAGES, Run, Running, a_run, agentcompass, obey, task_directory, write_do_task

pytestmark = pytest.mark.docker


class Stage:
    """One run that waits for its model, which answers when it is let go."""

    def __init__(self, folder: Path, image: str) -> None:
        self.folder, self.run = folder, a_run(folder / "results")
        self.let_go = threading.Event()
        write_do_task(folder / "tasks", "task", image, "echo 42 > answer.txt")
        self.server = OpenAIServer(self._answer)

    def arguments(self, **params: Any) -> tuple[str, ...]:
        """The command line, at a temperature of 0.5 unless `params` say otherwise."""
        return (
            *("run", "task_directory", "mini_swe_agent", "scripted", "--env", "docker", *LOCAL_IMAGES),
            *(*task_directory(self.folder / "tasks"), "--model-base-url", self.server.url, *self.run.place),
            *("--model-params", json.dumps({"temperature": 0.5} | params)),
        )

    def _answer(self, asked: Call) -> Answer:
        self.let_go.wait()
        return obey(asked)

    def stored(self) -> dict[str, bytes]:
        """Every file of the run, but for what a live one appends to."""
        files = [path for path in self.run.folder.rglob("*") if path.is_file() and path.name != "run.log"]
        return {str(path): path.read_bytes() for path in files}


@pytest.fixture
def stage(tmp_path: Path, debian_image: str) -> Iterator[Stage]:
    stage = Stage(tmp_path, debian_image)
    with stage.server:
        yield stage
        stage.let_go.set()


def test_a_second_process_on_a_live_run_is_refused_and_named_the_first(stage: Stage, docker_client: APIClient) -> None:
    with Running(*stage.arguments(), scratch=stage.folder) as first:
        first.until(lambda: stage.server.calls, "call of the model")
        before, containers = stage.stored(), stage.run.containers(docker_client)
        second = agentcompass(*stage.arguments(), scratch=stage.folder)
        after, containers_after = stage.stored(), stage.run.containers(docker_client)
        stage.let_go.set()
        ended = first.ended()

    assert second.code == 2
    assert f"in use by process {first.process.pid} on " in second.err
    assert len(second.err.splitlines()) == 1
    assert second.out == ""
    assert (after, containers_after) == (before, containers)
    assert ended.code == 0, ended.err
    assert scores(stage.run) == {1}


def test_a_resume_at_another_temperature_is_refused_and_changes_nothing(stage: Stage) -> None:
    stage.let_go.set()
    first = agentcompass(*stage.arguments(), scratch=stage.folder)
    before, asked = stage.stored(), len(stage.server.calls)
    other = agentcompass(*stage.arguments(temperature=0.7), scratch=stage.folder)
    after = stage.stored()
    same = agentcompass(*stage.arguments(timeout_s=300), "--task-concurrency", "2", scratch=stage.folder)

    assert first.code == 0, first.err
    assert other.code == 2
    assert "model_params.temperature: stored 0.5, now 0.7" in other.err
    assert len(other.err.splitlines()) == 1
    assert after == before
    assert same.code == 0, same.err
    assert len(stage.server.calls) == asked
    assert {call.body["temperature"] for call in stage.server.calls} == {0.5}


def scores(run: Run) -> set[float]:
    return {attempt["score"] for attempt in run.attempts().values()}
