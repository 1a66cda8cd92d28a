"""A sandbox in memory: files are dictionary entries, a command is a call of the script."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from ...domain.errors import SandboxLost
from ...domain.sandbox import Command, ExecResult, SandboxOwner, SandboxSpec
from .calling import settled

ExecScript: TypeAlias = Callable[["FakeSandbox", Command], ExecResult | Awaitable[ExecResult]]


def succeed(sandbox: "FakeSandbox", command: Command) -> ExecResult:
    """The default script: every command prints nothing and ends with 0."""
    return ExecResult(exit_code=0, stdout="", stderr="", duration_s=0)


class FakeSandbox:
    """`files`, `modes` and `links` are keyed by absolute path; `directories` lists the folders.

    After `lose()`, or past its lifetime, every call raises SandboxLost.
    """

    def __init__(
        self,
        *,
        id: str,
        spec: SandboxSpec,
        owner: SandboxOwner,
        exec_script: ExecScript,
        exec_delay_s: float,
        expires: datetime,
    ) -> None:
        self.id = id
        self.spec = spec
        self.owner = owner
        self.exec_script = exec_script
        self.exec_delay_s = exec_delay_s
        self.expires = expires
        self.image = spec.image or spec.named_image
        self.image_digest: str | None = None
        self.execs = self.kills = 0
        self.files: dict[PurePosixPath, bytes] = {}
        self.modes: dict[PurePosixPath, int] = {}
        self.links: dict[PurePosixPath, str] = {}
        self.directories: set[PurePosixPath] = {PurePosixPath("/"), *spec.directories}
        self._workspace = spec.workspace_root or PurePosixPath("/")
        self._make_folder(self._workspace)
        self._lost = False

    def lose(self) -> None:
        """Let the sandbox be gone: from now on every call raises SandboxLost."""
        self._lost = True

    def _check_alive(self) -> None:
        if self._lost or datetime.now(UTC) >= self.expires:
            raise SandboxLost(f"sandbox {self.id} is gone")

    async def exec(self, command: Command) -> ExecResult:
        """What the script says; `timed_out` when it takes longer than the command may."""
        self._check_alive()
        self.execs += 1
        started = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(command.timeout_s) as limit:
                await asyncio.sleep(self.exec_delay_s)
                result = await settled(self.exec_script(self, command))
        except TimeoutError:
            if not limit.expired():
                raise
            elapsed = asyncio.get_running_loop().time() - started
            result = ExecResult(exit_code=None, stdout="", stderr="", timed_out=True, duration_s=elapsed)
        self._check_alive()
        return result

    async def upload(self, source: Path, target: PurePosixPath) -> None:
        """Copy into the dictionaries."""
        self._check_alive()
        self._take_tree(source, self._workspace / target)

    def _take_tree(self, source: Path, target: PurePosixPath) -> None:
        if not source.exists() and not source.is_symlink():
            raise FileNotFoundError(f"no file or folder {str(source)!r}")
        if not source.is_dir():
            self._take(source, target)
            return
        self._make_folder(target)
        for entry in sorted(source.rglob("*")):
            self._take(entry, target / entry.relative_to(source).as_posix())

    def _take(self, source: Path, target: PurePosixPath) -> None:
        self._make_folder(target.parent)
        if source.is_symlink():
            self._forget(target)
            self.links[target] = str(source.readlink())
        elif source.is_dir():
            self._make_folder(target)
        else:
            self._put(target, source.read_bytes(), source.stat().st_mode & 0o7777)

    async def download(self, source: PurePosixPath, target: Path) -> None:
        """Copy out of the dictionaries."""
        self._check_alive()
        source = self._workspace / source
        if source in self.directories:
            self._give_folder(source, target)
        elif source in self.files or source in self.links:
            self._give(source, target)
        else:
            raise FileNotFoundError(f"no file or folder {str(source)!r} in sandbox {self.id}")

    def _give_folder(self, source: PurePosixPath, target: Path) -> None:
        target.mkdir(parents=True, exist_ok=True)
        for path in sorted(self.directories):
            if source in path.parents:
                (target / path.relative_to(source)).mkdir(parents=True, exist_ok=True)
        for path in (*self.files, *self.links):
            if source in path.parents:
                self._give(path, target / path.relative_to(source))

    def _give(self, source: PurePosixPath, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        if source in self.links:
            target.symlink_to(self.links[source])
            return
        target.write_bytes(self.files[source])
        target.chmod(self.modes[source])

    async def read_bytes(self, path: PurePosixPath, max_bytes: int) -> bytes:
        """The file's content."""
        self._check_alive()
        path = self._followed(self._workspace / path)
        if path in self.directories:
            raise ValueError(f"{str(path)!r} in sandbox {self.id} is no regular file")
        if path not in self.files:
            raise FileNotFoundError(f"no file {str(path)!r} in sandbox {self.id}")
        data = self.files[path]
        if len(data) > max_bytes:
            raise ValueError(f"{str(path)!r} in sandbox {self.id} has {len(data)} bytes, {max_bytes} are allowed")
        return data

    async def write_bytes(self, path: PurePosixPath, data: bytes, mode: int = 0o644) -> None:
        """Set the file's content."""
        self._check_alive()
        path = self._workspace / path
        self._make_folder(path.parent)
        self._put(path, bytes(data), mode)

    async def kill_processes(self) -> None:
        """Count the call: there is nothing to kill."""
        self._check_alive()
        self.kills += 1

    def _followed(self, path: PurePosixPath) -> PurePosixPath:
        for _ in range(len(self.links)):
            if path not in self.links:
                break
            path = path.parent / self.links[path]
        return path

    def _put(self, path: PurePosixPath, data: bytes, mode: int) -> None:
        self._forget(path)
        self.files[path] = data
        self.modes[path] = mode

    def _forget(self, path: PurePosixPath) -> None:
        for entries in (self.files, self.modes, self.links):
            entries.pop(path, None)

    def _make_folder(self, path: PurePosixPath) -> None:
        self.directories.update((path, *path.parents))
