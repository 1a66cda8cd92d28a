"""Before anything is asked of an environment: does it answer, and can sandboxes start at all?"""

import asyncio

from ..domain.errors import ConfigError
from ..domain.ports import Environment
from ..domain.sandbox import Check

CHECK_LIMIT_S = 30.0


async def refuse_unready(environment: Environment, *, to_start: bool = True) -> None:
    """Ask `environment` once; what only sandboxes that start need is needed only `to_start` some.

    Raises:
        ConfigError: what is wrong first.
    """
    for check in await _checks(environment):
        is_needed = not check.is_advice and (to_start or not check.only_starting)
        if is_needed and not check.ok:
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
