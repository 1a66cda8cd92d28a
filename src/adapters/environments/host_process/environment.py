"""Sandboxes that are folders and processes of the runner's own machine: for trying things out, isolating nothing."""

import os
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path, PurePosixPath
from typing import ClassVar

import structlog
from pydantic import Field

from ....domain.errors import SandboxFailed, SandboxStartFailed
from ....domain.local_path import LocalPath
from ....domain.naming import sandbox_name
from ....domain.resolving import refuse_unsupported
from ....domain.sandbox import (
    LONGEST_TIMEOUT_S,
    AbsolutePath,
    Capabilities,
    Check,
    SandboxOwner,
    SandboxSpec,
    SweepSelector,
    SweptSandbox,
    Variables,
)
from ....domain.value import Parameters as AdapterParameters
from ...support.cleanup import finished_despite_cancel, stop_shielded
from ...support.liveness import selects
from .folder import Label, SandboxFolder, make_private, sandbox_folders
from .processes import can_see_processes
from .running import Blocking, shell
from .sandbox import QUEUE_LIMIT_S, HostSandbox, remove_sandbox, user_name

log = structlog.get_logger()

DEFAULT_WORKSPACE = PurePosixPath("/app")
_START_LIMIT_S = 60.0
_UNLABELLED_AGE_S = 3600.0


class HostProcessParameters(AdapterParameters):
    """Commands run as you, on this machine, in a folder of their own. Nothing is isolated: trust what you run."""

    workspace_root: AbsolutePath | None = None
    """Absolute working directory of commands, below the sandbox's folder; None is `/app`."""
    env_variables: Variables = Field(default_factory=dict)
    """Set for every command. No secrets."""
    timeout: float | None = Field(default=None, gt=0, le=LONGEST_TIMEOUT_S)
    """Lifetime of a sandbox in seconds; None is what the task's budgets need."""
    root_folder: LocalPath | None = Field(default=None, json_schema_extra={"identity": False})
    """Where sandboxes' folders are made; None is a private folder in the system's temporary one."""


class HostProcessEnvironment:
    """Folders and processes of this machine; nothing is isolated.

    Each sandbox is a private folder; its absolute paths begin at `$AGENTCOMPASS_ROOT`, which commands see.
    In containers that variable is unset, so a script that has to work in both writes
    `"${AGENTCOMPASS_ROOT:-}/logs/verifier/reward.txt"`. HOME and TMPDIR lie in the folder, as `/home` and `/tmp`.
    Of the runner's variables commands see `host_process.sandbox.PASSED_ON` and `LC_*`, nothing else.
    """

    name: ClassVar[str] = "host_process"
    capabilities: ClassVar[Capabilities] = Capabilities(isolated=False)
    Parameters: ClassVar[type[AdapterParameters]] = HostProcessParameters

    def __init__(self, parameters: HostProcessParameters) -> None:
        self._parameters = parameters
        self._blocking, self._ending = Blocking(), Blocking()
        self._warned = False

    def _base(self) -> Path:
        usual = Path(tempfile.gettempdir(), f"agentcompass-{os.getuid()}")
        return Path(os.path.abspath(self._parameters.root_folder or usual))

    def secrets(self) -> Collection[str]:
        """None."""
        return ()

    async def check(self) -> list[Check]:
        """The folder, the shell, and how far killing reaches."""
        return await self._blocking(self._check)

    def _check(self) -> list[Check]:
        found = shell(os.environ)
        reach = "by session, descent, mark and folder" if can_see_processes() else "process groups only (no /proc)"
        return [
            _folder_check(self._base()),
            Check(
                name="shell",
                ok=found is not None,
                detail=found or "no bash, no sh",
                hint="put a shell into PATH",
                only_starting=True,
            ),
            Check(name="processes", ok=True, detail=f"kills {reach}"),
            Check(name="isolation", ok=True, detail=f"none: commands run on this machine as {user_name()!r}"),
        ]

    @asynccontextmanager
    async def open(self, spec: SandboxSpec, owner: SandboxOwner) -> AsyncIterator[HostSandbox]:
        """As the port promises; the folder is labelled from the moment it is there."""
        refuse_unsupported(self.name, spec, self.capabilities, able=("docker", "modal"))
        self._warn_once()
        workspace = spec.workspace_root or self._parameters.workspace_root or DEFAULT_WORKSPACE
        folder = SandboxFolder(self._base() / f"{sandbox_name(owner)}-{secrets.token_hex(4)}")
        sandbox = HostSandbox(
            folder,
            workspace_root=workspace,
            variables={**self._parameters.env_variables, **spec.env_variables},
            lifetime_s=spec.timeout,
            blocking=self._blocking,
            ending=self._ending,
        )
        label = Label(owner=owner, expires=datetime.now(UTC) + timedelta(seconds=spec.timeout))
        async with AsyncExitStack() as stack:
            stack.push_async_callback(stop_shielded, sandbox.stop, limit_s=QUEUE_LIMIT_S, what=sandbox.id)
            await self._create(folder, label, (workspace, *spec.directories))
            sandbox.start_clock()
            yield sandbox

    async def _create(self, folder: SandboxFolder, label: Label, folders: tuple[PurePosixPath, ...]) -> None:
        try:
            made = self._blocking.within(_START_LIMIT_S, partial(folder.create, label, folders))
            await finished_despite_cancel(made, QUEUE_LIMIT_S)
        except OSError as exc:
            hint = "set environments.host_process.root_folder to a folder with room that is yours"
            raise SandboxStartFailed(f"cannot make {str(folder.path)!r}: {exc}", hint=hint) from exc

    def _warn_once(self) -> None:
        if not self._warned:
            self._warned = True
            hint = "commands run on this machine as you; for agents that you do not trust use docker or modal"
            log.warning("environment.unisolated", environment=self.name, hint=hint)

    async def sweep(self, selector: SweepSelector) -> list[SweptSandbox]:
        """Kill the processes of the selected sandboxes and remove their folders."""
        return await self._ending(self._sweep, selector)

    def _sweep(self, selector: SweepSelector) -> list[SweptSandbox]:
        swept = []
        for folder in sandbox_folders(self._base()):
            label = folder.label()
            if label is None:
                _remove_if_old(folder)
            elif _selected(selector, label):
                swept.append(self._swept(folder, label.owner))
        return swept

    def _swept(self, folder: SandboxFolder, owner: SandboxOwner) -> SweptSandbox:
        error = ""
        try:
            remove_sandbox(folder, frozenset())
        except (OSError, SandboxFailed) as exc:
            error = str(exc)
        return SweptSandbox(
            environment=self.name, id=folder.name, run_id=owner.run_id, task_id=owner.task_id, error=error
        )

    async def close(self) -> None:
        """Let the threads go."""
        self._blocking.close()
        self._ending.close()


def _selected(selector: SweepSelector, label: Label) -> bool:
    owner = label.owner
    return selects(selector, run_id=owner.run_id, host=owner.host, process=owner.process, expires=label.expires)


def _remove_if_old(folder: SandboxFolder) -> None:
    # Without a label it is being made or being removed just now, or that was cut short long ago.
    with suppress(OSError):
        hidden = folder.path.name.startswith(".ac-")
        if hidden and time.time() - folder.path.stat().st_mtime > _UNLABELLED_AGE_S:
            folder.remove()


def _folder_check(base: Path) -> Check:
    is_ours = False
    try:
        make_private(base)
        is_ours = True
        with tempfile.TemporaryFile(dir=base):
            return Check(name="folder", ok=True, detail=str(base))
    except OSError as exc:
        hint = "set environments.host_process.root_folder to a folder that you may write to"
        return Check(name="folder", ok=False, detail=f"{base}: {exc}", hint=hint, only_starting=is_ours)
