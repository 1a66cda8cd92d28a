"""SWE-bench through the real command line, in real images: the verdicts are the same everywhere, and upstream's."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from agentcompass.adapters.environments.docker.endpoint import resolve_endpoint
from docker import APIClient
from modal_server_client import ModalServer
from openai_server import OpenAIServer
from running import LOCAL_IMAGES, SUBMIT, Run, a_run, agentcompass, obey
from swebench_instances import Instance, make_images, make_instances, requests_row
from swebench_repos import ADDER, PAGES, PLOTTER, REPOSITORIES, SYMBOLS

pytest_plugins = ("modal_fixtures",)
pytestmark = pytest.mark.docker

WRONG_REQUESTS = "sed -i 's/netloc, path = path, netloc/path, netloc = netloc, path/' requests/utils.py"
WRONG = "".join(
    f"if [ -d {name} ]; then {script}; fi\n"
    for name, script in [*((it.name, it.wrong) for it in REPOSITORIES), ("requests", WRONG_REQUESTS)]
)
HARNESSES = {"oracle": {}, "nop": {}, "command": {"command": WRONG}}
OUTCOMES = {"oracle": "resolved", "nop": "empty_patch", "command": "unresolved"}


@dataclass(frozen=True)
class Data:
    """A data set of the instances that there are images for."""

    instances: Sequence[Instance]
    rows: list[dict[str, Any]]
    file: Path

    @property
    def params(self) -> str:
        """The benchmark's parameters."""
        return json.dumps({"dataset": str(self.file)})


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


@pytest.fixture(scope="module")
def data(docker_client: APIClient, tmp_path_factory: pytest.TempPathFactory) -> Data:
    folder = tmp_path_factory.mktemp("swebench")
    instances = make_instances(folder / "repositories")
    make_images(docker_client, instances, folder)
    rows = [*(instance.row for instance in instances), requests_row()]
    return Data(instances, rows, write_rows(folder / "rows.jsonl", rows))


def graded_run(folder: Path, data: Data, harness: str, *environment: str, **variables: str) -> Run:
    """A run of all the instances, to its end."""
    run = a_run(folder)
    ended = agentcompass(
        *("run", "swebench_verified", harness, "none", "--benchmark-params", data.params, "--env", *environment),
        *("--harness-params", json.dumps(HARNESSES[harness]), "--task-concurrency", "2", *run.place),
        scratch=folder,
        **variables,
    )
    assert ended.code == 0, ended.err
    return run


def reports(run: Run) -> dict[str, Any]:
    """Of every instance: what was graded, and what came of it."""
    return {
        task: (attempt["submission_sha256"], attempt["correct"], attempt["extra"]["eval_raw_data"])
        for task, attempt in run.attempts().items()
    }


def outcomes(run: Run) -> dict[str, str]:
    return {task: str(raw["outcome"]) for task, (_, _, raw) in reports(run).items()}


def upstream(logs: Path, run: Run, data: Data, *command: str) -> dict[str, Any]:
    """The final report of a command of upstream's own program on the run's exported logs."""
    env = {**os.environ, "DOCKER_HOST": resolve_endpoint(None, None, os.environ).url, "HF_HUB_OFFLINE": "1"}
    command = (*command, "-d", str(data.file))
    ended = subprocess.run(command, cwd=logs, env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (report,) = logs.glob(f"*.{run.id}.json")
    said: dict[str, Any] = json.loads(report.read_text())
    return said


def exported(run: Run, form: str, target: Path) -> Path:
    arguments = ("results", "export", str(run.folder), "--format", form, "--output", str(target))
    ended = agentcompass(*arguments, scratch=target.parent)
    assert ended.code in (0, 1), ended.err
    return target


@pytest.fixture(scope="module")
def docker_runs(data: Data, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """By harness."""
    folder = tmp_path_factory.mktemp("docker")
    return {harness: graded_run(folder / harness, data, harness, "docker", *LOCAL_IMAGES) for harness in HARNESSES}


@pytest.mark.parametrize("harness", HARNESSES)
def test_every_instance_comes_out_as_its_patch_deserves(data: Data, docker_runs: dict[str, Run], harness: str) -> None:
    assert outcomes(docker_runs[harness]) == {row["instance_id"]: OUTCOMES[harness] for row in data.rows}


@pytest.mark.parametrize(("harness", "listed"), [("oracle", "resolved_ids"), ("command", "unresolved_ids")])
def test_upstream_reports_the_same_of_the_exported_logs(
    data: Data, docker_runs: dict[str, Run], tmp_path: Path, harness: str, listed: str
) -> None:
    run = docker_runs[harness]
    logs = exported(run, "swebench-logs", tmp_path / "exported")
    said = upstream(logs, run, data, str(Path(sys.executable).with_name("swebench")), "report", run.id)

    assert said[listed] == sorted(outcomes(run))


def test_modal_gives_the_same_reports(
    data: Data, docker_runs: dict[str, Run], modal_server: ModalServer, tmp_path: Path
) -> None:
    create_rate = ("--env-params", '{"create_rate": 20}')
    there = graded_run(tmp_path, data, "oracle", "modal", *create_rate, **modal_server.variables)

    assert reports(there) == reports(docker_runs["oracle"])


def steps(edit: str, *made: str) -> tuple[str, ...]:
    """An agent's commands, in the order that the prompt asks for."""
    return edit, "git diff > patch.txt", *made, f"{SUBMIT} && cat patch.txt"


AGENTS = {
    ADDER.instance_id: steps("sed -i 's/numbers.1:./numbers/' adder/__init__.py; touch notes.txt"),
    PAGES.instance_id: steps(PAGES.wrong),
    SYMBOLS.instance_id: steps(SYMBOLS.wrong, "sed -i 's/symbol/letter/' patch.txt"),
    PLOTTER.instance_id: steps("git status"),
}
SUBMITTED = {
    ADDER.instance_id: "resolved",
    PAGES.instance_id: "unresolved",
    PLOTTER.instance_id: "empty_patch",
    SYMBOLS.instance_id: "patch_failed",
}


@pytest.fixture(scope="module")
def agents_run(data: Data, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Data]:
    """mini-swe-agent on the repositories of our own, each with a submission of its own kind."""
    folder = tmp_path_factory.mktemp("agents")
    rows = [
        instance.row | {"problem_statement": f"Fix it. <do>{json.dumps(AGENTS[instance.repository.instance_id])}</do>"}
        for instance in data.instances
    ]
    asked = Data(data.instances, rows, write_rows(folder / "rows.jsonl", rows))
    run = a_run(folder)
    with OpenAIServer(obey) as server:
        ended = agentcompass(
            *("run", "swebench_verified", "mini_swe_agent", "lab/scripted", "--model-base-url", server.url),
            *("--benchmark-params", asked.params, "--env", "docker", *LOCAL_IMAGES, *run.place),
            scratch=folder,
        )
    assert ended.code == 0, ended.err
    return run, asked


def test_an_agent_is_graded_by_the_patch_file_that_it_prints(agents_run: tuple[Run, Data]) -> None:
    run, _ = agents_run
    submission = run.attempts()[ADDER.instance_id]["extra"]["submission"]

    assert outcomes(run) == SUBMITTED
    assert (submission["source"], submission["differs"]) == ("harness", True)
    assert "notes.txt" in run.log(ADDER.instance_id, "worktree.diff")
    assert "notes.txt" not in run.log(ADDER.instance_id, "submission")


def test_upstream_grades_the_exported_predictions_and_logs_the_same(
    agents_run: tuple[Run, Data], tmp_path: Path
) -> None:
    run, data = agents_run
    logs = exported(run, "swebench-logs", tmp_path / "exported")
    predictions = exported(run, "swebench-predictions", tmp_path / "predictions.jsonl")
    runner = (sys.executable, "-m", "swebench.harness.run_evaluation", "--rewrite_reports", "True")
    said = upstream(logs, run, data, *runner, "-p", str(predictions), "-id", run.id)
    kinds = {"resolved_ids": "resolved", "unresolved_ids": "unresolved", "empty_patch_ids": "empty_patch"}

    assert said["error_ids"] == [SYMBOLS.instance_id]
    for kind, outcome in kinds.items():
        assert said[kind] == [task for task, ours in SUBMITTED.items() if ours == outcome]


def test_a_regraded_run_has_the_same_verdicts_on_the_same_bytes(agents_run: tuple[Run, Data]) -> None:
    run, _ = agents_run
    ended = agentcompass("results", "regrade", str(run.folder), "--results-dir", str(run.results), scratch=run.results)

    assert ended.code == 0, ended.err
    assert reports(Run(run.results, f"{run.id}-regrade")) == reports(run)
