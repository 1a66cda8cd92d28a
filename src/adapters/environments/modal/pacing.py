"""How fast sandboxes are created: so many a second, so many starting at once."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager


class Pacing:
    """One for each account that creates. `clock` and `sleep` are arguments so that tests wait for nothing."""

    def __init__(
        self,
        create_rate: float,
        max_starting: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._interval_s = 1 / create_rate
        self._starting = asyncio.Semaphore(max_starting)
        self._turn = asyncio.Lock()
        self._next = 0.0
        self._clock, self._sleep = clock, sleep

    @asynccontextmanager
    async def starting(self) -> AsyncIterator[None]:
        """Held from before a creation until the sandbox has answered."""
        async with self._starting:
            yield

    async def turn(self) -> None:
        """Wait until one more may be created; turns are at least an interval apart, also when they come late."""
        async with self._turn:
            while (wait_s := self._next - self._clock()) > 0:
                await self._sleep(wait_s)
            self._next = self._clock() + self._interval_s
