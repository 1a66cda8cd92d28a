"""The agent's time limit and its output, in containers: what is cut, what is kept, what it costs the runner."""

from pathlib import Path

import pytest
from agentcompass.testing.task_folders import REWARD, write_task
from running import (
    FOLLOW_INSTRUCTION,
    LOCAL_IMAGES,
    Ended,
    Run,
    a_run,
    agentcompass,
    task_directory,
    task_toml,
)

pytestmark = pytest.mark.docker

GIGABYTE = 1_000_000_000
LATE_TEST = f"""#!/bin/bash
sleep 5
if [ "$(cat answer.txt 2> /dev/null)" = 42 ]; then echo 1 > {REWARD}; else echo 0 > {REWARD}; fi
"""
"""Passes when answer.txt says 42, five seconds later."""
CUT = {
    "work-before-the-limit": "echo 42 > answer.txt; sleep 600",
    "work-after-the-limit": "(sleep 6; echo 42 > answer.txt) & sleep 600",
    "detached-work-after-the-limit": "setsid env -i sh -c 'sleep 6; echo 42 > answer.txt' & sleep 600",
    "deaf-work-after-the-limit": "trap '' TERM INT HUP; sleep 6; echo 42 > answer.txt; sleep 600",
}
LIMIT_S = 3


def run_with_scripts(folder: Path, image: str, scripts: dict[str, str], *, agent_s: float) -> tuple[Run, Ended]:
    """One run of tasks whose agents are these scripts."""
    for name, script in scripts.items():
        test = LATE_TEST if "after" in name else f"#!/bin/bash\ngrep -q 42 answer.txt; echo $((! $?)) > {REWARD}\n"
        write_task(folder / "tasks", name, toml=task_toml(image, agent_s=agent_s), instruction=script, test=test)
    run = a_run(folder / "results")
    ended = agentcompass(
        *("run", "task_directory", "command", "none", "--env", "docker", *LOCAL_IMAGES),
        *(*task_directory(folder / "tasks"), "--harness-params", FOLLOW_INSTRUCTION, *run.place),
        scratch=folder,
    )
    return run, ended


class Cut:
    """One run of agents that are all cut at their limit."""

    def __init__(self, folder: Path, image: str) -> None:
        run, self.ended = run_with_scripts(folder, image, CUT, agent_s=LIMIT_S)
        self.attempts = run.attempts()


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory, debian_image: str) -> Cut:
    return Cut(tmp_path_factory.mktemp("cut"), debian_image)


def test_work_done_before_the_limit_is_graded(cut: Cut) -> None:
    assert cut.ended.code == 0, cut.ended.err
    assert cut.attempts["work-before-the-limit"]["score"] == 1


@pytest.mark.parametrize("task", [name for name in CUT if "after" in name])
def test_work_done_after_the_limit_is_none(cut: Cut, task: str) -> None:
    assert cut.attempts[task]["status"] == "completed"
    assert cut.attempts[task]["score"] == 0


def test_the_limit_is_the_exit_reason_and_took_its_time(cut: Cut) -> None:
    assert {attempt["exit_reason"] for attempt in cut.attempts.values()} == {"time_limit"}
    assert all(attempt["timings"]["agent"] > 0.9 * LIMIT_S for attempt in cut.attempts.values())


def test_a_gigabyte_of_output_does_not_stay_in_the_runners_memory(cut: Cut, tmp_path: Path, debian_image: str) -> None:
    script = f"head -c {GIGABYTE} /dev/zero; echo; echo the end; echo 42 > answer.txt"
    run, ended = run_with_scripts(tmp_path, debian_image, {"prints": script}, agent_s=600)
    printed = run.log("prints", "agent.txt")

    assert run.attempts()["prints"]["score"] == 1, ended.err
    assert ended.peak_mib - cut.ended.peak_mib < 100
    assert f"of {GIGABYTE + 9} bytes" in printed
    assert printed.endswith("\0\nthe end\n")
