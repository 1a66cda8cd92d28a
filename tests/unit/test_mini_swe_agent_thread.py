"""A synchronous agent's thread: its results, its calls, and its end."""

import asyncio
import threading

import pytest
from agentcompass.adapters.harnesses.agent_thread import CallCut, LoopCalls, run_in_thread
from agentcompass.domain.errors import HarnessFailed
from structlog.testing import capture_logs


async def add(left: int, right: int) -> int:
    await asyncio.sleep(0)
    return left + right


async def test_calls_run_in_the_loop_and_results_come_back() -> None:
    loop = asyncio.get_running_loop()
    seen: list[bool] = []

    async def where() -> None:
        seen.append(asyncio.get_running_loop() is loop)

    def work(calls: LoopCalls) -> int:
        calls(where)
        first = calls(lambda: add(1, 2))
        return calls(lambda: add(first, 3))

    assert await run_in_thread(work, name="t") == 6
    assert seen == [True]


async def test_an_error_comes_back_as_it_is() -> None:
    error = KeyError("mine")

    def work(calls: LoopCalls) -> None:
        raise error

    with pytest.raises(KeyError) as caught:
        await run_in_thread(work, name="t")

    assert caught.value is error


async def test_a_call_that_exits_is_the_harnesss_failure_and_no_end_of_the_loop() -> None:
    async def exits() -> None:
        raise SystemExit(0)

    with pytest.raises(HarnessFailed, match="SystemExit: 0"):
        await run_in_thread(lambda calls: calls(exits), name="t")


async def test_after_the_cut_every_further_call_raises() -> None:
    entered = asyncio.Event()
    outcomes: list[str] = []

    async def hang() -> None:
        entered.set()
        await asyncio.Event().wait()

    def work(calls: LoopCalls) -> None:
        for make in (hang, lambda: add(1, 2), lambda: add(3, 4)):
            try:
                calls(make)
            except CallCut:
                outcomes.append("cut")

    running = asyncio.create_task(run_in_thread(work, name="t"))
    await entered.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert outcomes == ["cut", "cut", "cut"]


async def test_cancelled_twice_it_still_waits_for_the_thread() -> None:
    entered, cleaning, clean = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow_to_end() -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await clean.wait()

    running = asyncio.create_task(run_in_thread(lambda calls: calls(slow_to_end), name="twice"))
    await entered.wait()
    running.cancel()
    await cleaning.wait()
    running.cancel()
    await asyncio.sleep(0.01)
    waited = not running.done()
    clean.set()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert waited
    assert not any(thread.name == "twice" for thread in threading.enumerate())


async def test_a_thread_that_does_not_end_is_reported_and_left() -> None:
    release = threading.Event()
    started = asyncio.Event()
    loop = asyncio.get_running_loop()

    def work(calls: LoopCalls) -> None:
        loop.call_soon_threadsafe(started.set)
        release.wait()

    with capture_logs() as logs:
        running = asyncio.create_task(run_in_thread(work, name="stuck", end_limit_s=0.05))
        await started.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    release.set()

    assert [(entry["event"], entry["what"]) for entry in logs] == [("cleanup.abandoned", "end of thread 'stuck'")]
