"""Sandboxes are created no faster than told, and no more start at once than told."""

import asyncio

import pytest
from agentcompass.adapters.environments.modal.pacing import Pacing
from agentcompass.adapters.support.stage_clock import stage_clock


class Clock:
    """Time that passes in sleep only; whoever sleeps lets others go first."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        wake = self.now + seconds
        await asyncio.sleep(0)
        self.now = max(self.now, wake)


@pytest.mark.parametrize("rate", [0.5, 4, 30])
async def test_no_second_has_more_turns_than_the_rate(rate: float) -> None:
    clock = Clock()
    pacing = Pacing(rate, 1, clock, clock.sleep)
    turns: list[float] = []

    async def take() -> None:
        await pacing.turn()
        turns.append(clock.now)

    await asyncio.gather(*(take() for _ in range(100)))
    busiest = max(sum(start <= turn < start + 1 - 1e-6 for turn in turns) for start in turns)

    assert len(turns) == 100
    assert busiest <= max(1, rate)


async def test_the_first_turn_does_not_wait() -> None:
    clock = Clock()
    await Pacing(0.001, 1, clock, clock.sleep).turn()

    assert clock.now == 100.0


async def test_no_more_start_at_once_than_allowed() -> None:
    pacing = Pacing(1000, 3)
    now = most = 0

    async def start() -> None:
        nonlocal now, most
        async with pacing.starting():
            now += 1
            most = max(most, now)
            await asyncio.sleep(0.001)
            now -= 1

    await asyncio.gather(*(start() for _ in range(20)))

    assert most == 3


async def test_a_start_that_fails_makes_room() -> None:
    pacing = Pacing(1000, 1)
    with pytest.raises(ValueError, match="no"):
        async with pacing.starting():
            raise ValueError("no")
    async with pacing.starting():
        pass


async def test_the_limit_of_a_stage_does_not_count_the_wait_for_ones_turn() -> None:
    pacing = Pacing(20, 1)

    async def start() -> None:
        async with stage_clock(0.1), pacing.starting():
            await pacing.turn()
            await asyncio.sleep(0.03)

    await asyncio.gather(*(start() for _ in range(5)))
