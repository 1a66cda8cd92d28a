"""The life of a sandbox, whichever generation it is of: create, run, end."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dispatch import refuse
from execs import Exec
from grpclib.const import Status
from identifiers import new_id, new_v2_sandbox_id, new_v2_task_id
from machines import CannotStart, Machine
from modal_proto import api_pb2
from settings import Settings

Result = api_pb2.GenericResult


@dataclass
class Sandbox:
    """One sandbox; `result` is None while it has not ended."""

    id: str
    task_id: str
    v2: bool
    workspace: str
    environment: str
    app_id: str
    app_name: str
    definition: api_pb2.Sandbox
    tags: dict[str, str]
    machine: Machine
    created_at: float
    started_at: float | None = None
    ended_at: float | None = None
    result: Result | None = None
    scheduled: asyncio.Event = field(default_factory=asyncio.Event)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    removed: asyncio.Event = field(default_factory=asyncio.Event)
    execs: dict[str, Exec] = field(default_factory=dict)
    starting: dict[str, "asyncio.Task[Exec]"] = field(default_factory=dict)
    """The start of every exec by its id, so that a repeated one starts nothing."""
    last_active: float = field(default_factory=time.monotonic)

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def running_execs(self) -> list[Exec]:
        return [command for command in self.execs.values() if not command.exit_code.done()]

    def touch(self) -> None:
        self.last_active = time.monotonic()

    def summary(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "v2": self.v2,
            "name": self.name,
            "tags": self.tags,
            "workspace": self.workspace,
            "app": self.app_name,
            "image_id": self.definition.image_id,
            "created_at": self.created_at,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "status": "RUNNING" if self.result is None else _status(self.result.status),
            "exit_code": None if self.result is None else self.result.exitcode,
            "execs": len(self.execs),
            "removed": self.removed.is_set(),
        }


class Sandboxes:
    """All sandboxes, running and ended, and the rules of creating one."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._all: dict[str, Sandbox] = {}
        self._by_task: dict[str, Sandbox] = {}
        self._lives: set[asyncio.Task[None]] = set()
        self._last_created = 0.0
        self.accepted: list[float] = []
        """When each create call was accepted, in seconds since the epoch."""
        self.peak = 0

    def running(self) -> list[Sandbox]:
        return [sandbox for sandbox in self._all.values() if sandbox.result is None]

    def everything(self) -> list[Sandbox]:
        return list(self._all.values())

    def counters(self) -> dict[str, Any]:
        ends = Counter(str(sandbox.summary()["status"]) for sandbox in self._all.values())
        return {
            "created": len(self.accepted),
            "running": len(self.running()),
            "peak": self.peak,
            "not_removed": sum(not sandbox.removed.is_set() for sandbox in self._all.values()),
            "statuses": dict(ends),
            "creation_times": list(self.accepted),
        }

    async def clear(self) -> None:
        """End and forget all."""
        for sandbox in self.running():
            self.end(sandbox, Result.GENERIC_STATUS_TERMINATED, 137)
        await asyncio.gather(*self._lives, return_exceptions=True)
        self._all.clear()
        self._by_task.clear()
        self.accepted.clear()
        self.peak = 0

    def by_id(self, workspace: str, sandbox_id: str) -> Sandbox:
        """Raises GRPCError(NOT_FOUND)."""
        sandbox = self._all.get(sandbox_id)
        if sandbox is None or sandbox.workspace != workspace:
            raise refuse(Status.NOT_FOUND, f"Sandbox {sandbox_id!r} not found")
        return sandbox

    def by_task(self, task_id: str) -> Sandbox:
        """Raises GRPCError(NOT_FOUND)."""
        if task_id not in self._by_task:
            raise refuse(Status.NOT_FOUND, f"Task {task_id!r} not found")
        return self._by_task[task_id]

    def by_name(self, workspace: str, app_id: str, name: str) -> Sandbox | None:
        """The running one of that name."""
        for sandbox in self.running():
            if (sandbox.workspace, sandbox.app_id, sandbox.name) == (workspace, app_id, name):
                return sandbox
        return None

    def admit(self, workspace: str, app_id: str, definition: api_pb2.Sandbox) -> None:
        """Refuse what Modal refuses at creation. Raises GRPCError."""
        if not 0 < definition.timeout_secs <= 24 * 3600:
            raise refuse(Status.INVALID_ARGUMENT, "Sandbox timeout must be between 1 second and 24 hours")
        if definition.name and self.by_name(workspace, app_id, definition.name):
            raise refuse(Status.ALREADY_EXISTS, f"Sandbox with name {definition.name!r} already exists and is running")
        self._admit_rate()

    def _admit_rate(self) -> None:
        rate, now = self._settings.create_rate, time.time()
        if rate and sum(now - accepted < 1 for accepted in self.accepted[-int(rate) - 1 :]) >= rate:
            error = refuse(Status.RESOURCE_EXHAUSTED, f"Sandbox creation rate limit ({rate:g}/s) exceeded")
            if self._settings.rate_retry_after_s is not None:
                error.details = [api_pb2.RPCRetryPolicy(retry_after_secs=self._settings.rate_retry_after_s)]
            raise error

    def open(self, *, v2: bool, machine: Callable[[str], Machine], **values: Any) -> Sandbox:
        """Create one and let it start by itself."""
        now = max(time.time(), self._last_created + 1e-5)
        self._last_created = now
        self.accepted.append(now)
        sandbox_id = new_v2_sandbox_id() if v2 else new_id("sb-")
        task_id = new_v2_task_id() if v2 else new_id("ta-")
        sandbox = Sandbox(sandbox_id, task_id, v2, machine=machine(sandbox_id), created_at=now, **values)
        self._all[sandbox_id] = self._by_task[task_id] = sandbox
        self.peak = max(self.peak, len(self.running()))
        life = asyncio.get_running_loop().create_task(self._live(sandbox))
        self._lives.add(life)
        life.add_done_callback(self._lives.discard)
        return sandbox

    def end(
        self, sandbox: Sandbox, status: Result.GenericStatus.ValueType, exit_code: int, exception: str = ""
    ) -> None:
        """Decide how it ended, unless that is decided; the rest follows by itself."""
        if sandbox.result is not None:
            return
        sandbox.result = Result(status=status, exitcode=exit_code, exception=exception)
        sandbox.ended_at = time.time()
        sandbox.finished.set()

    async def _live(self, sandbox: Sandbox) -> None:
        ending = asyncio.ensure_future(sandbox.finished.wait())
        running = asyncio.ensure_future(self._run(sandbox))
        try:
            await asyncio.wait({ending, running}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
        except CannotStart as exc:
            self.end(sandbox, Result.GENERIC_STATUS_INIT_FAILURE, 1, str(exc))
        finally:
            for task in (ending, running):
                task.cancel()
            await asyncio.gather(ending, running, return_exceptions=True)
            await asyncio.gather(*(command.close() for command in sandbox.execs.values()), return_exceptions=True)
            await sandbox.machine.remove()
            sandbox.removed.set()

    async def _run(self, sandbox: Sandbox) -> None:
        while self._settings.capacity and self._busy() >= self._settings.capacity:
            await asyncio.sleep(0.05)
        sandbox.scheduled.set()
        await asyncio.sleep(self._settings.start_delay_s)
        await _uncut(sandbox.machine.start())
        sandbox.started_at = time.time()
        sandbox.touch()
        sandbox.started.set()
        limits = [asyncio.ensure_future(limit) for limit in (self._lifetime(sandbox), self._idleness(sandbox))]
        try:
            ended = await sandbox.machine.wait()
        finally:
            for limit in limits:
                limit.cancel()
        if ended.out_of_memory:
            self.end(sandbox, Result.GENERIC_STATUS_KERNEL_OOM_KILL, 137)
        elif ended.exit_code:
            self.end(sandbox, Result.GENERIC_STATUS_FAILURE, ended.exit_code)
        else:
            self.end(sandbox, Result.GENERIC_STATUS_SUCCESS, 0)

    def _busy(self) -> int:
        return sum(sandbox.scheduled.is_set() for sandbox in self.running())

    async def _lifetime(self, sandbox: Sandbox) -> None:
        await asyncio.sleep(sandbox.definition.timeout_secs)
        self.end(sandbox, Result.GENERIC_STATUS_TIMEOUT, 124)

    async def _idleness(self, sandbox: Sandbox) -> None:
        limit = sandbox.definition.idle_timeout_secs
        while limit:
            idle = 0.0 if sandbox.running_execs else time.monotonic() - sandbox.last_active
            if idle >= limit:
                self.end(sandbox, Result.GENERIC_STATUS_IDLE_TIMEOUT, 137)
                return
            await asyncio.sleep(min(0.5, limit - idle))


def _status(number: Result.GenericStatus.ValueType) -> str:
    return str(Result.GenericStatus.Name(number)).removeprefix("GENERIC_STATUS_")


async def _uncut(start: Any) -> None:
    """Wait for a start to its end even when cancelled: what was half started could not be removed."""
    task = asyncio.ensure_future(start)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.gather(task, return_exceptions=True)
        raise
