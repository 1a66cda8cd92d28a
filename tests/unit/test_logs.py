"""The logging pipeline: what reaches run.log, what reaches stderr, and what never does."""

import asyncio
import io
import json
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from agentcompass.app.logs import Logs, _LibraryHandler, human_line, logging_to, mask_from_now, redacted_now
from agentcompass.app.run_log import LoggedProgress
from agentcompass.domain.errors import ConfigError
from agentcompass.domain.events import RunEnded, RunStarted
from agentcompass.domain.redaction import Redactor
from agentcompass.testing.fakes.progress import RecordingProgress
from agentcompass.testing.progress import every_event, run_started
from hypothesis import given
from hypothesis import strategies as st


def redact(value: Any) -> Any:
    if isinstance(value, dict):
        return {redact(key): redact(item) for key, item in value.items()}
    if isinstance(value, list):
        return [redact(item) for item in value]
    return value.replace("hunter2", "***") if isinstance(value, str) else value


@pytest.fixture
def stderr() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def logs(stderr: io.StringIO) -> Iterator[Logs]:
    with logging_to(Logs(level="warning", redact=redact, stream=stderr)) as logs:
        yield logs


def logged(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_stderr_shows_warnings_and_above(logs: Logs, stderr: io.StringIO) -> None:
    log = structlog.get_logger()
    log.debug("call.made")
    log.info("attempt.started")
    log.warning("call.retried", wait_s=1.5)
    log.error("sandbox.leaked", sandbox="ac-1", error="no answer")

    assert stderr.getvalue().splitlines() == [
        "warning: call.retried wait_s=1.5",
        "error: sandbox.leaked sandbox=ac-1 error='no answer'",
    ]


def test_run_log_has_everything_from_debug_upward(logs: Logs, tmp_path: Path) -> None:
    logs.attach_run_log(tmp_path / "run.log")
    structlog.get_logger().debug("call.made", status=200)
    structlog.get_logger().error("sandbox.leaked")
    logs.detach_run_log()
    events = [(line["level"], line["event"]) for line in logged(tmp_path / "run.log")]

    assert events == [("debug", "call.made"), ("error", "sandbox.leaked")]


def test_a_failed_attempt_is_the_displays_to_show(logs: Logs, stderr: io.StringIO, tmp_path: Path) -> None:
    logs.attach_run_log(tmp_path / "run.log")
    structlog.get_logger().warning("attempt.failed", error="lost")
    logs.detach_run_log()

    assert (stderr.getvalue(), len(logged(tmp_path / "run.log"))) == ("", 1)


def test_a_run_log_is_appended_to_when_the_run_resumes(logs: Logs, tmp_path: Path) -> None:
    for _ in range(2):
        logs.attach_run_log(tmp_path / "run.log")
        structlog.get_logger().info("run.started")
        logs.detach_run_log()

    assert len(logged(tmp_path / "run.log")) == 2


def test_nothing_is_logged_to_a_file_after_it_is_detached(logs: Logs, tmp_path: Path) -> None:
    logs.attach_run_log(tmp_path / "run.log")
    logs.detach_run_log()
    structlog.get_logger().info("run.started")

    assert logged(tmp_path / "run.log") == []


def test_ids_bound_round_an_attempt_are_on_each_of_its_events(logs: Logs, tmp_path: Path) -> None:
    logs.attach_run_log(tmp_path / "run.log")
    with structlog.contextvars.bound_contextvars(run_id="r", task_id="t", attempt=2):
        structlog.get_logger().info("stage.entered")
        logging.getLogger("docker").warning("slow")
    logs.detach_run_log()

    assert [(line["run_id"], line["task_id"], line["attempt"]) for line in logged(tmp_path / "run.log")] == [
        ("r", "t", 2)
    ] * 2


@pytest.mark.parametrize("library", ["docker", "openai", "httpx", "modal-client", "asyncio"])
def test_a_library_warning_takes_the_same_way(logs: Logs, stderr: io.StringIO, library: str) -> None:
    logging.getLogger(library).warning("try %d of key %s", 2, "hunter2")

    assert stderr.getvalue() == f"warning: library.logged library={library} message='try 2 of key ***'\n"


def test_a_library_that_formats_wrongly_is_logged_all_the_same(logs: Logs, stderr: io.StringIO) -> None:
    _LibraryHandler().handle(logging.LogRecord("docker", logging.WARNING, __file__, 1, "two %s %s", ("one",), None))

    assert stderr.getvalue() == "warning: library.logged library=docker message='two %s %s'\n"


def test_a_python_warning_becomes_an_event(logs: Logs, stderr: io.StringIO) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        logging.captureWarnings(capture=True)
        warnings.warn("old call", DeprecationWarning, stacklevel=1)

    assert stderr.getvalue().startswith("warning: library.logged library=py.warnings")


def test_secrets_are_replaced_in_values_exceptions_and_nested_objects(
    logs: Logs, stderr: io.StringIO, tmp_path: Path
) -> None:
    logs.attach_run_log(tmp_path / "run.log")
    try:
        raise ValueError("401 for hunter2")
    except ValueError as exc:
        structlog.get_logger().exception("call.failed", headers={"x": ["Bearer hunter2"]}, error=exc)
    logs.detach_run_log()

    assert "hunter2" not in stderr.getvalue() + (tmp_path / "run.log").read_text()
    assert logged(tmp_path / "run.log")[0]["error"] == "401 for ***"


def test_a_display_can_take_over_the_human_lines(logs: Logs, stderr: io.StringIO) -> None:
    shown: list[str] = []
    logs.show_with(shown.append)
    structlog.get_logger().error("sandbox.leaked")

    assert (shown, stderr.getvalue()) == (["error: sandbox.leaked"], "")


def test_the_run_log_follows_the_run(logs: Logs, tmp_path: Path) -> None:
    progress = RecordingProgress()
    following = LoggedProgress(logs, progress)
    following.on(run_started(1).model_copy(update={"folder": str(tmp_path)}))
    structlog.get_logger().info("call.made")
    following.on(RunEnded(summary=None, folder=str(tmp_path)))
    structlog.get_logger().info("after.run")

    assert [line["event"] for line in logged(tmp_path / "run.log")] == ["run.started", "call.made", "run.ended"]
    assert len(progress.events) == 2


def test_each_thing_that_happens_in_a_run_is_a_line_of_its_log(logs: Logs, tmp_path: Path) -> None:
    following = LoggedProgress(logs, RecordingProgress())
    for event in every_event("task/1"):
        following.on(event.model_copy(update={"folder": str(tmp_path)}) if isinstance(event, RunStarted) else event)
    lines = logged(tmp_path / "run.log")
    failed = next(line for line in lines if line["event"] == "attempt.ended")

    assert [line["event"] for line in lines] == [
        "run.started",
        *["stage.entered"] * 6,
        "attempt.retried",
        "stage.entered",
        *["attempt.ended"] * 2,
        *["run.interrupted"] * 2,
        "run.ended",
    ]
    assert (failed["task_id"], failed["status"], failed["error"]) == ("task/1", "run_error", "the sandbox died again")


def test_a_run_log_that_cannot_be_opened_is_one_warning(logs: Logs, stderr: io.StringIO, tmp_path: Path) -> None:
    logs.attach_run_log(tmp_path / "missing" / "run.log")
    structlog.get_logger().info("attempt.started")

    assert stderr.getvalue().startswith("warning: run.log: ")
    assert stderr.getvalue().count("\n") == 1


def test_a_full_disk_is_one_warning_and_the_run_goes_on(logs: Logs, stderr: io.StringIO) -> None:
    logs.attach_run_log(Path("/dev/full"))
    for _ in range(3):
        structlog.get_logger().info("attempt.started")

    assert stderr.getvalue().count("No space left on device") == 1


def test_a_closed_stderr_ends_nothing(stderr: io.StringIO, logs: Logs) -> None:
    stderr.close()
    structlog.get_logger().error("sandbox.leaked")

    assert stderr.closed


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ConfigError, match="no log level 'loud'"):
        Logs(level="loud", redact=redact)


def test_structlog_is_as_before_once_logging_ends(stderr: io.StringIO) -> None:
    before, handlers = structlog.get_config(), list(logging.getLogger().handlers)
    with logging_to(Logs(level="debug", redact=redact, stream=stderr)):
        assert structlog.get_config() != before

    assert structlog.get_config() == before
    assert logging.getLogger().handlers == handlers


class Side:
    """One of two runs of a process: its log, with its own secret masked, and the lines that it shows."""

    def __init__(self, folder: Path, secret: str) -> None:
        self.path, self.shown = folder / f"{secret}.log", io.StringIO()
        self.logs = Logs(level="warning", redact=Redactor([secret]).value, stream=self.shown)
        self.is_logging, self.may_end = asyncio.Event(), asyncio.Event()

    async def run(self, *said: str) -> None:
        with logging_to(self.logs):
            self.logs.attach_run_log(self.path)
            self.is_logging.set()
            await self.may_end.wait()
            for text in said:
                structlog.get_logger().error("thing.said", text=text)
                await asyncio.to_thread(logging.getLogger("docker").warning, text)

    def texts(self) -> list[str]:
        return [line.get("text") or line["message"] for line in logged(self.path)]


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Side, Side]:
    return Side(tmp_path, "secret-of-one"), Side(tmp_path, "secret-of-two")


async def test_each_of_two_runs_has_its_own_events_with_its_own_secrets_masked(sides: tuple[Side, Side]) -> None:
    one, two = sides
    before = structlog.get_config()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(one.run("one: secret-of-one"))
        group.create_task(two.run("two: secret-of-two", "two: secret-of-one"))
        await one.is_logging.wait()
        await two.is_logging.wait()
        one.may_end.set()
        await first
        two.may_end.set()

    assert one.texts() == ["one: ***"] * 2
    assert two.texts()[:2] == ["two: ***"] * 2
    assert (one.shown.getvalue().count("\n"), two.shown.getvalue().count("\n")) == (2, 4)
    assert structlog.get_config() == before


async def test_what_no_run_can_be_named_for_goes_to_all_without_a_secret_of_any(sides: tuple[Side, Side]) -> None:
    async with asyncio.TaskGroup() as group:
        for side in sides:
            group.create_task(side.run())
            await side.is_logging.wait()
        structlog.get_logger().error("thing.said", text="secret-of-one, secret-of-two")
        for side in sides:
            side.may_end.set()

    assert [side.texts() for side in sides] == [["***, ***"]] * 2


async def test_a_secret_of_one_run_is_masked_in_an_event_of_the_other(sides: tuple[Side, Side]) -> None:
    one, two = sides
    async with asyncio.TaskGroup() as group:
        group.create_task(one.run())
        await one.is_logging.wait()
        two.may_end.set()
        await group.create_task(two.run("of secret-of-one"))
        one.may_end.set()

    assert two.texts() == ["of ***"] * 2


def test_what_ends_the_program_shows_no_secret_that_was_ever_known() -> None:
    mask_from_now(["secret-of-one"])
    mask_from_now(iter(["secret-of-two"]))

    told = redacted_now("GET https://me:word@host failed\nwith secret-of-one, secret-of-two")

    assert told == "GET https://***@host failed\nwith ***, ***"


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError("no")


def test_an_object_that_cannot_be_shown_does_not_fail_the_call(logs: Logs, stderr: io.StringIO) -> None:
    structlog.get_logger().error("call.failed", thing=Hostile())

    assert stderr.getvalue() == "error: call.failed thing='<Hostile: RuntimeError>'\n"


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(value=json_like)
def test_any_value_becomes_one_strict_json_line(value: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("log") / "run.log"
    logs = Logs(level="error", redact=redact)
    logs.attach_run_log(path)
    logs.write({"level": "info", "event": "thing.seen", "value": value})
    logs.detach_run_log()
    (line,) = path.read_text(encoding="utf-8").split("\n")[:-1]

    assert json.loads(line, parse_constant=pytest.fail)["event"] == "thing.seen"


@given(st.text())
def test_a_human_line_is_one_line(text: str) -> None:
    assert len(human_line({"level": "error", "event": "a.b", "text": text}).splitlines()) == 1
