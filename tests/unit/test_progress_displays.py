"""What the displays show."""

import io
import json
import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from agentcompass.adapters.progress import NAMES, make_progress
from agentcompass.adapters.progress.plain import ATTEMPTS_UP_TO, PlainDisplay
from agentcompass.adapters.progress.rich_display import RichDisplay
from agentcompass.adapters.progress.tally import Tally
from agentcompass.adapters.progress.wording import cost, duration, score, tokens, warning
from agentcompass.adapters.progress.writer import LineWriter
from agentcompass.domain.attempt import AttemptKey, Stage
from agentcompass.domain.errors import ConfigError
from agentcompass.domain.events import AttemptRetried, RunEnded, RunInterrupted, StageEntered
from agentcompass.domain.model import NO_USAGE, Usage
from agentcompass.domain.one_line import one_line
from agentcompass.domain.run import Interval, Rate, Spent
from agentcompass.testing.progress import attempt_ended, every_event, run_started
from hypothesis import given
from hypothesis import strategies as st

ENDED = RunEnded(summary=None, folder="results/name/id")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def entered(task_id: str, stage: Stage = Stage.AGENT, try_number: int = 1) -> StageEntered:
    return StageEntered(key=AttemptKey(task_id=task_id, attempt=1), stage=stage, try_number=try_number)


def test_an_unknown_display_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"no progress display 'fancy' .*auto, rich, plain, json, none"):
        make_progress("fancy", io.StringIO())


def test_auto_is_plain_where_stderr_is_no_terminal() -> None:
    assert isinstance(make_progress("auto", io.StringIO()), PlainDisplay)


def test_auto_is_rich_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")

    assert isinstance(make_progress("auto", Terminal()), RichDisplay)


def test_auto_is_plain_on_a_terminal_that_cannot_move_its_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")

    assert isinstance(make_progress("auto", Terminal()), PlainDisplay)


def test_a_process_without_stderr_shows_nothing() -> None:
    code = f"""
import sys
from agentcompass.adapters.progress import make_progress
from agentcompass.testing.progress import every_event
for name in {NAMES!r}:
    display = make_progress(name, sys.stderr)
    for event in every_event():
        display.on(event)
    display.print_line("late")
    print(name, sys.stderr)
"""
    shell = ["sh", "-c", '"$0" -c "$1" 2>&-', sys.executable, code]
    output = subprocess.run(shell, stdout=subprocess.PIPE, text=True, check=True).stdout

    assert output.splitlines() == [f"{name} None" for name in NAMES]


def test_rich_is_imported_only_when_it_is_used() -> None:
    code = (
        "import io, sys; from agentcompass.adapters.progress import make_progress;"
        "[make_progress(name, io.StringIO()) for name in ('plain', 'json', 'none', 'auto')];"
        "print('rich' in sys.modules)"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert output.strip() == "False"


# tally


def test_an_eta_is_the_pace_of_this_start_not_of_what_was_kept() -> None:
    clock = Clock()
    tally = Tally(clock)
    tally.on(run_started(100, kept=80))
    clock.now += 10
    tally.on(attempt_ended("one"))

    assert (tally.done, tally.eta_s) == (81, 190.0)


def test_there_is_no_eta_before_an_attempt_has_ended() -> None:
    tally = Tally(Clock())
    tally.on(run_started(100, kept=80))

    assert tally.eta_s is None


def test_the_tally_remembers_only_who_is_running() -> None:
    tally = Tally(Clock())
    tally.on(run_started(1000))
    for number in range(1000):
        tally.on(entered(f"task-{number}"))
        if number >= 100:
            tally.on(attempt_ended(f"task-{number - 100}"))

    assert len(tally.running) == 100


def test_a_sum_that_is_not_all_is_marked() -> None:
    tally = Tally(Clock())
    known = Usage(input_tokens=1000, output_tokens=100, cost_usd=1.5)
    tally.on(attempt_ended("known", spent=Spent(usage=known, attempts_without_tokens=1, attempts_without_cost=1)))

    assert (cost(tally.spent), tokens(tally.spent)) == ("≥ $1.50", "≥ 1.1k")


@pytest.mark.parametrize("name", ["plain", "rich", "json"])
def test_a_resume_shows_the_score_of_what_is_kept(name: str) -> None:
    stream = io.StringIO()
    display = make_progress(name, stream)
    kept = {"accuracy": Rate(correct=1, total=2, value=0.5, interval=Interval(low=0.1, high=0.9))}
    display.on(run_started(2, kept=2).model_copy(update={**kept, "spent": Spent(usage=Usage(cost_usd=0.25))}))
    display.on(ENDED)

    assert "no score yet" not in stream.getvalue()
    assert "0.25" in stream.getvalue()
    assert ("50.0 %" in stream.getvalue()) == (name != "json")


@pytest.mark.parametrize("hard", [True, False])
def test_an_interrupt_is_told_in_one_sentence(hard: bool) -> None:
    told = warning(RunInterrupted(hard=hard, reason="interrupt"))

    assert told is not None
    assert told.count("again") == (not hard)


# wording


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (67.9, "1:07"), (3723, "1:02:03"), (360000, "100:00:00")])
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_score_has_its_interval() -> None:
    rate = Rate(correct=5, total=8, value=0.625, interval=Interval(low=0.3057, high=0.8632))

    assert score(rate) == "score 62.5 % [30.6, 86.3]"


def test_a_score_of_nothing_is_no_score() -> None:
    assert score(Rate(correct=0, total=0, value=None, interval=None)) == "no score yet"


@pytest.mark.parametrize(
    ("usage", "text"),
    [
        (NO_USAGE, "0"),
        (Usage(), "unknown"),
        (Usage(input_tokens=900, output_tokens=50), "950"),
        (Usage(input_tokens=12_300), "12.3k"),
        (Usage(input_tokens=4_000_000, output_tokens=123_456), "4.1M"),
    ],
)
def test_token_counts(usage: Usage, text: str) -> None:
    assert tokens(Spent(usage=usage)) == text


@given(st.text())
def test_any_text_becomes_one_printable_line(text: str) -> None:
    assert one_line(text).isprintable()


# plain


def plain_lines(stream: io.StringIO) -> list[str]:
    return stream.getvalue().splitlines()


def test_a_small_run_shows_each_stage_and_each_attempt() -> None:
    stream = io.StringIO()
    display = PlainDisplay(stream, clock=Clock())
    for event in (run_started(1), entered("one", Stage.START), entered("one"), attempt_ended("one"), ENDED):
        display.on(event)

    assert plain_lines(stream) == [
        "benchmark / harness / model / environment: 1 attempts; results in results/name/id",
        "one #1: start",
        "one #1: agent",
        "one #1: correct · 1/1 · score 50.0 % [10.0, 90.0] · tokens 1.1k · cost $0.25 · 0:00",
        "broken off: 1/1 · score 50.0 % [10.0, 90.0] · tokens 1.1k · cost $0.25 · 0:00 · results/name/id",
    ]


def test_a_run_in_which_nothing_ends_shows_its_state_every_minute() -> None:
    stream, clock = io.StringIO(), Clock()
    display = PlainDisplay(stream, clock=clock)
    display.on(run_started(50))
    for number in range(10):
        display.on(entered(f"task-{number}"))
        clock.now += 20
    display.on(ENDED)

    assert len([line for line in plain_lines(stream) if line.endswith("running")]) == 3


def test_a_large_run_shows_about_a_hundred_lines_and_not_every_attempt() -> None:
    stream = io.StringIO()
    display = PlainDisplay(stream, clock=Clock())
    display.on(run_started(1000))
    for number in range(1000):
        display.on(entered(f"task-{number}"))
        display.on(attempt_ended(f"task-{number}"))
    display.on(ENDED)

    assert len(plain_lines(stream)) == 1 + 100 + 1


def test_a_flood_of_errors_is_counted_not_shown() -> None:
    stream = io.StringIO()
    display = PlainDisplay(stream, clock=Clock())
    display.on(run_started(ATTEMPTS_UP_TO + 1))
    for number in range(90):
        display.on(attempt_ended(f"task-{number}", error="the registry refused"))
    display.on(ENDED)
    shown = [line for line in plain_lines(stream) if "the registry refused" in line]

    assert (len(shown), "(80 more warnings not shown, see run.log)" in plain_lines(stream)) == (10, True)


def test_a_run_that_never_started_is_not_called_broken_off() -> None:
    stream = io.StringIO()
    PlainDisplay(stream).on(ENDED)

    assert stream.getvalue() == ""


def test_a_retry_names_the_attempt_and_the_cause_in_one_line() -> None:
    stream = io.StringIO()
    display = PlainDisplay(stream)
    key = AttemptKey(task_id="one", attempt=2)
    display.on(AttemptRetried(key=key, try_number=1, error="the sandbox\n  died"))
    display.on(ENDED)

    assert plain_lines(stream) == ["one #2: try 1 failed, trying again: the sandbox died"]


@pytest.mark.parametrize("name", ["plain", "rich", "json", "none"])
def test_secrets_are_replaced_whatever_shows_them(name: str) -> None:
    stream = io.StringIO()
    display = make_progress(name, stream, redact=lambda text: text.replace("hunter2", "***"))
    display.on(run_started(1))
    display.on(attempt_ended("one", error="401 for key hunter2"))
    display.print_line("warning: hunter2")
    display.on(ENDED)

    assert "***" in stream.getvalue()
    assert "hunter2" not in stream.getvalue()


# json


def test_every_line_is_one_json_object_with_its_type() -> None:
    stream = io.StringIO()
    display = make_progress("json", stream)
    for event in every_event():
        display.on(event)
    display.print_line("warning: late")
    types = [json.loads(line)["type"] for line in stream.getvalue().splitlines()]

    assert types == [
        "run_started",
        *["stage_entered"] * 6,
        "attempt_retried",
        "stage_entered",
        *["attempt_ended"] * 2,
        *["run_interrupted"] * 2,
        "run_ended",
        "log",
    ]


def test_an_event_carries_its_fields_but_not_what_may_be_megabytes() -> None:
    stream = io.StringIO()
    display = make_progress("json", stream)
    display.on(attempt_ended("one"))
    display.on(ENDED)
    event = json.loads(stream.getvalue().splitlines()[0])

    assert event["key"] == {"task_id": "one", "attempt": 1}
    assert event["record"]["status"] == "completed"
    assert "extra" not in event["record"]


# rich


def test_the_live_table_ends_with_a_clean_line_and_the_warnings_stay() -> None:
    stream = Terminal()
    display = RichDisplay(stream)
    for event in (run_started(2), entered("one"), RunInterrupted(hard=False, reason="interrupt"), ENDED):
        display.on(event)
    lines = stream.getvalue().splitlines()

    assert any("interrupt" in line for line in lines)
    assert lines[-1].startswith("broken off: 0/2")


def test_lines_after_the_end_are_still_shown() -> None:
    stream = Terminal()
    display = RichDisplay(stream)
    for event in (run_started(2), ENDED):
        display.on(event)
    display.print_line("warning: late")

    assert stream.getvalue().endswith("warning: late\n")


def test_a_table_of_many_running_attempts_is_cut_with_their_number() -> None:
    display = RichDisplay(Terminal())
    for number in range(500):
        display.on(entered(f"task-{number}"))
    with display._console.capture() as capture:
        display._console.print(display._view())
    shown = capture.get()

    assert shown.count("agent") == 12
    assert "and 488 more running" in shown


def test_the_table_shows_score_errors_tokens_cost_and_the_time_left() -> None:
    clock = Clock()
    display = RichDisplay(io.StringIO(), clock=clock)
    display._tally.on(run_started(4))
    for event in (entered("one"), entered("two", Stage.GRADE, try_number=2)):
        display.on(event)
    clock.now += 60
    display.on(attempt_ended("one", error="lost"))
    with display._console.capture() as capture:
        display._console.print(display._view())
    shown = " ".join(capture.get().split())

    assert "1/4" in shown
    assert "about 3:00 left" in shown
    assert "score 50.0 % [10.0, 90.0] errors 1 tokens 1.1k cost $0.25" in shown
    assert "two #1 grade 1:00 try 2" in shown


# a stream that is not read


@pytest.fixture
def stopped_terminal() -> Iterator[io.TextIOWrapper]:
    """A terminal that nobody reads: writes to it block once its buffer is full."""
    master, slave = pty.openpty()
    with os.fdopen(slave, "w") as stream:
        yield stream
        os.set_blocking(master, False)
        with open(master, "rb", closefd=True) as drain:
            stop = threading.Event()
            reader = threading.Thread(target=_drain, args=(drain, stop))
            reader.start()
            stop.wait(0.2)
            stop.set()
            reader.join()


def _drain(drain: io.BufferedReader, stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            if drain.read(65536) is None:
                stop.wait(0.01)
        except OSError:
            return


def test_a_terminal_that_is_not_read_does_not_hold_up_the_run(stopped_terminal: io.TextIOWrapper) -> None:
    writer = LineWriter(stopped_terminal, capacity=100)
    for number in range(1000):
        writer.line(f"{number} " + "x" * 1000)
    waiting = len(writer._waiting)
    writer.finish(limit_s=0.1)

    assert waiting <= 100


def test_lines_that_did_not_fit_are_counted_once_there_is_room() -> None:
    gate = threading.Event()

    class Slow(io.StringIO):
        def write(self, text: str) -> int:
            gate.wait()
            return super().write(text)

    stream = Slow()
    writer = LineWriter(stream, capacity=10)
    for number in range(100):
        writer.line(str(number))
    gate.set()
    writer.finish()
    lines = stream.getvalue().splitlines()
    shown = [line for line in lines if line.isdigit()]
    notes = [re.fullmatch(r"\((\d+) lines were not shown: .*\)", line) for line in lines if not line.isdigit()]

    assert sum(int(note[1]) for note in notes if note) == 100 - len(shown) > 0
