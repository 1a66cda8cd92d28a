"""The local Modal server as a test sees it: started in a process of its own, steered through its admin port."""

import asyncio
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import modal
from modal_proto import api_pb2

TOKEN = ("ak-test", "as-test")
FOLDER = Path(__file__).parent / "modal_server"


@dataclass(frozen=True)
class ModalServer:
    """A running server, steered through its admin port."""

    url: str
    admin: str
    pid: int

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that lead the SDK to it."""
        return {"MODAL_SERVER_URL": self.url, "MODAL_TOKEN_ID": TOKEN[0], "MODAL_TOKEN_SECRET": TOKEN[1]}

    @asynccontextmanager
    async def client(self, token: tuple[str, str] = TOKEN) -> AsyncIterator[modal.Client]:
        """A client of the real SDK that talks to it, whatever the surroundings are set to."""
        async with modal.Client(self.url, api_pb2.CLIENT_TYPE_CLIENT, token) as client:
            yield client

    def fault(self, method: str, **how: Any) -> None:
        """Queue a fault; the fields are those of modal_server/faults.py."""
        self._call("POST", "/faults", [{"method": method, **how}])

    def set(self, **settings: Any) -> None:
        """Change settings until the next reset; the names are those of modal_server/settings.py."""
        self._call("POST", "/settings", settings)

    def state(self) -> Any:
        return self._call("GET", "/state")

    def sandboxes(self) -> Any:
        return self._call("GET", "/sandboxes")

    def calls(self, method: str) -> Any:
        return self._call("GET", f"/calls?method={method}")

    def counts(self) -> Any:
        return self._call("GET", "/counts")

    def end(self, sandbox: str, status: str = "INTERNAL_FAILURE", exit_code: int = 1) -> None:
        """Let a sandbox (id, name or `all`) die."""
        self._call("POST", f"/sandboxes/{sandbox}/end", {"status": status, "exit_code": exit_code})

    def cut_connections(self) -> Any:
        return self._call("POST", "/cut-connections")["cut"]

    def reset(self) -> None:
        """End everything and wait until it is gone."""
        self._call("POST", "/reset")

    def _call(self, verb: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.admin}{path}", data=data, method=verb)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=120) as reply:
            return json.load(reply)


@contextmanager
def running_server(*arguments: str) -> Iterator[ModalServer]:
    """A server in a process of its own; its sandboxes are gone when this ends, however it ends."""
    command = [sys.executable, str(FOLDER), "--stop-at-eof", *arguments]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line:
                raise RuntimeError("the Modal server did not start; see its stderr above")
            yield ModalServer(**json.loads(line), pid=process.pid)
        finally:
            process.stdin.close()
            process.wait()


@dataclass
class Account:
    """A client of the server, with an app, an image, and a way to make sandboxes of one generation."""

    client: modal.Client
    app: modal.App
    image: modal.Image

    async def sandbox(self, *args: str, **wanted: Any) -> modal.Sandbox:
        command = args or ("sleep", "infinity")
        return await modal.Sandbox.create.aio(*command, **{"app": self.app, "image": self.image, **wanted})


async def run(sandbox: modal.Sandbox, *argv: str, **how: Any) -> tuple[bytes, bytes, int]:
    process = await sandbox.exec.aio(*argv, text=False, **how)
    streams = (process.stdout.read.aio(), process.stderr.read.aio(), process.wait.aio())
    stdout, stderr, code = await asyncio.gather(*streams)
    return stdout, stderr, code


async def ended(sandbox: modal.Sandbox) -> int:
    while (code := await sandbox.poll.aio()) is None:
        await asyncio.sleep(0.05)
    return code


def containers() -> list[str]:
    command = ["docker", "ps", "-a", "--filter", "label=agentcompass.modal-server", "--format", "{{.Names}}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


async def gone(sandbox: modal.Sandbox) -> None:
    while f"modal-{sandbox.object_id}" in containers():
        await asyncio.sleep(0.1)
