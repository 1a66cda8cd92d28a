"""The clock of an attempt's stage. It measures work: while that waits for its turn, the clock stands still."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar


class StageClock:
    """What `stage_clock` gives."""

    def __init__(self, scope: asyncio.Timeout) -> None:
        self._scope, self._loop = scope, asyncio.get_running_loop()
        self._started, self._waited_s = self._loop.time(), 0.0
        self.is_over = False

    @property
    def expired(self) -> bool:
        """Whether the limit has been reached."""
        return self._scope.expired()

    @property
    def worked_s(self) -> float:
        """Seconds since the start, without the waits that are over."""
        return self._loop.time() - self._started - self._waited_s

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Inside, no time is counted; a wait within a wait counts once."""
        ends, began = self._scope.when(), self._loop.time()
        if ends is None or self.is_over or self.expired:
            yield
            return
        self._scope.reschedule(None)
        try:
            yield
        finally:
            waited_s = self._loop.time() - began
            self._waited_s += waited_s
            if not self.is_over:
                self._scope.reschedule(ends + waited_s)


# Ambient: a limit is set by who calls a plug-in, and the queues, which few plug-ins have, are deep inside.
_current: ContextVar[StageClock | None] = ContextVar("stage_clock", default=None)


@asynccontextmanager
async def stage_clock(limit_s: float) -> AsyncIterator[StageClock]:
    """As `asyncio.timeout`, without counting what runs in `waiting_for_turn`, here or in tasks started from here."""
    async with asyncio.timeout(limit_s) as scope:
        clock = StageClock(scope)
        token = _current.set(clock)
        try:
            yield clock
        finally:
            clock.is_over = True
            _current.reset(token)


@contextmanager
def waiting_for_turn() -> Iterator[None]:
    """The stage's clock stands still inside. The wait must have an end of its own: no limit of the stage ends it."""
    clock = _current.get()
    if clock is None:
        yield
        return
    with clock.stopped():
        yield


@asynccontextmanager
async def turn_of(slots: asyncio.Semaphore) -> AsyncIterator[None]:
    """Hold one of `slots`, which everyone gives back in the end; the stage's clock does not count the wait for it."""
    with waiting_for_turn():
        await slots.acquire()
    try:
        yield
    finally:
        slots.release()
