"""The sweep at the start of a run: what dead runs of this machine left behind is stopped beside the work."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from ..adapters.support.liveness import dead_runs
from ..domain.errors import AgentCompassError, SandboxFailed
from ..domain.ports import Environment
from ..domain.sandbox import SweepSelector, SweptSandbox
from .plugins import bounded_call

log = structlog.get_logger()
SWEEP_LIMIT_S = 300.0
_LAST_WAIT_S = 5.0


@asynccontextmanager
async def dead_runs_swept(environment: Environment) -> AsyncIterator[None]:
    """Meanwhile `environment` is swept. A sweep that fails is the event `sweep.failed`, and no matter to the run."""
    sweeping = asyncio.create_task(_sweep(environment))
    try:
        yield
        await asyncio.wait({sweeping}, timeout=_LAST_WAIT_S)
    finally:
        sweeping.cancel()
        await asyncio.gather(sweeping, return_exceptions=True)


async def bounded_sweep(environment: Environment, selector: SweepSelector) -> list[SweptSandbox]:
    """As the port's `sweep`.

    Raises:
        AgentCompassError: as it came; SandboxFailed where it broke, or has not ended within `SWEEP_LIMIT_S`.
    """
    late = SandboxFailed(f"its sweep has not ended within {SWEEP_LIMIT_S:g} s", hint="sweep again")
    return await bounded_call(lambda: environment.sweep(selector), SWEEP_LIMIT_S, late)


async def _sweep(environment: Environment) -> None:
    try:
        swept = await bounded_sweep(environment, dead_runs())
    except AgentCompassError as exc:
        log.warning("sweep.failed", environment=environment.name, error=str(exc))
        return
    for sandbox in swept:
        _report(sandbox)


def _report(sandbox: SweptSandbox) -> None:
    if sandbox.error:
        log.error("sandbox.leaked", sandbox=sandbox.id, of_run=sandbox.run_id, error=sandbox.error)
    else:
        log.info("sandbox.swept", sandbox=sandbox.id, of_run=sandbox.run_id)
