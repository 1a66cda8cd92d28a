"""`run`, `tasks`, `doctor` and `cleanup` as a user types them, over the fakes named by import path."""

import errno
import json
import os
from pathlib import Path

import pytest
from agentcompass.adapters.results import file_store
from agentcompass.adapters.results.durable import write_atomic
from agentcompass.domain.sandbox import Check, SweepSelector, SweptSandbox
from agentcompass.testing.fakes import FakeEnvironment
from command_line import command

FAKES = "agentcompass.testing.fakes"
TRIPLE = (f"{FAKES}:FakeBenchmark", f"{FAKES}:FakeHarness", "none")
ENV = ("--env", f"{FAKES}:FakeEnvironment")


@pytest.fixture
def results(tmp_path: Path) -> tuple[str, ...]:
    return ("--results-dir", str(tmp_path), "--run-name", "name", "--run-id", "id")


def details(tmp_path: Path, task: str) -> dict[str, object]:
    loaded: dict[str, object] = json.loads((tmp_path / "name/id/details" / f"{task}.json").read_text())
    return loaded


def test_a_run_prints_its_table_and_leaves_its_folder(tmp_path: Path, results: tuple[str, ...]) -> None:
    code, out, _ = command("run", *TRIPLE, *ENV, *results)

    assert code == 0
    assert "3 selected = 3 correct" in out
    assert details(tmp_path, "task-1")["correct"] is True
    assert {path.name for path in (tmp_path / "name/id").iterdir()} >= {
        "run_info.json",
        "summary.json",
        "summary.md",
        "details",
        "trajectories",
        "logs",
        "run.log",
    }


def test_an_error_is_exit_code_1_and_a_resume_takes_it_up(tmp_path: Path, results: tuple[str, ...]) -> None:
    failing = ("--env-params", '{"fail_opens": {"1": "SandboxStartFailed"}}')
    first, out, _ = command("run", *TRIPLE, *ENV, *results, *failing)
    second, out_again, _ = command("run", *TRIPLE, *ENV, *results, "--task-concurrency", "1", *failing)

    assert first == 1
    assert "1 errors" in out
    assert second == 1
    assert "2 correct" in out_again


@pytest.mark.parametrize("reason", [errno.EACCES, errno.EMFILE, errno.ENOSPC])
def test_a_disk_that_refuses_in_the_middle_is_one_line_and_exit_code_1(
    results: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    def write(path: Path, data: bytes) -> None:
        if path.name == "task-2.json":
            raise OSError(reason, os.strerror(reason))
        write_atomic(path, data)

    monkeypatch.setattr(file_store, "write_atomic", write)
    code, out, err = command("run", *TRIPLE, *ENV, *results, "--progress", "none")
    told = err.splitlines()[-1]

    assert (code, out) == (1, "")
    assert "Traceback" not in err
    assert told.endswith("run again)")
    assert f"task-2.json' cannot be stored: {os.strerror(reason)}" in told


def test_the_table_names_the_first_attempts_without_a_score_and_how_many_more_there_are(
    results: tuple[str, ...],
) -> None:
    failing = ("--env-params", '{"fail_every_open": "SandboxStartFailed"}', "--task-concurrency", "1")
    _, out, _ = command("run", *TRIPLE, *ENV, *results, *failing, "--benchmark-params", '{"tasks": 25}')
    named = [line.split(maxsplit=3) for line in out.splitlines() if "run_error" in line]

    assert named[0] == ["task-1", "1", "run_error", "start: open 1 fails as asked"]
    assert len(named) == 20
    assert out.endswith("\nand 5 more, see summary.md\n")


class NotReady(FakeEnvironment):
    """An environment that says so."""

    async def check(self) -> list[Check]:
        return [Check(name="engine", ok=False, detail="no answer", hint="start it")]


def test_an_environment_that_is_not_ready_is_one_line_and_nothing_is_made(
    tmp_path: Path, results: tuple[str, ...]
) -> None:
    code, out, err = command("run", *TRIPLE, "--env", f"{__name__}:NotReady", *results)

    assert (code, out) == (2, "")
    assert err == f"error: environment '{__name__}:NotReady' is not ready: engine: no answer (start it)\n"
    assert list(tmp_path.iterdir()) == []


def test_a_key_among_the_variables_of_an_agent_is_in_no_file(tmp_path: Path, results: tuple[str, ...]) -> None:
    params = {
        "command": "echo $MY_AGENT_API_KEY $COLOUR",
        "env": {"MY_AGENT_API_KEY": "key-0123456789", "COLOUR": "red"},
    }
    triple = (f"{FAKES}:FakeBenchmark", "command", "none")
    where = ("--env", "host_process", "--env-params", json.dumps({"root_folder": str(tmp_path / "sandboxes")}))
    command("run", *triple, *where, *results, "--harness-params", json.dumps(params))
    texts = [path.read_text() for path in (tmp_path / "name/id").rglob("*") if path.is_file()]

    assert any("*** red" in text for text in texts)
    assert not any("key-0123456789" in text for text in texts)
    assert json.loads((tmp_path / "name/id/run_info.json").read_text())["request"]["harness_params"]["env"] == {
        "MY_AGENT_API_KEY": "***",
        "COLOUR": "red",
    }


def test_another_temperature_is_another_run(results: tuple[str, ...]) -> None:
    command("run", *TRIPLE, *ENV, *results)
    code, out, err = command("run", *TRIPLE, *ENV, *results, "--harness-params", '{"submission": "41"}')

    assert code == 2
    assert out == ""
    assert "harness_params.submission" in err


def test_a_dry_run_starts_and_stores_nothing(tmp_path: Path, results: tuple[str, ...]) -> None:
    code, out, _ = command("run", *TRIPLE, *ENV, *results, "--dry-run")

    assert code == 0
    assert "task-3" in out
    assert "fake:latest" in out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("run", "quickstrat", "oracle", "none", *ENV), "quickstart"),
        (("run", "quickstart", "orcale", "none", *ENV), "oracle"),
        (("run", "quickstart", "oracle", "none", "--env", "dokcer"), "docker"),
        (("run", *TRIPLE, *ENV, "--env-params", "{broken"), "--env-params"),
        (("run", *TRIPLE, *ENV, "--env-params", '{"memry": 1}'), "memory"),
        (("run", *TRIPLE, *ENV, "--benchmark-params", '{"sample_ids": ["task-9"]}'), "task-1"),
        (("run", *TRIPLE, *ENV, "--enabled-recipes", "task_dir"), "task_directory"),
        (("run", "quickstart", "mini_swe_agent", "none", *ENV), "needs a model"),
        (("run", *TRIPLE, *ENV, "--task-concurrency", "0"), "--task-concurrency"),
        (("run", *TRIPLE, *ENV, "--run-id", "a/b"), "--run-id"),
        (("run", *TRIPLE, *ENV, "--progress", "loud"), "--progress"),
        (("tasks", "quickstrat"), "quickstart"),
        (("doctor", "dokcer"), "docker"),
        (("cleanup", "--env", "dokcer"), "docker"),
    ],
)
def test_bad_input_is_one_line_that_names_the_mend_and_exit_code_2(
    tmp_path: Path, arguments: tuple[str, ...], told: str
) -> None:
    where = ("--results-dir", str(tmp_path)) if arguments[0] == "run" else ()
    code, out, err = command(*arguments, *where)

    assert code == 2
    assert out == ""
    assert len(err.splitlines()) == 1
    assert told in err
    assert list(tmp_path.iterdir()) == []


def test_tasks_are_listed_one_per_line() -> None:
    code, out, _ = command("tasks", f"{FAKES}:FakeBenchmark", "--benchmark-params", '{"limit": 2}')

    assert code == 0
    assert [line.split("\t")[0] for line in out.splitlines()] == ["task-1", "task-2"]


def test_tasks_as_json_are_whole() -> None:
    _, out, _ = command("tasks", f"{FAKES}:FakeBenchmark", "--json")

    assert [task["instruction"] for task in json.loads(out)][0] == "Answer question 1."


def test_doctor_says_what_it_found() -> None:
    code, out, _ = command("doctor", f"{FAKES}:FakeEnvironment")

    assert code == 0
    assert "fake: in memory" in out


def test_cleanup_counts_what_it_stopped() -> None:
    code, out, _ = command("cleanup", "--env", f"{FAKES}:FakeEnvironment")

    assert code == 0
    assert out == "0 stopped, 0 could not be stopped\n"


class Sticky(FakeEnvironment):
    """Cannot stop what a dead run left, and says so at length."""

    async def sweep(self, selector: SweepSelector) -> list[SweptSandbox]:
        return [SweptSandbox(environment="sticky", id="c0ffee", run_id="1", task_id="a", error="it said:\nno\x1b[2J")]


def test_cleanup_keeps_a_sandbox_to_its_line() -> None:
    code, out, _ = command("cleanup", "--env", f"{__name__}:Sticky")

    assert code == 1
    assert out.splitlines() == [
        "sticky: c0ffee (run 1, task a): NOT stopped: it said: no\\x1b[2J",
        "0 stopped, 1 could not be stopped",
    ]
