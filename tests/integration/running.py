"""Runs of the real command line, as a user's shell starts them, and what they leave behind.

Agents do what their task's instruction says: that of the `command` harness is a script (FOLLOW_INSTRUCTION), that of a
model is a list of commands (`do`, `obey`). So one run holds many tasks, each a case of its own.
"""

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agentcompass.domain.naming import file_name
from agentcompass.testing.task_folders import ANSWER_TEST, TASK_TOML, write_task
from docker import APIClient
from openai_server import Answer, Call, Reply, call, error

HANG_S = 300
"""A run that takes longer is stopped, and its test fails."""
LEFT_OUT = ("AGENTCOMPASS_", "OPENAI_", "MSWEA_", "MODAL_", "ANTHROPIC_")
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
FOLLOW_INSTRUCTION = json.dumps({"command": '. "$AGENTCOMPASS_INSTRUCTION_FILE"'})
LOCAL_IMAGES = ("--env-params", '{"pull_policy": "never"}')
_ORDERS = re.compile(r"<do>(.*?)</do>", re.DOTALL)


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str
    peak_mib: float = 0.0


class Running:
    """`agentcompass ARGUMENTS` in a process group of its own, killed on exit if it still runs."""

    def __init__(self, *arguments: str, scratch: Path, **variables: str) -> None:
        token = secrets.token_hex(4)
        self._out, self._err = scratch / f"{token}.out", scratch / f"{token}.err"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(LEFT_OUT)}
        scratch.mkdir(parents=True, exist_ok=True)
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "agentcompass", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**kept, "XDG_CACHE_HOME": str(scratch / "cache"), **variables},
                start_new_session=True,
            )
        self._peak_kib = 0
        self._watch = threading.Thread(target=self._watch_memory, daemon=True)
        self._watch.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, at: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.kill()

    def kill(self) -> None:
        """kill -9, to its whole group."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def interrupt(self, number: int = signal.SIGINT) -> None:
        """As a terminal does: to the whole group."""
        os.killpg(self.process.pid, number)

    def ended(self) -> Ended:
        """Wait for its end."""
        try:
            code = self.process.wait(HANG_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"hung; it had said:\n{self.out}\n{self.err}") from None
        self._watch.join()
        return Ended(code, self.out, self.err, self._peak_kib / 1024)

    def until(self, condition: Callable[[], Any], what: str) -> None:
        """Wait for `condition` while it runs."""
        ends = time.monotonic() + HANG_S
        while not condition():
            if self.process.poll() is not None or time.monotonic() > ends:
                self.ended()
                raise AssertionError(f"no {what}; it had said:\n{self.out}\n{self.err}")
            time.sleep(0.02)

    @property
    def out(self) -> str:
        """Its stdout so far."""
        return self._out.read_text("utf-8")

    @property
    def err(self) -> str:
        """Its stderr so far."""
        return self._err.read_text("utf-8")

    def _watch_memory(self) -> None:
        # Not ru_maxrss, which a child inherits from the process that it was forked from.
        status = Path(f"/proc/{self.process.pid}/status")
        while self.process.poll() is None:
            try:
                peak = re.search(r"VmHWM:\s*(\d+)", status.read_text())
            except OSError:
                return
            self._peak_kib = int(peak[1]) if peak else self._peak_kib
            time.sleep(0.02)


def agentcompass(*arguments: str, scratch: Path, **variables: str) -> Ended:
    """Run it to its end."""
    with Running(*arguments, scratch=scratch, **variables) as running:
        return running.ended()


@dataclass(frozen=True)
class Run:
    """One run: its place, the arguments that name it, and what it stored."""

    results: Path
    id: str
    name: str = "run"

    @property
    def folder(self) -> Path:
        """RESULTS_DIR/RUN_NAME/RUN_ID"""
        return self.results / self.name / self.id

    @property
    def place(self) -> tuple[str, ...]:
        """The arguments."""
        return "--results-dir", str(self.results), "--run-name", self.name, "--run-id", self.id

    def details(self) -> dict[str, Any]:
        """Every task's file, by the task's id."""
        files = [json.loads(path.read_text("utf-8")) for path in (self.folder / "details").glob("*.json")]
        return {file["task_id"]: file for file in sorted(files, key=lambda file: str(file["task_id"]))}

    def attempts(self) -> dict[str, Any]:
        """The first attempt of every task."""
        return {task: file["attempts"]["1"] for task, file in self.details().items()}

    def scored(self) -> set[str]:
        """Tasks whose first attempt is graded."""
        return {task for task, attempt in self.attempts().items() if attempt["status"] == "completed"}

    def steps(self, task: str) -> list[dict[str, Any]]:
        """The trajectory of a task's first attempt."""
        path = self.folder / "trajectories" / f"{file_name(task)}.1.jsonl"
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []

    def log(self, task: str, name: str) -> str:
        """A log file of a task's first attempt."""
        return (self.folder / "logs" / f"{file_name(task)}.1" / name).read_text("utf-8")

    def summary(self) -> dict[str, Any]:
        """summary.json"""
        loaded: dict[str, Any] = json.loads((self.folder / "summary.json").read_text("utf-8"))
        return loaded

    def containers(self, client: APIClient) -> set[str]:
        """Ids of the containers, running or not, that carry the run's label."""
        found = client.containers(all=True, filters={"label": f"agentcompass.run_id={self.id}"})
        return {one["Id"] for one in found}


def a_run(results: Path) -> Run:
    """One of which there is no other at the engine."""
    return Run(results, f"e2e-{secrets.token_hex(5)}")


def task_toml(
    image: str | None, *, agent_s: float = 60, verifier_s: float = 60, agent: str = "", environment: str = ""
) -> str:
    """A task.toml of these limits; `agent` and `environment` are further lines of those sections."""
    toml = TASK_TOML.replace("timeout_sec = 30.0", f"timeout_sec = {float(agent_s)}\n{agent}")
    toml = toml.replace("timeout_sec = 20.0", f"timeout_sec = {float(verifier_s)}")
    named = f'docker_image = "{image}"' if image else ""
    return f"{toml}{environment}\n".replace('docker_image = "debian:bookworm-slim"', named)


def do(*commands: str) -> str:
    """An instruction that has `obey` run these commands, and submit."""
    return f"Task {secrets.token_hex(4)}. <do>{json.dumps([*commands, SUBMIT])}</do>\n"


def obey(asked: Call) -> Answer:
    """A model that does what the instruction says, a command a reply."""
    said = sum(message["role"] == "assistant" for message in asked.body["messages"])
    commands = json.loads(_orders(asked))
    if said >= len(commands):
        return error(400, "the task has no further commands")
    return Reply(f"Command {said + 1}.", [call("bash", {"command": commands[said]}, f"call_{said + 1}")])


def _orders(asked: Call) -> str:
    for message in asked.body["messages"]:
        found = _ORDERS.search(str(message["content"]))
        if found:
            return found[1]
    raise AssertionError("no instruction of `do` in the conversation")


def asked_of(asked: Call) -> str:
    """The instruction's own word (of `do`) in a conversation: it tells tasks apart."""
    found = re.search(r"Task (\w+)\. <do>", json.dumps(asked.body["messages"]))
    assert found is not None
    return found[1]


def write_do_task(
    folder: Path, name: str, image: str, *commands: str, test: str = ANSWER_TEST, agent_s: float = 60
) -> str:
    """A task for `obey`; returns the word that `asked_of` finds."""
    instruction = do(*commands)
    write_task(folder, name, toml=task_toml(image, agent_s=agent_s), instruction=instruction, test=test)
    return instruction.split()[1].rstrip(".")


def task_directory(folder: Path) -> tuple[str, ...]:
    """The arguments for the benchmark's path."""
    return "--benchmark-params", json.dumps({"path": str(folder)})
