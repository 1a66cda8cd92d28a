"""What a signal does to the runs of a process, and what is left of that afterwards."""

import asyncio
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
from agentcompass.app.interrupts import Interrupts
from agentcompass.domain.task import Task, TaskSelection
from agentcompass.testing.fakes import FakeBenchmark
from command_line import command

FAKES = "agentcompass.testing.fakes"
TAKEN = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Heard:
    """A run that notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.interrupts = Interrupts(self.asked.append, self.asked.append)


@pytest.fixture(autouse=True)
def handlers_of_the_tests() -> Iterator[None]:
    """As in a terminal, also where the tests themselves were started to ignore a signal (`nohup`)."""
    before = {number: signal.getsignal(number) for number in TAKEN}
    for number in TAKEN:
        if before[number] is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


async def sent(number: signal.Signals) -> None:
    signal.raise_signal(number)
    await asyncio.sleep(0)


async def test_the_first_ctrl_c_is_soft_and_the_second_is_hard() -> None:
    run = Heard()
    with run.interrupts.installed(None):
        await sent(signal.SIGINT)
        after_one = (run.interrupts.soft, run.interrupts.hard)
        await sent(signal.SIGINT)

    assert after_one == (True, False)
    assert run.asked == ["interrupt", "second interrupt"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_termination_and_a_closed_terminal_are_hard(number: signal.Signals) -> None:
    run = Heard()
    with run.interrupts.installed(None):
        await sent(number)

    assert (run.asked, run.interrupts.hard) == ([number.name], True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_that_the_process_was_started_to_ignore_stays_ignored(number: signal.Signals) -> None:
    signal.signal(number, signal.SIG_IGN)
    run = Heard()
    with run.interrupts.installed(None):
        await sent(number)

    assert run.asked == []
    assert signal.getsignal(number) is signal.SIG_IGN


async def test_a_script_can_ask_for_a_soft_end_of_what_it_runs_in_the_background() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    run = Heard()
    with run.interrupts.installed(None):
        await sent(signal.SIGINT)

    assert run.asked == ["interrupt"]
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


class InterruptedAsItLoads(FakeBenchmark):
    """A Ctrl-C comes in the middle of a start-up."""

    async def load_tasks(self, selection: TaskSelection) -> Sequence[Task]:
        await sent(signal.SIGINT)
        return await super().load_tasks(selection)


def test_a_script_can_end_what_it_runs_in_the_background_also_while_that_starts(tmp_path: Path) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    words = (f"{__name__}:InterruptedAsItLoads", f"{FAKES}:FakeHarness", "none", "--env", f"{FAKES}:FakeEnvironment")
    ended = command("run", *words, "--results-dir", tmp_path)

    assert (ended.code, ended.out) == (130, "")
    assert list(tmp_path.iterdir()) == []


def test_in_another_thread_a_command_leaves_signals_alone(tmp_path: Path) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    words = (f"{FAKES}:FakeBenchmark", f"{FAKES}:FakeHarness", "none", "--env", f"{FAKES}:FakeEnvironment")
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(command, "run", *words, "--results-dir", tmp_path, "--progress", "none").result()

    assert (ended.code, signal.getsignal(signal.SIGINT)) == (0, signal.SIG_IGN)


async def test_signals_go_where_they_went_before_once_the_run_has_ended() -> None:
    def of_the_program(*_: Any) -> None:
        raise AssertionError

    for number in TAKEN:
        signal.signal(number, of_the_program)
    with Heard().interrupts.installed(None):
        assert of_the_program not in map(signal.getsignal, TAKEN)

    assert set(map(signal.getsignal, TAKEN)) == {of_the_program}


async def test_a_signal_is_for_every_run_under_way_whichever_began_or_ended_first() -> None:
    before = signal.getsignal(signal.SIGINT)
    first, second = Heard(), Heard()
    first_ends, second_ends = asyncio.Event(), asyncio.Event()

    async def under_way(run: Heard, end: asyncio.Event) -> None:
        with run.interrupts.installed(None):
            await end.wait()

    async with asyncio.TaskGroup() as group:
        group.create_task(under_way(first, first_ends))
        group.create_task(under_way(second, second_ends))
        await asyncio.sleep(0)
        await sent(signal.SIGINT)
        first_ends.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await sent(signal.SIGTERM)
        second_ends.set()

    assert (first.asked, second.asked) == (["interrupt"], ["interrupt", "SIGTERM"])
    assert signal.getsignal(signal.SIGINT) is before


async def test_a_run_is_asked_in_its_own_context() -> None:
    of_run: ContextVar[str] = ContextVar("of_run", default="none")
    seen: list[str] = []
    interrupts = Interrupts(lambda _: seen.append(of_run.get()), seen.append)
    of_run.set("this run")
    with interrupts.installed(None):
        of_run.set("another run")
        await sent(signal.SIGINT)

    assert seen == ["this run"]


async def test_in_another_thread_a_run_leaves_signals_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)
    run = Heard()

    async def elsewhere() -> bool:
        with run.interrupts.installed(None):
            return signal.getsignal(signal.SIGTERM) is before

    assert await asyncio.to_thread(asyncio.run, elsewhere())
