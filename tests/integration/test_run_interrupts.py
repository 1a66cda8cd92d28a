"""Ctrl-C and SIGTERM in a run with containers, sent as a terminal and a supervisor send them."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from docker import APIClient
from docker.errors import APIError
from openai_server import Call, OpenAIServer, Reply, call
from running import LOCAL_IMAGES, Running, a_run, obey, task_directory, write_do_task

pytestmark = pytest.mark.docker


class Stage:
    """Three tasks whose first model is slow-witted and has them sleep, and a run on them, two at once."""

    def __init__(self, folder: Path, image: str, client: APIClient) -> None:
        self.run, self._folder, self._client = a_run(folder / "results"), folder, client
        for number in (1, 2, 3):
            write_do_task(folder / "tasks", f"task-{number}", image, "echo 42 > answer.txt")

    def started(self, server: OpenAIServer) -> Running:
        """Model, base URL and the rest of the command line; the model's address is no part of a run's identity."""
        return Running(
            *("run", "task_directory", "mini_swe_agent", "scripted", "--env", "docker", *LOCAL_IMAGES),
            *(*task_directory(self._folder / "tasks"), "--model-base-url", server.url, *self.run.place),
            *("--task-concurrency", "2", "--progress", "plain"),
            scratch=self._folder,
        )

    def sleeping(self) -> bool:
        """Whether two containers run the command that the slow-witted model has asked for."""
        return sum(self._sleeps(container) for container in self.run.containers(self._client)) == 2

    def _sleeps(self, container: str) -> bool:
        try:
            rows = self._client.top(container, ps_args="-eo pid,args")["Processes"] or []
        except APIError:  # it has not started yet
            return False
        return any("sleep 600" in " ".join(row) for row in rows)

    def left(self) -> set[str]:
        """Containers of the run."""
        return self.run.containers(self._client)


@pytest.fixture
def stage(tmp_path: Path, debian_image: str, docker_client: APIClient) -> Stage:
    return Stage(tmp_path, debian_image, docker_client)


def slow_witted(_: Call) -> Reply:
    return Reply("", [call("bash", {"command": "sleep 600"})])


def interrupt_twice(running: Running) -> None:
    running.interrupt()
    running.until(lambda: "interrupt" in running.err, "word of the first interrupt")
    running.interrupt()


def terminate(running: Running) -> None:
    running.process.send_signal(signal.SIGTERM)


def test_the_first_ctrl_c_lets_what_runs_finish_and_starts_nothing_new(stage: Stage) -> None:
    def answer(asked: Call) -> Reply:
        if not sent:
            sent.append(True)
            running.interrupt()
            running.until(lambda: "interrupt" in running.err, "word of the interrupt")
        answered = obey(asked)
        assert isinstance(answered, Reply)
        return answered

    sent: list[bool] = []
    with OpenAIServer(answer) as server, stage.started(server) as running:
        ended = running.ended()
    counts = stage.run.summary()["counts"]

    assert ended.code == 130
    assert 1 <= counts["correct"] <= 2
    assert counts["correct"] + counts["not_run"] == counts["selected"] == 3
    assert stage.run.summary()["interrupted"]
    assert stage.left() == set()
    assert "not run" in ended.out


class CutHard:
    """A run that was cut while two agents slept, and then started again with a better model."""

    def __init__(self, stage: Stage, cut: Callable[[Running], None]) -> None:
        with OpenAIServer(slow_witted) as server, stage.started(server) as running:
            running.until(stage.sleeping, "two sleeping agents")
            cut(running)
            self.ended = running.ended()
        self.left = stage.left()
        self.counts, self.attempts = stage.run.summary()["counts"], stage.run.attempts()
        with OpenAIServer(obey) as server, stage.started(server) as running:
            self.resumed = running.ended()
        self.counts_of_the_resumed, self.attempts_of_the_resumed = stage.run.summary()["counts"], stage.run.attempts()


@pytest.fixture(scope="module", params=[interrupt_twice, terminate])
def cut_hard(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    debian_image: str,
    docker_client: APIClient,
) -> CutHard:
    return CutHard(Stage(tmp_path_factory.mktemp("cut"), debian_image, docker_client), request.param)


def test_a_second_ctrl_c_or_a_sigterm_leaves_no_container(cut_hard: CutHard) -> None:
    assert cut_hard.ended.code == 130, cut_hard.ended.err
    assert cut_hard.left == set()


def test_what_was_cut_is_counted_and_stored_as_cancelled(cut_hard: CutHard) -> None:
    states = [attempt["status"] for attempt in cut_hard.attempts.values()]

    assert states == ["cancelled", "cancelled"]
    assert {name: count for name, count in cut_hard.counts.items() if count} == {
        "selected": 3,
        "cancelled": 2,
        "not_run": 1,
    }
    assert "2 cancelled + 1 not run" in cut_hard.ended.out


def test_a_run_that_was_cut_resumes_whole(cut_hard: CutHard) -> None:
    tries = [one["failure"]["kind"] for one in cut_hard.attempts_of_the_resumed["task-1"]["tries"]]

    assert cut_hard.resumed.code == 0, cut_hard.resumed.err
    assert cut_hard.counts_of_the_resumed["correct"] == 3
    assert tries == ["Cancelled"]
