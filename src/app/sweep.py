"""The sweep at the start of a run: what dead runs of this machine left behind is stopped beside the work."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from ..adapters.support.liveness import dead_runs
from ..domain.errors import SandboxFailed
from ..domain.ports import Environment
from ..domain.sandbox import SweepSelector, SweptSandbox

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
    """As the port's `sweep`. Raises SandboxFailed: it has not ended within `SWEEP_LIMIT_S`."""
    try:
        async with asyncio.timeout(SWEEP_LIMIT_S):
            return await environment.sweep(selector)
    except TimeoutError as exc:
        raise SandboxFailed(f"its sweep has not ended within {SWEEP_LIMIT_S:g} s", hint="sweep again") from exc


async def _sweep(environment: Environment) -> None:
    try:
        swept = await bounded_sweep(environment, dead_runs())
    except Exception as exc:  # noqa: BLE001 - a plug-in; the run does not need it
        log.warning("sweep.failed", environment=environment.name, error=str(exc) or type(exc).__name__)
        return
    for sandbox in swept:
        _report(sandbox)


def _report(sandbox: SweptSandbox) -> None:
    if sandbox.error:
        log.error("sandbox.leaked", sandbox=sandbox.id, of_run=sandbox.run_id, error=sandbox.error)
    else:
        log.info("sandbox.swept", sandbox=sandbox.id, of_run=sandbox.run_id)
