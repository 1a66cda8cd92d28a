"""Where plug-ins are called: what of theirs is their fault, and what is passed on."""

import asyncio
import re
from pathlib import Path
from typing import ClassVar

import pytest
from agentcompass.app import plugins
from agentcompass.app.plugins import closing, plugin_border, returned
from agentcompass.domain.errors import BenchmarkBroken, HarnessFailed, ModelBusy, SandboxFailed
from agentcompass.domain.task import Grade, Task
from agentcompass.testing.fakes import FakeBenchmark, FakeEnvironment, FakeHarness, FakeModel
from cancelling import cancelled
from command_line import Ended, command
from structlog.testing import capture_logs

FAKES = "agentcompass.testing.fakes"


class NotClosing(FakeEnvironment):
    """Breaks when it is closed."""

    name: ClassVar[str] = "not_closing"

    async def close(self) -> None:
        raise RuntimeError("a bug")


class Hanging(FakeEnvironment):
    """Never ends to close."""

    async def close(self) -> None:
        await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (KeyError("x"), "KeyError: 'x'"),
        (SystemExit(), "SystemExit"),
        (asyncio.CancelledError(), "CancelledError"),
        (BaseException("panic"), "BaseException: panic"),
    ],
)
async def test_what_a_plug_in_raises_is_its_own_failure(error: BaseException, told: str) -> None:
    with pytest.raises(HarnessFailed) as caught, plugin_border(HarnessFailed):
        raise error

    assert (caught.value.message, caught.value.__cause__) == (told, error)


@pytest.mark.parametrize("error", [ModelBusy("500"), KeyboardInterrupt(), GeneratorExit()])
async def test_our_own_errors_and_a_ctrl_c_are_passed_on(error: BaseException) -> None:
    with pytest.raises(type(error)), plugin_border(HarnessFailed):
        raise error


async def test_a_cancellation_that_was_asked_for_is_passed_on() -> None:
    async def called() -> None:
        with plugin_border(HarnessFailed):
            await asyncio.Event().wait()

    running = asyncio.create_task(called())
    await asyncio.sleep(0)

    assert await cancelled(running)


async def test_a_time_limit_around_a_plug_in_is_passed_on() -> None:
    async def limited() -> None:
        async with asyncio.timeout(0.01):
            with plugin_border(HarnessFailed):
                await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await limited()


class OwnGrade(Grade):
    """As a benchmark may have it."""

    judge: str = ""


def test_a_plug_in_may_return_a_kind_of_its_own() -> None:
    grade = OwnGrade(score=1, correct=True, judge="j")

    assert returned(grade, Grade, "grade", BenchmarkBroken) is grade


def without_line(ended: Ended) -> Ended:
    """The number of this file's line is no matter."""
    return ended._replace(err=re.sub(r":\d+\)", ":N)", ended.err))


@pytest.mark.parametrize(
    ("loaded", "told"),
    [
        (ValueError("cannot parse\nmy data"), "load_tasks broke: ValueError: cannot parse my data (test_plugins.py:N)"),
        (SystemExit(3), "load_tasks broke: SystemExit: 3 (test_plugins.py:N)"),
        (None, "load_tasks returned NoneType, not a sequence of Task"),
        ([{"id": "a"}], "load_tasks, as item 1, returned dict, not a Task"),
        (
            [Task.model_construct(id=7, instruction="")],
            "load_tasks, as item 1, returned a Task that is not valid: id: expected a valid string",
        ),
    ],
)
@pytest.mark.parametrize("flags", [(), ("--dry-run",)])
def test_a_benchmark_whose_data_do_not_load_is_one_line_and_nothing_is_started(
    loaded: object, told: str, flags: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def load_tasks(*_: object) -> object:
        if isinstance(loaded, BaseException):
            raise loaded
        return loaded

    monkeypatch.setattr(FakeBenchmark, "load_tasks", load_tasks)
    words = (f"{FAKES}:FakeBenchmark", f"{FAKES}:FakeHarness", "none", "--env", f"{FAKES}:FakeEnvironment")
    ended = command("run", *words, "--results-dir", tmp_path, *flags)

    assert without_line(ended) == (2, "", f"error: benchmark '{FAKES}:FakeBenchmark': {told}\n")
    assert list(tmp_path.iterdir()) == []


def test_tasks_that_do_not_load_are_one_line_where_they_are_listed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeBenchmark, "load_tasks", _breaking)
    name = f"{FAKES}:FakeBenchmark"

    ended = command("tasks", name)

    told = "load_tasks broke: KeyError: 'gold' (test_plugins.py:N)"
    assert without_line(ended) == (2, "", f"error: benchmark '{name}': {told}\n")


async def _breaking(*_: object) -> object:
    raise KeyError("gold")


@pytest.mark.parametrize("broken", [FakeBenchmark, FakeHarness, FakeEnvironment, FakeModel])
def test_an_adapter_that_cannot_be_made_is_one_line_and_nothing_is_started(
    broken: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaking(*_: object) -> None:
        raise KeyError("a\nb")

    monkeypatch.setattr(broken, "__init__", breaking)
    monkeypatch.setattr(FakeHarness, "needs_model", True)
    kind = broken.__name__.removeprefix("Fake").lower()
    words = (f"{FAKES}:FakeBenchmark", f"{FAKES}:FakeHarness", "m", "--env", f"{FAKES}:FakeEnvironment")
    ended = command("run", *words, "--model-api-protocol", f"{FAKES}:FakeModel", "--results-dir", tmp_path)

    told = "making it broke: KeyError: 'a\\nb' (test_plugins.py:N)"
    assert without_line(ended) == (2, "", f"error: {kind} '{FAKES}:{broken.__name__}': {told}\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("environment", "told"), [(NotClosing(), "RuntimeError: a bug"), (Hanging(), "not closed within 0.01 s")]
)
async def test_a_close_that_fails_is_an_event_and_hides_nothing(
    environment: FakeEnvironment, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "CLOSE_LIMIT_S", 0.01)
    with capture_logs() as events, pytest.raises(SandboxFailed, match="the outcome"):
        async with closing(environment):
            raise SandboxFailed("the outcome")

    assert [(event["event"], event["error"]) for event in events] == [("adapter.not_closed", told)]


async def test_the_environment_is_closed_also_where_the_models_close_fails() -> None:
    class Model(FakeModel):
        async def close(self) -> None:
            raise RuntimeError("a bug")

    environment = FakeEnvironment()
    with capture_logs() as events:
        async with closing(environment, Model()):
            pass

    assert environment.closed
    assert [event["adapter"] for event in events] == ["fake"]


def test_a_finished_run_has_its_table_also_where_its_environment_does_not_close(tmp_path: object) -> None:
    words = (f"{FAKES}:FakeBenchmark", f"{FAKES}:FakeHarness", "none", "--env", f"{__name__}:NotClosing")
    code, out, err = command("run", *words, "--results-dir", tmp_path, "--progress", "none")

    assert (code, "Score" in out) == (0, True)
    assert err.count("\n") == 1
    assert "adapter.not_closed adapter=not_closing error='RuntimeError: a bug'" in err
