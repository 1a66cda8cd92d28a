"""How fast sandboxes are created: so many a second, so many starting at once."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from ...support.retrying import Sleep
from ...support.stage_clock import turn_of, waiting_for_turn


class Pacing:
    """One for each account that creates. `clock` and `sleep` are arguments so that tests wait for nothing."""

    def __init__(
        self,
        create_rate: float,
        max_starting: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._interval_s = 1 / create_rate
        self._starting = asyncio.Semaphore(max_starting)
        self._turn = asyncio.Lock()
        self._next = 0.0
        self._clock, self._sleep = clock, sleep

    def starting(self) -> AbstractAsyncContextManager[None]:
        """Held from before a creation until the sandbox has answered."""
        return turn_of(self._starting)

    async def turn(self) -> None:
        """Wait until one more may be created; turns are at least an interval apart, also when they come late."""
        with waiting_for_turn():
            async with self._turn:
                while (wait_s := self._next - self._clock()) > 0:
                    await self._sleep(wait_s)
                self._next = self._clock() + self._interval_s
