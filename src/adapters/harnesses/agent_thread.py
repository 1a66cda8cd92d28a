"""A synchronous agent in a thread of its own, whose calls run in the event loop and can be cut."""

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from ...domain.errors import HarnessFailed
from ..support.cleanup import cleaned_up, exception_seen

T = TypeVar("T")
END_LIMIT_S = 60.0
"""How long a cut thread may take to end: the call in flight has a command to kill."""


class CallCut(Exception):
    """The attempt was cancelled, so its thread must end."""


class LoopCalls:
    """`calls(lambda: port.method(...))` awaits in the event loop on behalf of the agent's thread.

    `cut` cancels the call in flight; that one, once its own cleaning up is done, and every later one raise CallCut.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._context = contextvars.copy_context()
        self._cut = False
        self._task: asyncio.Task[Any] | None = None

    def __call__(self, make: Callable[[], Awaitable[T]]) -> T:
        """In the agent's thread: what `make()` comes to, or what it raises."""
        outcome: Future[T] = Future()
        self._loop.call_soon_threadsafe(self._start, make, outcome)
        return outcome.result()

    def _start(self, make: Callable[[], Awaitable[T]], outcome: "Future[T]") -> None:
        if self._cut:
            outcome.set_exception(CallCut("the attempt was cancelled"))
            return

        async def awaited() -> T:
            try:
                return await make()
            except SystemExit as exc:  # in a task of its own it would end the event loop
                raise HarnessFailed(f"a call of the agent exited: SystemExit: {exc}") from exc

        self._task = self._loop.create_task(awaited(), context=self._context)
        self._task.add_done_callback(partial(_settle, outcome))

    def cut(self) -> None:
        """In the event loop: end the thread's calls."""
        self._cut = True
        if self._task is not None:
            self._task.cancel()


def _settle(outcome: "Future[T]", task: "asyncio.Task[T]") -> None:
    if task.cancelled():
        outcome.set_exception(CallCut("the attempt was cancelled"))
    elif (error := task.exception()) is not None:
        outcome.set_exception(error)
    else:
        outcome.set_result(task.result())


async def run_in_thread(work: Callable[[LoopCalls], T], *, name: str, end_limit_s: float = END_LIMIT_S) -> T:
    """Run `work` in a new thread and return what it returns. Cancelled, its calls are cut and its end is awaited.

    Raises:
        HarnessFailed: one of its calls was cancelled, but not by the caller.
    """
    loop = asyncio.get_running_loop()
    calls = LoopCalls(loop)
    ended: asyncio.Future[T] = loop.create_future()
    main = partial(contextvars.copy_context().run, _main, work, calls, loop, ended)
    thread = threading.Thread(target=main, name=name, daemon=True)
    thread.start()
    try:
        return await asyncio.shield(ended)
    except CallCut as exc:
        raise HarnessFailed(f"a call of {name} was cancelled from outside") from exc
    except asyncio.CancelledError:
        calls.cut()
        ended.add_done_callback(exception_seen)
        await cleaned_up(asyncio.wait({ended}), end_limit_s, f"end of thread {name!r}")
        raise
    finally:
        if ended.done():
            thread.join(timeout=1)  # it has nothing left to do


def _main(
    work: Callable[[LoopCalls], T],
    calls: LoopCalls,
    loop: asyncio.AbstractEventLoop,
    ended: "asyncio.Future[T]",
) -> None:
    outcome: Callable[[], None]
    try:
        outcome = partial(_set_unless_done, ended.set_result, ended, work(calls))
    except BaseException as exc:  # noqa: BLE001 - a thread's border: whatever ended it is raised in the event loop
        outcome = partial(_set_unless_done, ended.set_exception, ended, exc)
    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(outcome)


def _set_unless_done(setter: Callable[[Any], None], ended: "asyncio.Future[T]", value: Any) -> None:
    if not ended.done():
        setter(value)
