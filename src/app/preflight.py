"""Before anything is asked of an environment: does it answer, and can sandboxes start at all?"""

from ..domain.errors import AgentCompassError, ConfigError, SandboxFailed
from ..domain.ports import Environment
from ..domain.sandbox import Check
from .plugins import bounded_call

CHECK_LIMIT_S = 30.0


async def refuse_unready(environment: Environment, named: str, *, to_start: bool = True) -> None:
    """Ask `environment` once; what only sandboxes that start need is needed only `to_start` some.

    Messages call it what the user has `named`.

    Raises:
        ConfigError: what is wrong first.
    """
    for check in await checks_of(environment):
        is_needed = not check.is_advice and (to_start or not check.only_starting)
        if is_needed and not check.ok:
            message = f"environment {named!r} is not ready: {check.name}: {check.detail}"
            raise ConfigError(message, hint=check.hint or f"see agentcompass doctor {named}")


async def checks_of(environment: Environment) -> list[Check]:
    """What `environment` says of itself; that it does not answer, or breaks, is a check that failed."""
    late = SandboxFailed(f"no answer within {CHECK_LIMIT_S:g} s", hint="try again")
    try:
        return await bounded_call(environment.check, CHECK_LIMIT_S, late)
    except AgentCompassError as exc:
        return [failed_check("check", exc)]


def failed_check(name: str, error: AgentCompassError) -> Check:
    """`error` as a check."""
    return Check(name=name, ok=False, detail=error.message, hint=error.hint)
