"""The clock of a stage counts work, and no wait for a turn."""

import asyncio

import pytest
from agentcompass.adapters.support.stage_clock import stage_clock, turn_of, waiting_for_turn


async def test_a_wait_for_a_turn_is_not_counted_and_the_work_around_it_is() -> None:
    slots, loop = asyncio.Semaphore(0), asyncio.get_running_loop()
    loop.call_later(1.2, slots.release)
    began = loop.time()

    async def stage() -> None:
        async with stage_clock(1):
            await asyncio.sleep(0.1)
            async with turn_of(slots):
                await asyncio.sleep(10)

    with pytest.raises(TimeoutError):
        await stage()

    assert 1.3 < loop.time() - began < 10


async def test_a_wait_in_a_task_that_the_stage_started_is_not_counted() -> None:
    async def work() -> str:
        with waiting_for_turn():
            await asyncio.sleep(0.6)
        return "done"

    async with stage_clock(0.5):
        done = await asyncio.ensure_future(work())

    assert done == "done"


async def test_a_wait_within_a_wait_counts_once() -> None:
    async with stage_clock(0.5) as clock:
        with waiting_for_turn(), waiting_for_turn():
            await asyncio.sleep(0.6)

    assert 0 <= clock.worked_s < 0.5


@pytest.mark.parametrize("begins_after_s", [0, 0.1])
async def test_a_wait_outlives_the_stage_that_started_it(begins_after_s: float) -> None:
    async def work() -> str:
        await asyncio.sleep(begins_after_s)
        with waiting_for_turn():
            await asyncio.sleep(0.1)
        return "done"

    async with stage_clock(60):
        task = asyncio.create_task(work())
        await asyncio.sleep(0.01)

    assert await task == "done"


async def test_a_cancelled_wait_ends_the_stage_and_takes_no_slot() -> None:
    slots = asyncio.Semaphore(0)

    async def stage() -> None:
        async with stage_clock(60), turn_of(slots):
            pass

    task = asyncio.create_task(stage())
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait({task})
    slots.release()

    assert task.cancelled()
    assert not slots.locked()


async def test_a_wait_outside_of_any_stage_is_a_wait() -> None:
    async with turn_of(asyncio.Semaphore(1)):
        pass
