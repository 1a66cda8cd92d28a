"""The part of the Docker Engine's API that sandboxes and image builds need."""

import io
import json
import os
import struct
import tarfile
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import quote

import aiohttp

LABEL = "agentcompass.modal-server"
"""On every container and image of a server; the value is the server's id."""
API = "http://docker/v1.41"


class EngineRefused(Exception):
    """The engine said no; `status` is its HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Engine:
    """A connection to the Docker engine behind a local socket."""

    def __init__(self) -> None:
        socket = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
        if not socket.startswith("unix://"):
            raise SystemExit(f"the server needs a local Docker engine, not DOCKER_HOST={socket!r}")
        connector = aiohttp.UnixConnector(path=socket.removeprefix("unix://"), limit=0)
        self._session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None))

    async def close(self) -> None:
        await self._session.close()

    async def call(self, verb: str, path: str, body: Any = None) -> Any:
        """Raises EngineRefused."""
        async with self._session.request(verb, f"{API}{path}", json=body) as reply:
            text = await reply.text()
        if reply.status >= 400:
            raise EngineRefused(reply.status, _message(text))
        return json.loads(text) if text.strip() else None

    async def image(self, reference: str) -> dict[str, Any] | None:
        """What the engine knows of a local image; None if there is no such image."""
        try:
            found: dict[str, Any] = await self.call("GET", f"/images/{quote(reference, safe='/:@')}/json")
        except EngineRefused as exc:
            if exc.status in (400, 404):
                return None
            raise
        return found

    async def build(
        self,
        tag: str,
        dockerfile: str,
        files: Mapping[str, tuple[bytes, int]],
        arguments: Mapping[str, str],
        label: str,
    ) -> AsyncIterator[str]:
        """Build an image from a dockerfile and its context (name -> content, mode); yields the log.

        Raises:
            EngineRefused: the build failed.
        """
        query = {
            "t": tag,
            "dockerfile": ".modal-server.Dockerfile",
            "rm": "1",
            "forcerm": "1",
            "buildargs": json.dumps(dict(arguments)),
            "labels": json.dumps({LABEL: label}),
        }
        context = {".modal-server.Dockerfile": (dockerfile.encode(), 0o644), **files}
        headers = {"Content-Type": "application/x-tar"}
        data = _tar(context)
        async with self._session.post(f"{API}/build", params=query, data=data, headers=headers) as reply:
            if reply.status >= 400:
                raise EngineRefused(reply.status, _message(await reply.text()))
            async for line in reply.content:
                event = json.loads(line)
                if "error" in event:
                    raise EngineRefused(500, event["error"])
                if event.get("stream"):
                    yield event["stream"]

    async def logs(self, container: str, *, stderr: bool) -> AsyncIterator[bytes]:
        """One stream of a container's main process, from its beginning, until the process has ended."""
        query = {"follow": "1", "stderr" if stderr else "stdout": "1"}
        async with self._session.get(f"{API}/containers/{container}/logs", params=query) as reply:
            if reply.status >= 400:
                raise EngineRefused(reply.status, _message(await reply.text()))
            while True:
                try:
                    header = await reply.content.readexactly(8)
                    yield await reply.content.readexactly(struct.unpack(">I", header[4:])[0])
                except EOFError:
                    return

    async def commit(self, container: str, repository: str, label: str) -> None:
        """Make an image, tagged with the label, of what a container's files are now."""
        query = f"container={quote(container)}&repo={quote(repository)}&tag={quote(label)}"
        await self.call("POST", f"/commit?{query}", {"Labels": {LABEL: label}})

    async def volume(self, name: str, label: str) -> None:
        """Make it, unless it is there."""
        await self.call("POST", "/volumes/create", {"Name": name, "Labels": {LABEL: label}})

    async def remove_labelled(self, label: str) -> None:
        """Remove the containers, images and volumes that carry the label (`key` or `key=value`)."""
        containers, tags, volumes = await self._labelled(label)
        for container in containers:
            await self.remove(container)
        for tag in tags:
            await self._delete(f"/images/{quote(tag, safe='/:')}?force=1")
        for volume in volumes:
            await self._delete(f"/volumes/{volume}?force=1")

    async def _labelled(self, label: str) -> tuple[list[str], list[str], list[str]]:
        wanted = quote(json.dumps({"label": [label]}))
        containers = await self.call("GET", f"/containers/json?all=1&filters={wanted}")
        images = await self.call("GET", f"/images/json?filters={wanted}")
        tags = [tag for image in images for tag in image.get("RepoTags") or [] if tag.startswith("modal-server/")]
        volumes = (await self.call("GET", f"/volumes?filters={wanted}"))["Volumes"] or []
        return [container["Id"] for container in containers], tags, [volume["Name"] for volume in volumes]

    async def remove(self, container: str) -> None:
        """Kill and remove; one that is not there is fine."""
        await self._delete(f"/containers/{container}?force=1&v=1")

    async def _delete(self, path: str) -> None:
        try:
            await self.call("DELETE", path)
        except EngineRefused as exc:
            if exc.status not in (404, 409):
                raise


def _message(text: str) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text.strip()


def _tar(files: Mapping[str, tuple[bytes, int]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, (data, mode) in files.items():
            member = tarfile.TarInfo(name.lstrip("/"))
            member.size, member.mode = len(data), mode & 0o7777
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()
