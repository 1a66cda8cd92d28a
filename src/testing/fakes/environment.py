"""An environment whose sandboxes are dictionaries of files and a scripted `exec`."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from typing import ClassVar, Literal, TypeAlias

from ...adapters.support.liveness import selects
from ...domain import errors
from ...domain.naming import sandbox_name
from ...domain.resolving import refuse_unsupported
from ...domain.sandbox import Capabilities, Check, Network, SandboxOwner, SandboxSpec, SweepSelector, SweptSandbox
from ...domain.value import Parameters as AdapterParameters
from .sandbox import ExecScript, FakeSandbox, succeed

RECENT = 100
Fault: TypeAlias = Literal["SandboxBusy", "SandboxStartFailed", "SandboxLost", "SandboxFailed", "ConfigError"]


class FakeEnvironmentParameters(AdapterParameters):
    """Sandbox fields, and faults that can be set from a command line."""

    image: str | None = "fake:latest"
    named_image: str | None = None
    workspace_root: PurePosixPath | None = None
    env_variables: dict[str, str] = {}
    user: str | None = None
    cpu: float | None = None
    memory: int | None = None
    gpu: str | None = None
    region: str | None = None
    network: Network = Network.PUBLIC
    timeout: float | None = None
    open_delay_s: float = 0
    """Seconds that each start takes."""
    exec_delay_s: float = 0
    """Seconds that each command takes."""
    fail_opens: dict[int, Fault] = {}
    """Number of an open, from 1 -> name of the error class that it raises."""
    fail_every_open: Fault | None = None
    """Name of the error class that every open raises."""


class FakeEnvironment:
    """Opens `FakeSandbox`es and counts them: `opened`, `stopped`, `live` (by id) and `peak_live`.

    The n-th open (from 1) raises `open_faults[n]`; `on_open` sees each sandbox before its caller does.
    `recent` keeps the last sandboxes opened, at most 100.
    """

    name: ClassVar[str] = "fake"
    capabilities: ClassVar[Capabilities] = Capabilities(
        images=True,
        builds=True,
        named_images=True,
        networks=frozenset(Network),
        users=True,
        resources=frozenset({"cpu", "memory", "gpu", "region", "platform", "idle_timeout"}),
    )

    Parameters: ClassVar[type[AdapterParameters]] = FakeEnvironmentParameters

    def __init__(
        self,
        parameters: FakeEnvironmentParameters | None = None,
        *,
        exec_script: ExecScript = succeed,
        open_faults: Mapping[int, BaseException] | None = None,
        on_open: Callable[[FakeSandbox], Awaitable[None] | None] | None = None,
    ) -> None:
        self.parameters = parameters or FakeEnvironmentParameters()
        self.exec_script = exec_script
        self.open_faults = dict(open_faults or {})
        self.on_open = on_open
        self.open_calls = self.opened = self.stopped = self.peak_live = 0
        self.live: dict[str, FakeSandbox] = {}
        self.recent: deque[FakeSandbox] = deque(maxlen=RECENT)
        self.closed = False

    def secrets(self) -> Collection[str]:
        """None."""
        return ()

    async def check(self) -> list[Check]:
        """Always there."""
        return [Check(name="fake", ok=True, detail="in memory")]

    @asynccontextmanager
    async def open(self, spec: SandboxSpec, owner: SandboxOwner) -> AsyncIterator[FakeSandbox]:
        """A sandbox in memory, after the delay and the faults that are set."""
        refuse_unsupported(self.name, spec, self.capabilities)
        self.open_calls += 1
        fault = self._fault(self.open_calls)
        if fault is not None:
            await asyncio.sleep(self.parameters.open_delay_s)
            raise fault
        sandbox = self._register(spec, owner)
        try:
            await asyncio.sleep(self.parameters.open_delay_s)
            if self.on_open is not None and (pending := self.on_open(sandbox)) is not None:
                await pending
            yield sandbox
        finally:
            self._stop(sandbox)

    def _fault(self, number: int) -> BaseException | None:
        name = self.parameters.fail_opens.get(number) or self.parameters.fail_every_open
        if number in self.open_faults:
            return self.open_faults[number]
        if name is None:
            return None
        kind: type[errors.AgentCompassError] = getattr(errors, name)
        return kind(f"open {number} fails as asked")

    def _register(self, spec: SandboxSpec, owner: SandboxOwner) -> FakeSandbox:
        self.opened += 1
        sandbox = FakeSandbox(
            id=f"{sandbox_name(owner)}-{self.opened}",
            spec=spec,
            owner=owner,
            exec_script=self.exec_script,
            exec_delay_s=self.parameters.exec_delay_s,
            expires=datetime.now(UTC) + timedelta(seconds=spec.timeout),
        )
        self.live[sandbox.id] = sandbox
        self.peak_live = max(self.peak_live, len(self.live))
        self.recent.append(sandbox)
        return sandbox

    def _stop(self, sandbox: FakeSandbox) -> None:
        sandbox.lose()
        if self.live.pop(sandbox.id, None) is not None:
            self.stopped += 1

    async def sweep(self, selector: SweepSelector) -> list[SweptSandbox]:
        """Stop the selected ones among the live."""
        swept = []
        for sandbox in list(self.live.values()):
            owner = sandbox.owner
            if selects(selector, run_id=owner.run_id, host=owner.host, process=owner.process, expires=sandbox.expires):
                self._stop(sandbox)
                swept.append(
                    SweptSandbox(environment=self.name, id=sandbox.id, run_id=owner.run_id, task_id=owner.task_id)
                )
        return swept

    async def close(self) -> None:
        """Remember that it was asked for."""
        self.closed = True
