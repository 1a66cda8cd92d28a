"""What the parts of the suite share: the fixtures, the knobs, and how commands are written."""

import asyncio
import inspect
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from typing import Any, ClassVar

import pytest
import pytest_asyncio

from ...adapters.support.liveness import this_host, this_process
from ...domain.ports import Environment, Sandbox
from ...domain.sandbox import Command, SandboxOwner, SandboxSpec, SweepSelector

ROOT = PurePosixPath("/contract")
"""The workspace root of specs that name none."""
PATIENCE_S = 60.0
"""The limit of commands that are not to reach it."""


class ContractSetting:
    """The fixtures and knobs of the suite.

    A subclass gives `environment`, and may override `spec` (an image, say), `destroy`, and the attributes.
    """

    pytestmark = pytest.mark.asyncio

    known_gaps: ClassVar[dict[str, str]] = {}
    """Name of a test -> why this environment cannot pass it; it then has to fail (strict xfail)."""
    quiet_s: ClassVar[int] = 3
    """Seconds of silence that a command is tried with; longer than the client's own time-out, where it has one."""
    large_output_mb: ClassVar[int] = 200
    short_lifetime_s: ClassVar[float] = 5
    """The shortest lifetime that is long enough to start a sandbox and use it once."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        unknown = [name for name in cls.known_gaps if not hasattr(cls, name)]
        if unknown:
            raise AttributeError(f"known_gaps of {cls.__name__} names no test of the suite: {unknown!r}")

    @pytest.fixture
    def environment(self) -> Environment:
        """The environment under test."""
        raise NotImplementedError("give the fixture `environment`: it returns the Environment to be tested")

    @pytest.fixture
    def spec(self) -> SandboxSpec:
        """The sandbox that most tests use."""
        return SandboxSpec()

    @pytest.fixture
    def owner(self) -> SandboxOwner:
        """Who owns it: this process, in a run of its own."""
        return an_owner()

    async def destroy(self, environment: Environment, sandbox: Sandbox, owner: SandboxOwner) -> None:
        """Stop a sandbox from outside, behind the back of whoever opened it."""
        await environment.sweep(expired(owner))

    @pytest.fixture(autouse=True)
    def _gap(self, request: pytest.FixtureRequest) -> None:
        name = getattr(request.node, "originalname", request.node.name)
        if name in self.known_gaps:
            request.applymarker(pytest.mark.xfail(reason=self.known_gaps[name], strict=True))

    @pytest_asyncio.fixture
    async def sandbox(self, environment: Environment, spec: SandboxSpec, owner: SandboxOwner) -> AsyncIterator[Sandbox]:
        """A live sandbox whose workspace root is `spec`'s, or ROOT."""
        async with held(environment, rooted(spec), owner) as sandbox:
            yield sandbox
        await environment.close()


@asynccontextmanager
async def held(environment: Environment, spec: SandboxSpec, owner: SandboxOwner) -> AsyncIterator[Sandbox]:
    """An open sandbox, entered and left in one task, whatever task a fixture is set up and torn down in."""
    ready: asyncio.Future[Sandbox] = asyncio.get_running_loop().create_future()
    done = asyncio.Event()

    async def hold() -> None:
        async with environment.open(spec, owner) as sandbox:
            ready.set_result(sandbox)
            await done.wait()

    holder = asyncio.create_task(hold())
    try:
        waited: set[asyncio.Future[Any]] = {ready, holder}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if holder.done():
            await holder
        yield await ready
    finally:
        done.set()
        await asyncio.gather(holder, return_exceptions=True)
    await holder


def an_owner(**fields: Any) -> SandboxOwner:
    """This process as the owner, in a run that nobody else has."""
    own = {"run_id": f"contract-{uuid.uuid4().hex[:12]}", "task_id": "contract/Task 1", "attempt": 1}
    return SandboxOwner(**({**own, "host": this_host(), "process": this_process()} | fields))


def rooted(spec: SandboxSpec) -> SandboxSpec:
    """`spec` with a workspace root."""
    return spec if spec.workspace_root else spec.model_copy(update={"workspace_root": ROOT})


def root_of(spec: SandboxSpec) -> PurePosixPath:
    """The workspace root that the fixture `sandbox` has."""
    return spec.workspace_root or ROOT


def expired(owner: SandboxOwner) -> SweepSelector:
    """Selects all sandboxes of the owner's run, live or not: as seen from ten years ahead."""
    return SweepSelector(run_id=owner.run_id, host=owner.host, now=datetime.now(UTC) + timedelta(days=3650))


def as_of_now(owner: SandboxOwner) -> SweepSelector:
    """Selects those sandboxes of the owner's run whose process has ended or whose lifetime is over."""
    return SweepSelector(run_id=owner.run_id, host=this_host(), now=datetime.now(UTC))


def sh(script: str, **fields: Any) -> Command:
    """A script, written without its indentation, with a generous limit unless `timeout_s` is given."""
    return Command(**({"script": inspect.cleandoc(script), "timeout_s": PATIENCE_S} | fields))


def argv(*words: str, **fields: Any) -> Command:
    """A program and its arguments, with a generous limit unless `timeout_s` is given."""
    return Command(**({"argv": words, "timeout_s": PATIENCE_S} | fields))


async def exists(sandbox: Sandbox, name: str) -> bool:
    """Whether there is a file `name`, relative to the workspace root."""
    return (await sandbox.exec(sh('test -e "$NAME"', env={"NAME": name}))).ok
