"""What a sandbox runs on: a container, or (for tests of scale) a private copy of this machine's file system."""

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from engine import LABEL, Engine, EngineRefused
from processes import children, ended, kill

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Wanted:
    """What the create call asks of the machine."""

    name: str
    image: str
    args: tuple[str, ...]
    env: dict[str, str]
    workdir: str = ""
    blocked: bool = False
    memory_mb_max: int = 0
    milli_cpu_max: int = 0
    volumes: Mapping[str, str] = field(default_factory=dict)
    """Mount point -> local volume."""


@dataclass(frozen=True)
class Ended:
    exit_code: int
    out_of_memory: bool = False


@dataclass(frozen=True)
class Launch:
    """A local command that runs another one inside the machine."""

    argv: list[str]
    env: dict[str, str]


class CannotStart(Exception):
    """The machine could not be started, for a reason that lies in the request or the image."""


class Machine(Protocol):
    async def start(self) -> None:
        """Raises CannotStart."""

    def launch(self, argv: list[str], env: Mapping[str, str], workdir: str) -> Launch: ...

    async def wait(self) -> Ended: ...

    async def remove(self) -> None: ...

    def output(self, *, stderr: bool) -> AsyncIterator[bytes]: ...

    async def block_network(self, blocked: bool) -> None: ...


class Container:
    """A machine that is a Docker container.

    Commands are run in its namespaces by nsenter, from this process: unlike `docker exec` that neither closes the pipes
    of a command's background children after two seconds, nor costs a process in the engine. It takes root.
    """

    def __init__(self, engine: Engine, label: str, wanted: Wanted) -> None:
        self._engine = engine
        self._label = label
        self._wanted = wanted
        self._pid = 0
        self._config: dict[str, Any] = {}
        self._credentials = ["--setuid", "0", "--setgid", "0"]
        self._home = "/root"

    async def start(self) -> None:
        try:
            for volume in self._wanted.volumes.values():
                await self._engine.volume(volume, self._label)
            await self._engine.call("POST", f"/containers/create?name={self._wanted.name}", self._definition())
            await self._engine.call("POST", f"/containers/{self._wanted.name}/start")
            state = await self._engine.call("GET", f"/containers/{self._wanted.name}/json")
        except EngineRefused as exc:
            raise CannotStart(str(exc)) from exc
        self._pid = state["State"]["Pid"]
        self._config = state["Config"]
        self._take_user(self._config.get("User") or "0")

    def _definition(self) -> dict[str, Any]:
        wanted = self._wanted
        host: dict[str, Any] = {
            "Init": True,
            "NetworkMode": "none" if wanted.blocked else "bridge",
            "Memory": wanted.memory_mb_max * 1024 * 1024,
            "NanoCpus": min(wanted.milli_cpu_max, (os.cpu_count() or 1) * 1000) * 1_000_000,
            "Binds": [f"{volume}:{path}" for path, volume in wanted.volumes.items()],
        }
        definition: dict[str, Any] = {
            "Image": wanted.image,
            "Env": [f"{name}={value}" for name, value in wanted.env.items()],
            "Labels": {LABEL: self._label},
            "OpenStdin": True,
            "HostConfig": host,
        }
        if wanted.args:
            definition["Cmd"] = list(wanted.args)
        if wanted.workdir:
            definition["WorkingDir"] = wanted.workdir
        return definition

    def _take_user(self, user: str) -> None:
        uid, gid, self._home = _account(Path(f"/proc/{self._pid}/root/etc/passwd"), user)
        self._credentials = ["--setuid", uid, "--setgid", gid]

    def launch(self, argv: list[str], env: Mapping[str, str], workdir: str) -> Launch:
        inherited = dict(item.partition("=")[::2] for item in self._config.get("Env") or [])
        folder = workdir or self._config.get("WorkingDir") or "/"
        prefix = ["nsenter", "--target", str(self._pid), "--mount", "--uts", "--ipc", "--net", "--pid", "--root"]
        command = [*prefix, f"--wdns={folder}", *self._credentials, "--", *argv]
        return Launch(command, {"PATH": DEFAULT_PATH, "HOME": self._home, **inherited, **env})

    async def wait(self) -> Ended:
        try:
            await self._engine.call("POST", f"/containers/{self._wanted.name}/wait")
            state = (await self._engine.call("GET", f"/containers/{self._wanted.name}/json"))["State"]
        except EngineRefused:
            return Ended(137)
        return Ended(state["ExitCode"], state["OOMKilled"])

    async def remove(self) -> None:
        await self._engine.remove(self._wanted.name)

    async def output(self, *, stderr: bool) -> AsyncIterator[bytes]:
        with suppress(EngineRefused):
            async for chunk in self._engine.logs(self._wanted.name, stderr=stderr):
                yield chunk

    async def block_network(self, blocked: bool) -> None:
        verb = "disconnect" if blocked else "connect"
        with suppress(EngineRefused):
            await self._engine.call("POST", f"/networks/bridge/{verb}", {"Container": self._wanted.name})


class LightMachine:
    """A machine that is a few local processes, for tests of scale only.

    It has namespaces of its own for processes and mounts, and this machine's root file system with private writes
    (overlayfs), so that absolute paths are real. There is no image: every image gives the same files, and only
    what is installed here can be run. No network or resource limits. It takes root.
    """

    def __init__(self, folder: Path, wanted: Wanted) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="sandbox-", dir=folder))
        self._wanted = wanted
        self._process: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self._logs = (self._folder / "stdout", self._folder / "stderr")

    async def start(self) -> None:
        for name in ("upper", "work", "root"):
            (self._folder / name).mkdir()
        args = self._wanted.args or ("sleep", "infinity")
        script = (
            'cd "$1" && shift && mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root'
            " && mount -t proc proc root/proc && mount --rbind /dev root/dev && mount -t tmpfs tmpfs root/tmp"
            ' && mkdir -p "root$1" && exec chroot root /bin/sh -c \'cd "$1" && shift && exec "$@"\' sh "$@"'
        )
        unshare = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child=KILL"]
        command = [
            "setpriv",
            "--pdeathsig",
            "KILL",
            *unshare,
            "/bin/sh",
            "-c",
            script,
            "sh",
            str(self._folder),
            self._workdir,
            *args,
        ]
        with self._logs[0].open("wb") as stdout, self._logs[1].open("wb") as stderr:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, env=self._env(), start_new_session=True
            )
        await self._until_running()

    @property
    def _workdir(self) -> str:
        return self._wanted.workdir or "/"

    def _env(self) -> dict[str, str]:
        return {"PATH": DEFAULT_PATH, "HOME": "/root", **self._wanted.env}

    async def _until_running(self) -> None:
        assert self._process is not None
        while self._process.poll() is None:
            inside = children(self._process.pid)
            if inside and os.path.realpath(f"/proc/{inside[0]}/root") == str(self._folder / "root"):
                self._pid = inside[0]
                return
            await asyncio.sleep(0.005)
        raise CannotStart(self._logs[1].read_text(errors="replace").strip() or "the main command ended at once")

    def launch(self, argv: list[str], env: Mapping[str, str], workdir: str) -> Launch:
        prefix = ["nsenter", "--target", str(self._pid), "--mount", "--pid", "--root"]
        return Launch([*prefix, f"--wdns={workdir or self._workdir}", "--", *argv], {**self._env(), **env})

    async def wait(self) -> Ended:
        assert self._process is not None
        await ended(self._process.pid)
        code = self._process.wait()
        return Ended(code if code >= 0 else 128 - code)

    async def remove(self) -> None:
        if self._process is not None:
            kill(children(self._process.pid))
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
            await self.wait()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def output(self, *, stderr: bool) -> AsyncIterator[bytes]:
        with self._logs[stderr].open("rb") as log:
            while True:
                data = log.read(64 * 1024)
                if data:
                    yield data
                elif self._process is None or self._process.poll() is not None:
                    return
                else:
                    await asyncio.sleep(0.1)

    async def block_network(self, blocked: bool) -> None:
        """There is no network to block."""


def _account(passwd: Path, user: str) -> tuple[str, str, str]:
    """Numeric user, numeric group and home of an image's `USER`, which may be `name`, `uid` or either with `:group`."""
    name, _, group = user.partition(":")
    try:
        lines = passwd.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        fields = line.split(":")
        if len(fields) >= 6 and name in (fields[0], fields[2]):
            return fields[2], group if group.isdigit() else fields[3], fields[5]
    return name if name.isdigit() else "0", group if group.isdigit() else "0", "/"
