"""Looking after environments outside a run: `doctor` and `cleanup`."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..adapters.support.liveness import dead_runs
from ..domain.errors import AgentCompassError, ConfigError
from ..domain.ports import Environment
from ..domain.sandbox import Check, SweepSelector, SweptSandbox
from .catalog import Catalog, Kind
from .preflight import refuse_unready
from .settings import Flags, load_environment
from .sweep import bounded_sweep


def checks(names: Sequence[str], config: Sequence[Path]) -> Mapping[str, list[Check]]:
    """What each environment says of itself; all of the catalog's where no name is given."""
    catalog = Catalog()
    chosen = list(names) or catalog.names(Kind.ENVIRONMENTS)
    return asyncio.run(_checks({name: _opened(name, config, catalog) for name in chosen}))


@dataclass(frozen=True)
class Swept:
    """What became of what dead runs left behind."""

    sandboxes: Sequence[SweptSandbox]
    unreached: Sequence[str]
    """Why environments that nobody named were passed over."""


def swept(name: str | None, run_id: str | None, config: Sequence[Path], params: str | None = None) -> Swept:
    """Stop what dead runs left behind, in one environment (by its `params`) or in all that can be reached."""
    if params is not None and name is None:
        raise ConfigError("--env-params are those of one environment", hint="name it with --env")
    catalog = Catalog()
    chosen = [name] if name else catalog.names(Kind.ENVIRONMENTS)
    environments = [_opened(each, config, catalog, params) for each in chosen]
    return asyncio.run(_swept(environments, dead_runs(run_id), is_asked_for=name is not None))


def _opened(name: str, config: Sequence[Path], catalog: Catalog, params: str | None = None) -> Environment:
    flags = Flags(environment_params=params)
    parameters = load_environment(name, config=config, flags=flags, environ=os.environ, catalog=catalog)
    environment: Environment = catalog.load(Kind.ENVIRONMENTS, name)(parameters)
    return environment


async def _checks(environments: Mapping[str, Environment]) -> Mapping[str, list[Check]]:
    found = await asyncio.gather(*(_checked(environment) for environment in environments.values()))
    return dict(zip(environments, found, strict=True))


async def _checked(environment: Environment) -> list[Check]:
    try:
        return await environment.check()
    finally:
        await environment.close()


async def _swept(environments: Sequence[Environment], selector: SweepSelector, *, is_asked_for: bool) -> Swept:
    """An environment that is out of reach is an error only where it was named."""
    stopped: list[SweptSandbox] = []
    unreached: list[str] = []
    for environment in environments:
        try:
            await refuse_unready(environment, to_start=False)
            stopped += await bounded_sweep(environment, selector)
        except AgentCompassError as exc:
            failure = exc if isinstance(exc, ConfigError) else _named(environment, exc)
            if is_asked_for:
                raise failure from exc.__cause__
            unreached.append(str(failure))
        finally:
            await environment.close()
    return Swept(stopped, unreached)


def _named(environment: Environment, error: AgentCompassError) -> ConfigError:
    # What an environment advises where it is busy is said to a run, and no run is under way.
    hint = "give the same command again" if error.retryable else error.hint
    return ConfigError(f"environment {environment.name!r}: {error.message}", hint=hint)
