"""Which runs are taken for dead."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from agentcompass.adapters.support.liveness import process_alive, this_host, this_process


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


def test_two_machines_of_one_name_are_two_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    here = this_host()
    monkeypatch.setattr(Path, "read_text", lambda _: "5f0c1a52-0000-4000-8000-000000000000\n")
    there = this_host()
    monkeypatch.undo()

    assert here != there
    assert here == this_host()


def test_a_host_is_named_also_where_the_kernel_does_not_say_which_boot_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def hidden(*_: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", hidden)
    name, boot, namespace = this_host().rsplit("-", 2)

    assert (name, boot) == (socket.gethostname(), "0")
    assert namespace == os.readlink("/proc/self/ns/pid").strip("pid:[]")
