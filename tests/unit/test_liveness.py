"""Which runs are taken for dead."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from agentcompass.adapters.support.liveness import process_alive, this_process


def test_this_process_lives_and_one_that_has_its_pid_only_does_not() -> None:
    assert process_alive(this_process())
    assert not process_alive(f"{os.getpid()}-1")


def test_a_process_that_has_ended_is_dead() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()

    assert not process_alive(f"{ended.pid}-0")


@pytest.mark.parametrize("refusal", [PermissionError, FileNotFoundError])
def test_a_process_that_may_not_be_looked_at_counts_as_alive(
    monkeypatch: pytest.MonkeyPatch, refusal: type[OSError]
) -> None:
    def hidden(*_: object) -> str:
        raise refusal("hidden")

    monkeypatch.setattr(Path, "read_text", hidden)

    assert process_alive(f"{os.getpid()}-12345")
