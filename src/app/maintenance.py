"""Looking after environments outside a run: `doctor` and `cleanup`."""

import asyncio
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ..adapters.support.liveness import dead_runs
from ..domain.errors import AgentCompassError, ConfigError, SandboxFailed
from ..domain.ports import Environment
from ..domain.redaction import Redactor, secrets_of
from ..domain.sandbox import Check, SweepSelector, SweptSandbox
from ..domain.value import Parameters
from .catalog import Catalog, Kind
from .logs import Logs, logging_to
from .plugins import closing, plugin_border
from .preflight import checks_of, failed_check, refuse_unready
from .settings import Flags, load_environment
from .sweep import bounded_sweep


def checks(names: Sequence[str], config: Sequence[Path]) -> Mapping[str, list[Check]]:
    """What each environment says of itself; all of the catalog's where no name is given.

    Raises:
        ConfigError: the settings are wrong, or an environment that was named cannot be made.
    """
    catalog = Catalog()
    made = [_made(name, config, catalog) for name in names or catalog.names(Kind.ENVIRONMENTS)]
    with _logging(made):
        return asyncio.run(_checks(made, is_asked_for=bool(names)))


@dataclass(frozen=True)
class Swept:
    """What became of what dead runs left behind."""

    sandboxes: Sequence[SweptSandbox]
    unreached: Sequence[str]
    """Why environments that nobody named were passed over."""


def swept(name: str | None, run_id: str | None, config: Sequence[Path], params: str | None = None) -> Swept:
    """Stop what dead runs left behind, in one environment (by its `params`) or in all that can be reached.

    Raises:
        ConfigError: the settings are wrong and nothing was asked, or the environment that was named is out of reach.
    """
    if params is not None and name is None:
        raise ConfigError("--env-params are those of one environment", hint="name it with --env")
    catalog = Catalog()
    made = [_made(each, config, catalog, params) for each in ([name] if name else catalog.names(Kind.ENVIRONMENTS))]
    with _logging(made):
        return asyncio.run(_swept(made, dead_runs(run_id), is_asked_for=name is not None))


@dataclass(frozen=True)
class _Made:
    """An environment by the name that the user knows it by, or why there is none."""

    name: str
    outcome: Environment | AgentCompassError
    parameters: Parameters = Parameters()

    def environment(self) -> Environment:
        if isinstance(self.outcome, AgentCompassError):
            raise self.outcome
        return self.outcome

    def secrets(self) -> Collection[str]:
        found = set(secrets_of(self.parameters))
        with suppress(AgentCompassError), plugin_border(SandboxFailed):  # none, or unfit: its check tells
            found.update(self.environment().secrets())
        return found


def _made(name: str, config: Sequence[Path], catalog: Catalog, params: str | None = None) -> _Made:
    flags = Flags(environment_params=params)
    try:
        adapter = catalog.load(Kind.ENVIRONMENTS, name)
    except ConfigError as exc:
        return _Made(name, exc)
    parameters = load_environment(name, config=config, flags=flags, environ=os.environ, catalog=catalog)
    try:
        with plugin_border(lambda fault: ConfigError(f"environment {name!r}: {fault}")):
            return _Made(name, adapter(parameters), parameters)
    except AgentCompassError as exc:
        return _Made(name, exc, parameters)


@contextmanager
def _logging(made: Sequence[_Made]) -> Iterator[None]:
    redactor = Redactor({secret for each in made for secret in each.secrets()})
    with logging_to(Logs(level="warning", redact=redactor.value)):
        yield


async def _checks(made: Sequence[_Made], *, is_asked_for: bool) -> Mapping[str, list[Check]]:
    found = await asyncio.gather(*(_checked(each, is_asked_for=is_asked_for) for each in made))
    return dict(zip((each.name for each in made), found, strict=True))


async def _checked(made: _Made, *, is_asked_for: bool) -> list[Check]:
    try:
        environment = made.environment()
    except AgentCompassError as exc:
        if is_asked_for:
            raise
        return [failed_check("adapter", exc)]
    async with closing(environment):
        return await checks_of(environment)


async def _swept(made: Sequence[_Made], selector: SweepSelector, *, is_asked_for: bool) -> Swept:
    """An environment that is out of reach is an error only where it was named."""
    stopped: list[SweptSandbox] = []
    unreached: list[str] = []
    for each in made:
        try:
            async with closing(each.environment()) as environment:
                await refuse_unready(environment, each.name, to_start=False)
                stopped += await bounded_sweep(environment, selector)
        except AgentCompassError as exc:
            failure = exc if isinstance(exc, ConfigError) else _named(each.name, exc)
            if is_asked_for:
                raise failure from exc.__cause__
            unreached.append(str(failure))
    return Swept(stopped, unreached)


def _named(name: str, error: AgentCompassError) -> ConfigError:
    # What an environment advises where it is busy is said to a run, and no run is under way.
    hint = "give the same command again" if error.retryable else error.hint
    return ConfigError(f"environment {name!r}: {error.message}", hint=hint)
