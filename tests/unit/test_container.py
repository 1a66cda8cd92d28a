"""What a run's adapters are wired with: what is masked, and the warning where that may be too much."""

from pathlib import Path
from typing import Any

import pytest
from agentcompass.app.container import Container, Places
from agentcompass.domain.events import StageEntered
from agentcompass.domain.model import ModelEndpoint
from agentcompass.domain.run import RunRequest
from agentcompass.testing.fakes.progress import RecordingProgress
from agentcompass.testing.progress import every_event, run_started
from pydantic import SecretStr
from structlog.testing import capture_logs


def container(folder: Path, progress: RecordingProgress | None = None, **asked: Any) -> Container:
    request = RunRequest(
        **{
            "benchmark": "task_directory",
            "harness": "nop",
            "environment": "host_process",
            "model": ModelEndpoint(name="none"),
            "run_name": "mine",
            "run_id": "one",
            **asked,
        }
    )
    return Container(request=request, places=Places(folder, folder), progress=progress or RecordingProgress())


def test_keys_in_the_urls_of_any_parameter_are_masked(tmp_path: Path) -> None:
    redactor = container(
        tmp_path,
        model=ModelEndpoint(name="none", base_url="https://host/v1?api-key=key-of-model"),
        benchmark_params={"git_url": "https://host/x?access_token=token-of-data"},
        environment_params={"env_variables": {"FETCH": "curl https://host/x?sig=name-of-agent -o x"}},
    ).redactor()

    assert redactor.text("key-of-model, token-of-data, name-of-agent") == "***, ***, ***"


@pytest.mark.parametrize(("key", "warnings"), [("django", 1), ("test", 0), ("sk-0123456789", 0)])
def test_a_key_that_is_a_plain_word_is_warned_of_once_as_the_run_starts(
    tmp_path: Path, key: str, warnings: int
) -> None:
    progress = RecordingProgress()
    told = container(tmp_path, progress, model=ModelEndpoint(name="m", api_key=SecretStr(key))).ports().progress
    later = [event for event in every_event("task") if isinstance(event, StageEntered)]
    with capture_logs() as logs:
        for event in (run_started(1), *later):
            told.on(event)

    assert [(line["event"], line["log_level"]) for line in logs] == [("secret.found_plain", "warning")] * warnings
    assert key not in str(logs)
    assert list(progress.events) == [run_started(1), *later]
