"""Stopping what was started: shielded from cancellation, and bounded."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import structlog

log = structlog.get_logger()
T = TypeVar("T")

STOP_SLACK_S = 5.0
"""For what a stop does after it was cancelled at its limit."""


async def finished_despite_cancel(work: Awaitable[T], limit_s: float) -> T:
    """Await `work` to its end through any number of cancellations, which are passed on afterwards.

    Raises:
        TimeoutError: `work` took longer than `limit_s`; it has been cancelled.
        asyncio.CancelledError: the caller was cancelled meanwhile; `work` is done.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    deadline = loop.time() + limit_s
    cancelled: asyncio.CancelledError | None = None
    while not task.done() and (left := deadline - loop.time()) > 0:
        try:
            await asyncio.wait({task}, timeout=left)  # unlike wait_for, leaves the task alone
        except asyncio.CancelledError as exc:
            cancelled = exc
    if not task.done():
        task.cancel()
        raise cancelled or TimeoutError(f"not finished within {limit_s:g} s")
    if cancelled is not None:
        _ = task.exception()  # retrieved: the cancellation outranks it
        raise cancelled
    return task.result()


async def cleaned_up(work: Awaitable[object], limit_s: float, what: str) -> None:
    """Await a clean-up as `finished_despite_cancel` does; that it failed or took too long is `cleanup.abandoned`.

    What brought the clean-up about, a cancellation above all, outranks that. Where no exception did, one that the
    clean-up fails with is raised.
    """
    brought_about, task = sys.exception(), asyncio.ensure_future(work)
    task.add_done_callback(exception_seen)
    try:
        await finished_despite_cancel(task, limit_s)
    except asyncio.CancelledError:
        _tell_failure(task, limit_s, what)
        raise
    except Exception as exc:
        if brought_about is None and not isinstance(exc, TimeoutError):
            raise
        _tell_failure(task, limit_s, what)


def _tell_failure(task: "asyncio.Future[Any]", limit_s: float, what: str) -> None:
    failure: BaseException | None = TimeoutError(f"not finished within {limit_s:g} s")
    if task.done():
        failure = None if task.cancelled() else task.exception()
    if failure is not None:
        log.error("cleanup.abandoned", what=what, error=str(failure) or type(failure).__name__)


def exception_seen(work: "asyncio.Future[Any]") -> None:
    """A callback for work that nobody awaits any more: asyncio does not complain of its exception."""
    if not work.cancelled():
        work.exception()


async def stop_shielded(stop: Callable[[], Awaitable[None]], *, limit_s: float, what: str) -> None:
    """Run `stop` to its end, whatever is cancelled. A failure is the event `sandbox.leaked`, never an exception.

    `stop` is cancelled at `limit_s`, and left to itself where it has not ended `STOP_SLACK_S` later.
    """

    async def guarded() -> None:
        try:
            async with asyncio.timeout(limit_s):
                await stop()
        except Exception as exc:  # noqa: BLE001 - a failed stop must not hide the attempt's own outcome
            log.error("sandbox.leaked", sandbox=what, error=str(exc) or type(exc).__name__)

    work = asyncio.ensure_future(guarded())
    try:
        with suppress(TimeoutError):
            await finished_despite_cancel(work, limit_s + STOP_SLACK_S)
    finally:
        if not work.done():
            log.error(
                "sandbox.leaked", sandbox=what, error=f"its stop has not ended within {limit_s + STOP_SLACK_S:g} s"
            )
