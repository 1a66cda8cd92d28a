"""Whole runs at Modal, as a user types them: the real SDK against the local server."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from modal_server_client import TOKEN, ModalServer

pytest_plugins = ("modal_fixtures",)
pytestmark = pytest.mark.docker

MODEL_KEY = "sk-model-key-9f3c"
RECORDED = "package:agentcompass.adapters.benchmarks.quickstart/recorded"


def run(server: ModalServer, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(sys.executable, "-m", "agentcompass", "run", "quickstart", *arguments, "--env", "modal"),
            *("--env-params", '{"create_rate": 20}', "--results-dir", str(folder)),
            *("--run-name", "name", "--run-id", "id", "--progress", "plain"),
        ],
        env={**os.environ, **server.variables},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


def summary(folder: Path) -> dict[str, int]:
    counts: dict[str, int] = json.loads((folder / "name/id/summary.json").read_text())["counts"]
    return counts


@pytest.mark.parametrize(("harness", "correct"), [("oracle", 9), ("nop", 0)])
def test_the_quickstart_has_the_verdicts_of_every_other_environment(
    modal_server: ModalServer, debian_image: str, tmp_path: Path, harness: str, correct: int
) -> None:
    ended = run(modal_server, tmp_path, harness, "none")
    counts = summary(tmp_path)

    assert ended.returncode == 0, ended.stderr
    assert (counts["selected"], counts["correct"], counts["incorrect"]) == (9, correct, 9 - correct)
    assert modal_server.state()["running"] == 0


def test_a_recorded_agent_solves_the_quickstart(modal_server: ModalServer, debian_image: str, tmp_path: Path) -> None:
    path = json.dumps({"path": RECORDED})
    ended = run(modal_server, tmp_path, "mini_swe_agent", "m", "--model-api-protocol", "replay", "--model-params", path)

    assert ended.returncode == 0, ended.stderr
    assert summary(tmp_path)["correct"] == 9


def test_no_secret_is_written_when_calls_fail_and_everything_is_logged(
    modal_server: ModalServer, debian_image: str, tmp_path: Path
) -> None:
    echo = f"token {TOKEN[0]} with {TOKEN[1]} is not welcome"
    modal_server.fault("SandboxCreateV2", status="UNAVAILABLE", message=echo, times=9)
    modal_server.fault("TaskExecStart", status="INTERNAL", message=echo, times=3)
    key = ("--model-api-key", MODEL_KEY, "--log-level", "debug")
    ended = run(modal_server, tmp_path, "oracle", "none", "--benchmark-params", '{"limit": 2}', *key)
    files = [path.read_bytes() for path in (tmp_path / "name/id").rglob("*") if path.is_file()]
    written = b"\n".join([*files, ended.stdout.encode(), ended.stderr.encode()])

    assert b"is not welcome" in written
    for secret in (*TOKEN, MODEL_KEY):
        assert secret.encode() not in written


def test_a_run_without_credentials_starts_nothing(modal_server: ModalServer, tmp_path: Path) -> None:
    variables = {"MODAL_TOKEN_SECRET": "", "HOME": str(tmp_path)}
    modal_server_with_half = {**modal_server.variables, **variables}
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "agentcompass", "run", "quickstart", "oracle", "none", "--env", "modal"),
            *("--results-dir", str(tmp_path / "results")),
        ],
        env={**os.environ, **modal_server_with_half},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    assert "MODAL_TOKEN_SECRET" in ended.stderr
    assert not (tmp_path / "results").exists()
