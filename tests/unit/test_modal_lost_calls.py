"""A sandbox's commands while Modal loses streams, answers and sandboxes."""

import time
from pathlib import PurePosixPath
from typing import Any

import modal
import pytest
from agentcompass.adapters.environments.modal import exec as module
from agentcompass.adapters.environments.modal.sandbox import ModalSandbox
from agentcompass.adapters.environments.modal.scripts import FirstAnswer
from agentcompass.domain.errors import AgentCompassError, SandboxFailed, SandboxLost
from agentcompass.domain.sandbox import ExecResult, SandboxSpec
from agentcompass.testing.environment import sh
from modal_fakes import Machine, Sandbox, answers, never

ANSWER = FirstAnswer(is_root=True, has_tar=True, first_processes=(), working_dir=PurePosixPath("/"))
KILLED = Sandbox(wait=answers(137))
ALIVE = Sandbox(stdout=(b"alive\n",), wait=answers(0))
REFUSED = modal.exception.ConflictError("the sandbox is shutting down")


class Unstarted(Sandbox):
    """Its command is never told to have begun."""

    async def _exec(self, *_: str, **__: Any) -> Any:
        await never()


def _was_killed(machine: Machine) -> bool:
    return any("AGENTCOMPASS_EXEC=" in word for words in machine.executed[1:] for word in words)


async def _executed(machine: Machine) -> ExecResult:
    sandbox = ModalSandbox(machine, ANSWER, SandboxSpec(image="image"), ("image", "im-1"), time.monotonic())
    return await sandbox.exec(sh("run tests"))


@pytest.mark.parametrize(
    ("helper", "polls", "error"),
    [(ALIVE, (137,), SandboxLost), (REFUSED, (137,), SandboxLost), (REFUSED, (None,), SandboxFailed)],
)
async def test_a_command_that_died_with_its_sandbox_has_no_exit_code(
    helper: Sandbox | Exception, polls: tuple[int | None], error: type[AgentCompassError]
) -> None:
    machine = Machine(lambda words: KILLED if "run tests" in words else helper, *polls)

    with pytest.raises(error):
        await _executed(machine)


async def test_a_command_that_was_killed_in_a_sandbox_that_is_alive_has_its_exit_code() -> None:
    machine = Machine(lambda words: KILLED if "run tests" in words else ALIVE)
    result = await _executed(machine)

    assert (result.exit_code, len(machine.executed)) == (137, 2)


async def test_a_command_that_modal_does_not_start_is_no_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_START_LIMIT_S", 0.2)
    machine = Machine(lambda words: Unstarted() if "run tests" in words else ALIVE)
    with pytest.raises(SandboxFailed, match=r"not started within 0\.2 s"):
        await _executed(machine)

    assert _was_killed(machine)


async def test_a_command_whose_streams_were_lost_is_killed() -> None:
    lost = Sandbox(stdout=(modal.exception.InternalError("stream lost"),))
    machine = Machine(lambda words: lost if "run tests" in words else ALIVE)
    with pytest.raises(SandboxFailed, match="stream lost"):
        await _executed(machine)

    assert _was_killed(machine)
