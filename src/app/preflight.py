"""Before a run starts anything: can sandboxes start at all?"""

import asyncio

from ..domain.errors import ConfigError
from ..domain.ports import Environment
from ..domain.sandbox import Check

CHECK_LIMIT_S = 30.0


async def refuse_unready(environment: Environment) -> None:
    """Ask `environment` once.

    Raises:
        ConfigError: what every attempt would fail of.
    """
    for check in await _checks(environment):
        if not (check.ok or check.is_advice):
            message = f"environment {environment.name!r} is not ready: {check.name}: {check.detail}"
            raise ConfigError(message, hint=check.hint or f"see agentcompass doctor {environment.name}")


async def _checks(environment: Environment) -> list[Check]:
    try:
        async with asyncio.timeout(CHECK_LIMIT_S):
            return await environment.check()
    except TimeoutError:
        return [Check(name="check", ok=False, detail=f"no answer within {CHECK_LIMIT_S:g} s", hint="try again")]
    except Exception as exc:  # noqa: BLE001 - a plug-in: that it never raises is its promise, and may be broken
        detail = f"{type(exc).__name__}: {exc}"
        return [Check(name="check", ok=False, detail=detail)]
