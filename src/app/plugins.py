"""Calls of adapters, which may be anybody's: whatever one of them raises is its own failure, and no end of ours."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TypeVar

import structlog

from ..domain.errors import AgentCompassError, SandboxFailed
from ..domain.ports import Environment, Model

log = structlog.get_logger()
T = TypeVar("T")
CLOSE_LIMIT_S = 30.0


@contextmanager
def plugin_border(broken: Callable[[str], AgentCompassError]) -> Iterator[None]:
    """Inside, a plug-in is called: what it raises, but for our own errors, becomes `broken("TYPE: TEXT")`.

    So do an exit, and a cancellation that nobody asked for. One that was asked for is passed on, and so is a Ctrl-C.
    """
    try:
        yield
    except (AgentCompassError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as exc:
        if isinstance(exc, asyncio.CancelledError) and _is_being_cancelled():
            raise
        text = str(exc)
        raise broken(f"{type(exc).__name__}: {text}" if text else type(exc).__name__) from exc


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def bounded_call(make: Callable[[], Awaitable[T]], limit_s: float, late: AgentCompassError) -> T:
    """What a call of an environment comes to.

    Raises:
        SandboxFailed: it broke. Our own errors are raised as they come.
        AgentCompassError: `late`, where it has not ended within `limit_s`.
    """
    scope = asyncio.timeout(limit_s)
    try:
        async with scope:
            with plugin_border(SandboxFailed):
                return await make()
    except (AgentCompassError, TimeoutError) as exc:
        if scope.expired():
            raise late from exc
        raise


@asynccontextmanager
async def closing(environment: Environment, model: Model | None = None) -> AsyncIterator[Environment]:
    """Inside, both may be used; afterwards their connections are closed. A failure of that is an event."""
    async with AsyncExitStack() as stack:
        for adapter in (environment, model):
            if adapter is not None:
                stack.push_async_callback(_close, adapter)
        yield environment


async def _close(adapter: Environment | Model) -> None:
    late = SandboxFailed(f"not closed within {CLOSE_LIMIT_S:g} s")
    try:
        await bounded_call(adapter.close, CLOSE_LIMIT_S, late)
    except AgentCompassError as exc:
        log.warning("adapter.not_closed", adapter=adapter.name, error=str(exc))
