"""Images: built for real from local ones, or found under a name."""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from accounts import Accounts
from dispatch import Call, refuse
from dockerfiles import external_images, only_from, with_bases
from engine import Engine, EngineRefused
from google.protobuf.empty_pb2 import Empty
from grpclib.const import Status
from identifiers import new_id
from modal_proto import api_pb2
from settings import Settings
from stored_objects import StoredObjects

Result = api_pb2.GenericResult
_STATUSES = {
    "failure": Result.GENERIC_STATUS_FAILURE,
    "terminated": Result.GENERIC_STATUS_TERMINATED,
    "timeout": Result.GENERIC_STATUS_TIMEOUT,
}


@dataclass
class Image:
    """One image; `reference` is its name at the local engine once it is there."""

    id: str
    workspace: str
    definition: api_pb2.Image | None = None
    reference: str = ""
    result: Result | None = None
    log: list[tuple[float, str]] = field(default_factory=list)
    """When each line was said, and the line."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    building: asyncio.Task[None] | None = None

    def say(self, line: str) -> None:
        self.log.append((time.time(), line))
        self._wake()

    def finish(self, status: Result.GenericStatus.ValueType, exception: str = "") -> None:
        self.result = Result(status=status, exception=exception)
        self._wake()

    def _wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class BuildFailed(Exception):
    """The build ends with this status and log line."""

    def __init__(self, message: str, status: Result.GenericStatus.ValueType = Result.GENERIC_STATUS_FAILURE) -> None:
        super().__init__(message)
        self.status = status


class Images:
    """Answers the RPCs of images. Without an engine every image counts as built, and nothing is."""

    def __init__(
        self, settings: Settings, accounts: Accounts, stored: StoredObjects, engine: Engine | None, label: str
    ) -> None:
        self._settings = settings
        self._accounts = accounts
        self._stored = stored
        self._engine = engine
        self._label = label
        self._images: dict[str, Image] = {}
        self._by_content: dict[str, Image] = {}
        self._by_tag: dict[tuple[str, str], str] = {}
        self.built = 0

    async def clear(self) -> None:
        building = [image.building for image in self._images.values() if image.building is not None]
        for task in building:
            task.cancel()
        await asyncio.gather(*building, return_exceptions=True)
        for kept in (self._images, self._by_content, self._by_tag):
            kept.clear()
        self.built = 0

    def ready(self, workspace: str, image_id: str) -> Image:
        """Raises GRPCError: NOT_FOUND, or FAILED_PRECONDITION for one that is not built."""
        image = self.known(workspace, image_id)
        if image.result is None or image.result.status != Result.GENERIC_STATUS_SUCCESS:
            raise refuse(Status.FAILED_PRECONDITION, f"Image {image_id!r} is not built")
        return image

    def known(self, workspace: str, image_id: str) -> Image:
        """Raises GRPCError(NOT_FOUND)."""
        image = self._images.get(image_id)
        if image is None or image.workspace != workspace:
            raise refuse(Status.NOT_FOUND, f"Image {image_id!r} not found")
        return image

    def adopt(self, workspace: str, reference: str) -> Image:
        """Make an image of a local one (a snapshot, a name known before)."""
        image = Image(new_id("im-"), workspace, reference=reference)
        image.finish(Result.GENERIC_STATUS_SUCCESS)
        self._images[image.id] = image
        return image

    async def ImageGetOrCreate(
        self, call: Call, request: api_pb2.ImageGetOrCreateRequest
    ) -> api_pb2.ImageGetOrCreateResponse:
        workspace = self._accounts.workspace(call)
        self._accounts.app_place(workspace, request.app_id)
        image = self._same_content(workspace, request)
        if image.building is None and (image.result is None or request.force_build or not _succeeded(image)):
            image.result = None
            image.log.clear()
            image.building = asyncio.get_running_loop().create_task(self._build(image))
        reply = api_pb2.ImageGetOrCreateResponse(image_id=image.id)
        if image.result is not None:
            reply.result.CopyFrom(image.result)
        return reply

    def _same_content(self, workspace: str, request: api_pb2.ImageGetOrCreateRequest) -> Image:
        definition = api_pb2.Image()
        definition.CopyFrom(request.image)
        definition.ClearField("image_registry_config")
        content = f"{workspace} {request.builder_version} ".encode() + definition.SerializeToString(deterministic=True)
        key = hashlib.sha256(content).hexdigest()
        if key not in self._by_content:
            image = Image(new_id("im-"), workspace)
            self._by_content[key] = self._images[image.id] = image
        image = self._by_content[key]
        if image.building is None:
            image.definition = request.image
        return image

    async def _build(self, image: Image) -> None:
        assert image.definition is not None
        try:
            await self._apply_rules(image)
            await self._build_for_real(image, image.definition)
        except BuildFailed as exc:
            image.say(f"{exc}\n")
            image.finish(exc.status, "" if exc.status == Result.GENERIC_STATUS_FAILURE else str(exc))
        else:
            self.built += 1
            image.finish(Result.GENERIC_STATUS_SUCCESS)
        finally:
            image.building = None

    async def _apply_rules(self, image: Image) -> None:
        assert image.definition is not None
        text = "\n".join(image.definition.dockerfile_commands)
        rule = next((rule for rule in self._settings.builds if rule.get("match", "") in text), None)
        if rule is None:
            return
        rule["times"] = rule.get("times", 1) - 1
        if rule["times"] == 0:
            self._settings.builds.remove(rule)
        for line in rule.get("log", ()):
            image.say(f"{line}\n")
        await asyncio.sleep(rule.get("delay_s", 0))
        if rule.get("status"):
            raise BuildFailed(rule.get("message", "the build was told to end so"), _STATUSES[rule["status"]])

    async def _build_for_real(self, image: Image, definition: api_pb2.Image) -> None:
        bases = {base.docker_tag: self._base(image.workspace, base.image_id) for base in definition.base_images}
        commands = [line for command in definition.dockerfile_commands for line in command.splitlines()]
        arguments = dict(definition.build_args)
        for reference in external_images(commands, arguments):
            if reference not in bases:
                await self._check_external(reference, definition.image_registry_config)
        plain = only_from(commands)
        if self._engine is None or plain is not None:
            image.reference = bases.get(plain or "", plain or "light")
            image.say(f"=> using {image.reference}\n")
            return
        lines = with_bases(commands, bases)
        content = repr((lines, sorted(arguments.items()), definition.context_mount_id, definition.context_files))
        image.reference = f"modal-server/{hashlib.sha256(content.encode()).hexdigest()[:22]}:{self._label}"
        await self._run_engine(image, lines, definition)

    def _base(self, workspace: str, image_id: str) -> str:
        return self.ready(workspace, image_id).reference

    async def _check_external(self, reference: str, registry: api_pb2.ImageRegistryConfig) -> None:
        for prefix, wanted in self._settings.private_images.items():
            if not reference.startswith(prefix):
                continue
            given = self._stored.secret(registry.secret_id) if registry.secret_id else {}
            if given != wanted:
                raise BuildFailed(f"pull access denied for {reference}: authentication required")
        if self._engine is not None and await self._engine.image(reference) is None:
            raise BuildFailed(f"manifest for {reference} not found: manifest unknown")

    async def _run_engine(self, image: Image, commands: list[str], definition: api_pb2.Image) -> None:
        assert self._engine is not None
        files = {file.filename: (file.data, 0o644) for file in definition.context_files}
        if definition.context_mount_id:
            for file, data in self._stored.mount(definition.context_mount_id):
                files[file.name] = (data, file.mode)
        build = self._engine.build(image.reference, "\n".join(commands), files, definition.build_args, self._label)
        try:
            async for line in build:
                image.say(line)
        except EngineRefused as exc:
            raise BuildFailed(str(exc)) from exc

    async def ImageJoinStreaming(
        self, call: Call, request: api_pb2.ImageJoinStreamingRequest
    ) -> AsyncIterator[api_pb2.ImageJoinStreamingResponse]:
        image = self.known(self._accounts.workspace(call), request.image_id)
        sent = int(request.last_entry_id or 0)
        deadline = asyncio.get_running_loop().time() + (request.timeout or 55)
        while True:
            for _, line in image.log[sent:]:
                sent += 1
                logs = [api_pb2.TaskLogs(data=line, file_descriptor=api_pb2.FILE_DESCRIPTOR_STDOUT)]
                yield api_pb2.ImageJoinStreamingResponse(task_logs=logs, entry_id=str(sent))
            if image.result is not None:
                yield api_pb2.ImageJoinStreamingResponse(result=image.result, entry_id=str(sent), eof=True)
                return
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                return
            await _until(image.changed, left)

    async def ImageFromId(self, call: Call, request: api_pb2.ImageFromIdRequest) -> api_pb2.ImageFromIdResponse:
        image = self.known(self._accounts.workspace(call), request.image_id)
        return api_pb2.ImageFromIdResponse(image_id=image.id)

    async def ImagePublish(self, call: Call, request: api_pb2.ImagePublishRequest) -> api_pb2.ImagePublishResponse:
        workspace = self._accounts.workspace(call)
        image = self.ready(workspace, request.image_id)
        environment, _, tag = request.tag.rpartition("/")
        self._by_tag[workspace, f"{self._accounts.environment(environment)}/{tag}"] = image.id
        return api_pb2.ImagePublishResponse(image_id=image.id)

    async def ImageGetByTag(self, call: Call, request: api_pb2.ImageGetByTagRequest) -> api_pb2.ImageGetByTagResponse:
        workspace = self._accounts.workspace(call)
        place, _, tag = request.tag.rpartition("/")
        environment = self._accounts.environment(place or request.environment_name)
        key = (workspace, f"{environment}/{tag}")
        if key not in self._by_tag:
            reference = self._settings.named_images.get(tag)
            if reference is None:
                raise refuse(Status.NOT_FOUND, f"Image {tag!r} not found in environment {environment!r}")
            self._by_tag[key] = self.adopt(workspace, reference).id
        return api_pb2.ImageGetByTagResponse(image_id=self._by_tag[key])

    async def ImageDelete(self, call: Call, request: api_pb2.ImageDeleteRequest) -> Empty:
        image = self.known(self._accounts.workspace(call), request.image_id)
        del self._images[image.id]
        return Empty()


def _succeeded(image: Image) -> bool:
    return image.result is not None and image.result.status == Result.GENERIC_STATUS_SUCCESS


async def _until(event: asyncio.Event, limit_s: float) -> Any:
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({waiting}, timeout=limit_s)
    finally:
        waiting.cancel()
