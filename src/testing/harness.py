"""What every harness promises: its ports' errors pass through, a cancelled run leaves nothing, runs do not mix."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import NoReturn

import pytest

from ..domain.attempt import AttemptContext, HarnessResult, Step
from ..domain.errors import AgentCompassError, BudgetSpent, ModelBusy, ModelRefused, SandboxFailed, SandboxLost
from ..domain.model import ModelRequest
from ..domain.ports import Harness
from ..domain.sandbox import Command, ExecResult, SandboxOwner, SandboxSpec
from ..domain.task import PreparedTask, Task
from .fakes import FakeEnvironment, FakeModel, FakeSandbox
from .fakes.model import Reply

SIDE_BY_SIDE = 50
_SHA256 = re.compile(r"[0-9a-f]{64}")


def prepared_task(task_id: str = "task-1") -> PreparedTask:
    """A task whose instruction names it."""
    return PreparedTask(task=Task(id=task_id, instruction=""), instruction=f"Solve <{task_id}>.")


class Recording:
    """Keeps the steps of one attempt, and lends its context."""

    def __init__(self, log_dir: Path, task_id: str = "task-1", *, time_limit_s: float = 60) -> None:
        self.steps: list[Step] = []
        self.context = AttemptContext(
            run_id="run",
            task_id=task_id,
            attempt=1,
            log_dir=log_dir,
            time_limit_s=time_limit_s,
            record_step=self._record,
        )

    async def _record(self, step: Step) -> None:
        await asyncio.sleep(0)  # a store writes in between
        self.steps.append(step)

    @property
    def text(self) -> str:
        """All steps, as one text."""
        return "\n".join(step.model_dump_json() for step in self.steps)


class HarnessContract:
    """Subclass it and define `make`; then `answer`, `print_something` or `prepared` where the harness needs other ones.

    A harness that runs commands subclasses RunsCommands, one that asks a model AsksModel, one that does both, both.
    """

    records_steps: bool = False

    def make(self) -> Harness:
        """The harness under test."""
        raise NotImplementedError

    def prepared(self, task_id: str) -> PreparedTask:
        """A task that it can work on."""
        return prepared_task(task_id)

    def answer(self, request: ModelRequest) -> Reply:
        """What the model says, so that the harness runs a command and then ends."""
        raise NotImplementedError

    def print_something(self, sandbox: FakeSandbox, command: Command) -> ExecResult:
        """What a command does: prints the id of its sandbox's task."""
        return ExecResult(exit_code=0, stdout=f"in the sandbox of <{sandbox.owner.task_id}>\n", stderr="", duration_s=0)

    @asynccontextmanager
    async def sandbox(self, environment: FakeEnvironment, task_id: str) -> AsyncIterator[FakeSandbox]:
        """An open sandbox of `task_id`."""
        owner = SandboxOwner(run_id="run", task_id=task_id, attempt=1, host="host", process="1-1")
        async with environment.open(SandboxSpec(image="fake"), owner) as sandbox:
            yield sandbox

    async def run_one(
        self, harness: Harness, environment: FakeEnvironment, model: FakeModel, recording: Recording
    ) -> HarnessResult:
        """One attempt, in a sandbox of its own."""
        task_id = recording.context.task_id
        async with self.sandbox(environment, task_id) as sandbox:
            return await harness.run(self.prepared(task_id), sandbox, model, recording.context)

    def test_its_files_are_told_by_their_content(self) -> None:
        """A SHA-256 each, and the same ones again have the same."""
        told = dict(self.make().files())

        assert dict(self.make().files()) == told
        assert all(_SHA256.fullmatch(str(value)) for value in told.values())

    async def test_its_steps_are_numbered_from_one_and_dated(self, tmp_path: Path) -> None:
        """In the order of their recording."""
        recording = Recording(tmp_path)
        environment = FakeEnvironment(exec_script=self.print_something)
        await self.run_one(self.make(), environment, FakeModel(replies=self.answer), recording)

        assert [step.step_id for step in recording.steps] == list(range(1, len(recording.steps) + 1))
        assert bool(recording.steps) == self.records_steps
        assert all(datetime.fromisoformat(step.timestamp).utcoffset() is not None for step in recording.steps)

    async def test_attempts_side_by_side_do_not_mix(self, tmp_path: Path) -> None:
        """Fifty of them, of one instance."""
        harness = self.make()
        environment = FakeEnvironment(exec_script=self.print_something)
        recordings = [Recording(tmp_path, f"task-{number}") for number in range(SIDE_BY_SIDE)]
        model = FakeModel(replies=self.answer)
        results = await asyncio.gather(*(self.run_one(harness, environment, model, each) for each in recordings))

        assert len(results) == SIDE_BY_SIDE
        for recording in recordings:
            others = {each.context.task_id for each in recordings} - {recording.context.task_id}
            assert not any(f"<{other}>" in recording.text for other in others)
            assert (f"<{recording.context.task_id}>" in recording.text) == bool(recording.steps)


class RunsCommands(HarnessContract):
    """For a harness whose agent acts in the sandbox by commands."""

    records_steps = True

    @pytest.mark.parametrize("error", [SandboxLost("gone"), SandboxFailed("failed")], ids=["lost", "failed"])
    async def test_an_error_of_the_sandbox_passes_through(self, error: AgentCompassError, tmp_path: Path) -> None:
        """It is neither an observation nor a result."""

        def broken(sandbox: FakeSandbox, command: Command) -> ExecResult:
            raise error

        environment = FakeEnvironment(exec_script=broken)
        with pytest.raises(AgentCompassError) as caught:
            await self.run_one(self.make(), environment, FakeModel(replies=self.answer), Recording(tmp_path))

        assert caught.value is error

    async def test_cancelled_in_a_command_it_ends_and_leaves_no_thread(self, tmp_path: Path) -> None:
        """The command is cancelled too, before `run` returns."""
        hanging = _Hanging()
        environment = FakeEnvironment(exec_script=lambda sandbox, command: hanging.hang())
        running = asyncio.create_task(
            self.run_one(self.make(), environment, FakeModel(replies=self.answer), Recording(tmp_path))
        )
        await hanging.cancel(running)

        assert hanging.ended
        assert hanging.threads_left == []


class AsksModel(HarnessContract):
    """For a harness that asks the model port."""

    records_steps = True

    @pytest.mark.parametrize(
        "error", [ModelBusy("busy"), ModelRefused("no"), BudgetSpent("spent")], ids=["busy", "refused", "spent"]
    )
    async def test_an_error_of_the_model_passes_through(self, error: AgentCompassError, tmp_path: Path) -> None:
        """It is not the agent's failure."""
        environment = FakeEnvironment(exec_script=self.print_something)
        with pytest.raises(AgentCompassError) as caught:
            await self.run_one(self.make(), environment, FakeModel(replies=lambda _: error), Recording(tmp_path))

        assert caught.value is error

    async def test_cancelled_in_a_model_call_it_ends_and_leaves_no_thread(self, tmp_path: Path) -> None:
        """The call is cancelled too, before `run` returns."""
        hanging = _Hanging()
        environment = FakeEnvironment(exec_script=self.print_something)
        running = asyncio.create_task(
            self.run_one(
                self.make(), environment, FakeModel(replies=lambda request: hanging.hang()), Recording(tmp_path)
            )
        )
        await hanging.cancel(running)

        assert hanging.ended
        assert hanging.threads_left == []


class _Hanging:
    """A call that never returns, and what becomes of it when its caller is cancelled."""

    def __init__(self) -> None:
        self._entered = asyncio.Event()
        self._threads = set(threading.enumerate())
        self.ended = False
        self.threads_left: list[str] = []

    async def hang(self) -> NoReturn:
        self._entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # cleaning up takes a moment
            self.ended = True
        raise AssertionError("an event that nobody sets was set")

    async def cancel(self, running: "asyncio.Task[HarnessResult]") -> None:
        entered = asyncio.create_task(self._entered.wait())
        await asyncio.wait({entered, running}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()  # it never came to the call: its own error says why
            raise AssertionError("the harness ended before it made the call")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        pooled = "asyncio_"  # the loop's default executor keeps its threads
        left = set(threading.enumerate()) - self._threads
        self.threads_left = [thread.name for thread in left if not thread.name.startswith(pooled)]
