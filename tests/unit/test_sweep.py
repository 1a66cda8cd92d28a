"""What dead runs left is stopped: at the start of a run, and by `cleanup`."""

import asyncio
from pathlib import Path
from typing import ClassVar

import pytest
from agentcompass.adapters.support.liveness import dead_runs, this_host
from agentcompass.app import sweep
from agentcompass.app.sweep import dead_runs_swept
from agentcompass.domain.errors import SandboxBusy, SandboxFailed
from agentcompass.domain.sandbox import Check, SweepSelector, SweptSandbox
from agentcompass.domain.value import Parameters
from agentcompass.testing.fakes import FakeEnvironment
from command_line import command
from structlog.testing import capture_logs


class Littered(FakeEnvironment):
    """Has what dead runs left; one of it will not go."""

    asked: ClassVar[list[SweepSelector]] = []

    async def sweep(self, selector: SweepSelector) -> list[SweptSandbox]:
        self.asked.append(selector)
        return [
            SweptSandbox(environment="fake", id="sb-1", run_id="old", task_id="t"),
            SweptSandbox(environment="fake", id="sb-2", run_id="old", task_id="t", error="no answer"),
        ]


class Unreachable(FakeEnvironment):
    """Cannot be asked."""

    async def sweep(self, selector: SweepSelector) -> list[SweptSandbox]:
        raise SandboxBusy("no answer", hint="the same command resumes the run")


class Hanging(FakeEnvironment):
    """Never answers."""

    async def sweep(self, selector: SweepSelector) -> list[SweptSandbox]:
        await asyncio.Event().wait()
        return []


class PlaceParameters(Parameters):
    """Where to look."""

    place: str = "here"


class Placed(FakeEnvironment):
    """Looks in one place only."""

    name: ClassVar[str] = "placed"
    Parameters: ClassVar[type[Parameters]] = PlaceParameters
    looked_in: ClassVar[list[str]] = []

    def __init__(self, parameters: PlaceParameters) -> None:
        super().__init__()
        self._place = parameters.place

    async def sweep(self, selector: SweepSelector) -> list[SweptSandbox]:
        self.looked_in.append(self._place)
        return []


class TooSmall(Placed):
    """Answers, and can start no sandbox such as is wanted."""

    name: ClassVar[str] = "too_small"

    async def check(self) -> list[Check]:
        return [
            Check(name="engine", ok=True, detail="there"),
            Check(name="platform", ok=False, detail="2 cores; cpu=64 is wanted", only_starting=True),
        ]


class Broken(Placed):
    """Not there, and would hang if it were asked for more."""

    name: ClassVar[str] = "broken"

    async def check(self) -> list[Check]:
        return [
            Check(name="credentials", ok=True, detail="of a file"),
            Check(name="engine", ok=False, detail="no answer", hint="start it"),
        ]


def cleanup(*words: str) -> tuple[object, str]:
    code, out, err = command("cleanup", *words)
    return code, out + err


async def test_a_run_begins_with_a_sweep_of_this_machines_dead_runs_and_tells_of_it() -> None:
    Littered.asked.clear()
    with capture_logs() as logs:
        async with dead_runs_swept(Littered()):
            pass
    (selector,) = Littered.asked

    assert (selector.host, selector.run_id) == (this_host(), None)
    assert [(entry["event"], entry["sandbox"]) for entry in logs] == [
        ("sandbox.swept", "sb-1"),
        ("sandbox.leaked", "sb-2"),
    ]


async def test_a_sweep_that_fails_is_no_matter_to_the_run() -> None:
    with capture_logs() as logs:
        async with dead_runs_swept(Unreachable()):
            pass

    assert [entry["event"] for entry in logs] == ["sweep.failed"]


@pytest.mark.parametrize("error", [TimeoutError("of its own"), SystemExit(0), asyncio.CancelledError()])
async def test_a_sweep_that_breaks_is_told_as_it_broke_and_no_matter_to_the_run(error: BaseException) -> None:
    class Breaking(FakeEnvironment):
        async def sweep(self, selector: SweepSelector) -> list[SweptSandbox]:
            raise error

    with capture_logs() as logs:
        async with dead_runs_swept(Breaking()):
            pass

    assert [(entry["event"], entry["error"].partition(":")[0]) for entry in logs] == [
        ("sweep.failed", type(error).__name__)
    ]


async def test_an_error_of_the_run_goes_before_the_sweep() -> None:
    with pytest.raises(KeyError):
        async with dead_runs_swept(Littered()):
            raise KeyError


def test_cleanup_looks_where_its_parameters_say() -> None:
    Placed.looked_in.clear()
    code, said = cleanup("--env", f"{__name__}:Placed", "--env-params", '{"place": "there"}')

    assert (code, said) == (0, "0 stopped, 0 could not be stopped\n")
    assert Placed.looked_in == ["there"]


def test_cleanups_parameters_are_those_of_one_environment() -> None:
    code, said = cleanup("--env-params", "{}")

    assert code == 2
    assert "--env" in said


def test_cleanup_looks_also_where_no_sandbox_could_start() -> None:
    Placed.looked_in.clear()
    code, _ = cleanup("--env", f"{__name__}:TooSmall")

    assert code == 0
    assert Placed.looked_in == ["here"]


def test_cleanup_of_all_tells_what_it_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    monkeypatch.setenv("AGENTCOMPASS_ENVIRONMENTS__HOST_PROCESS__ROOT_FOLDER", str(tmp_path))
    code, said = cleanup()
    counted, *passed_over = said.splitlines()

    assert (code, counted) == (0, "0 stopped, 0 could not be stopped")
    assert [line.split(": ")[:2] for line in passed_over] == [
        ["passed over", "environment 'docker' is not ready"],
        ["passed over", "environment 'modal' is not ready"],
    ]


def test_cleanup_of_an_environment_that_fails_to_be_swept_is_an_error() -> None:
    code, said = cleanup("--env", f"{__name__}:Unreachable")

    assert (code, said) == (
        2,
        f"error: environment '{__name__}:Unreachable': no answer (give the same command again)\n",
    )


async def test_a_sweep_that_hangs_is_told_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "SWEEP_LIMIT_S", 0.01)

    with pytest.raises(SandboxFailed, match=r"not ended within 0\.01 s"):
        await sweep.bounded_sweep(Hanging(), dead_runs())


def test_cleanup_asks_no_more_of_an_environment_that_is_not_there() -> None:
    Placed.looked_in.clear()
    code, said = cleanup("--env", f"{__name__}:Broken")

    assert code == 2
    assert said.count("\n") == 1
    assert "engine: no answer" in said
    assert Placed.looked_in == []
