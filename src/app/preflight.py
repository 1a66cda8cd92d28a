"""Before anything is asked of an environment: does it answer, and can sandboxes start at all?"""

import asyncio
from collections.abc import Sequence

from ..domain.errors import ConfigError
from ..domain.ports import Environment
from ..domain.sandbox import Check

CHECK_LIMIT_S = 30.0


async def refuse_unready(environment: Environment) -> None:
    """Ask `environment` once.

    Raises:
        ConfigError: what every attempt would fail of.
    """
    _refuse_first_fault(environment, await _checks(environment))


async def refuse_unreachable(environment: Environment) -> None:
    """Ask `environment` once; where all is wrong with it, nobody is there, and asking for more might hang.

    Raises:
        ConfigError: what is wrong first.
    """
    checks = await _checks(environment)
    if not any(check.ok for check in checks):
        _refuse_first_fault(environment, checks)


def _refuse_first_fault(environment: Environment, checks: Sequence[Check]) -> None:
    for check in checks:
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
