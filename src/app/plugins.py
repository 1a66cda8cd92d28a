"""Calls of adapters, which may be anybody's: whatever one of them raises is its own failure, and no end of ours."""

import asyncio
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog
from pydantic import ValidationError

from ..domain.errors import AgentCompassError, ConfigError, SandboxFailed
from ..domain.one_line import one_line
from ..domain.ports import Benchmark, Environment, Model
from ..domain.task import Task, TaskSelection
from ..domain.value import Value, first_fault

log = structlog.get_logger()
T = TypeVar("T")
V = TypeVar("V", bound=Value)
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


def returned(value: object, kind: type[V], call: str, broken: Callable[[str], AgentCompassError]) -> V:
    """`value`, which a plug-in's `call` returned, once it is known to be a `kind`, also where pydantic has not looked.

    Raises:
        AgentCompassError: `broken`: it is something else, or a field of it is (`model_construct`, `model_copy`).
    """
    if not isinstance(value, kind):
        what = "None" if value is None else type(value).__name__
        raise broken(f"{call} returned {what}, not a {kind.__name__}")
    own = {name: item for name, item in vars(value).items() if name in kind.model_fields}
    try:
        kind.model_validate(own, strict=True)
    except ValidationError as exc:
        fault = first_fault(exc)
    else:
        return value
    raise broken(f"{call} returned a {kind.__name__} that is not valid: {fault}")


def making(adapter: str) -> AbstractContextManager[None]:
    """Inside, an adapter is made: what breaks there is a ConfigError in one line, which calls it `adapter`."""
    return plugin_border(lambda fault: _broken_at_start(adapter, f"making it broke: {fault}"))


async def tasks_of(benchmark: Benchmark, named: str, selection: TaskSelection) -> Sequence[Task]:
    """What `benchmark` loads. Messages call it what the user has `named`.

    Raises:
        ConfigError: it broke, or gave something else than tasks. Our own errors are raised as they come.
    """
    broken = partial(_broken_at_start, f"benchmark {named!r}")
    with plugin_border(lambda fault: broken(f"load_tasks broke: {fault}")):
        tasks = await benchmark.load_tasks(selection)
        if not isinstance(tasks, Sequence):
            raise broken(f"load_tasks returned {type(tasks).__name__}, not a sequence of Task")
        return [returned(task, Task, f"load_tasks, as item {at},", broken) for at, task in enumerate(tasks, 1)]


def _broken_at_start(adapter: str, fault: str) -> ConfigError:
    """With the place where it was raised: no log is there yet that would keep the traceback."""
    frames = traceback.extract_tb(sys.exc_info()[2])
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return ConfigError(f"{adapter}: {one_line(fault)}{place}")


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
