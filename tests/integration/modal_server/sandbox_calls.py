"""The control plane's RPCs of sandboxes, both generations."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from accounts import Accounts
from dispatch import Call, refuse
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message
from grpclib.const import Status
from images import Images
from machines import Machine, Wanted
from modal_proto import api_pb2
from sandboxes import Result, Sandbox, Sandboxes
from settings import Settings
from stored_objects import StoredObjects

MakeMachine = Callable[[Wanted], Machine]
NetworkAccess = api_pb2.NetworkAccess


def blocks(access: NetworkAccess) -> bool:
    """Whether nothing may be reached; an allow-list with entries is not enforced here and counts as open."""
    if access.network_access_type == NetworkAccess.BLOCKED:
        return True
    return access.network_access_type == NetworkAccess.ALLOWLIST and not (
        access.allowed_cidrs or access.allowed_domains
    )


class SandboxCalls:
    """Answers them; what is said of one generation's RPC holds for its twin."""

    def __init__(
        self,
        settings: Settings,
        accounts: Accounts,
        stored: StoredObjects,
        images: Images,
        sandboxes: Sandboxes,
        make_machine: MakeMachine,
    ) -> None:
        self._settings = settings
        self._accounts = accounts
        self._stored = stored
        self._images = images
        self._sandboxes = sandboxes
        self._make_machine = make_machine
        self._answers: dict[str, asyncio.Task[Sandbox]] = {}
        self.router_url = ""

    def clear(self) -> None:
        self._answers.clear()

    async def SandboxCreateV2(
        self, call: Call, request: api_pb2.SandboxCreateV2Request
    ) -> api_pb2.SandboxCreateV2Response:
        env = {
            **self._stored.variables(list(request.definition.secret_ids), list(request.secret_sources)),
            **dict(request.ephemeral_secrets.contents),
        }
        if request.definition.resources.gpu_config.gpu_type:
            raise refuse(Status.INVALID_ARGUMENT, "GPUs are not supported by V2 Sandboxes")
        sandbox = await self._create_once(call, request, env, v2=True)
        access = api_pb2.CommandRouterAccess(url=self.router_url, jwt=self._accounts.jwt(sandbox.task_id))
        return api_pb2.SandboxCreateV2Response(
            sandbox_id=sandbox.id,
            task_id=sandbox.task_id,
            metadata=_metadata(sandbox),
            command_router_access=access,
            sandbox_token=f"token-of-{sandbox.id}",
        )

    async def SandboxCreate(self, call: Call, request: api_pb2.SandboxCreateRequest) -> api_pb2.SandboxCreateResponse:
        env = self._stored.variables(list(request.definition.secret_ids), [])
        sandbox = await self._create_once(call, request, env, v2=False)
        return api_pb2.SandboxCreateResponse(sandbox_id=sandbox.id, metadata=_metadata(sandbox))

    async def _create_once(self, call: Call, request: Any, env: dict[str, str], *, v2: bool) -> Sandbox:
        """The SDK's own retries of one call carry one key, and must not create twice."""
        key = call.headers.get("x-idempotency-key", "")
        task = self._answers.get(key)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = asyncio.ensure_future(self._create(call, request, env, v2=v2))
            if key:
                self._answers[key] = task
        return await asyncio.shield(task)

    async def _create(self, call: Call, request: Any, env: dict[str, str], *, v2: bool) -> Sandbox:
        workspace = self._accounts.workspace(call)
        environment, app_name = self._accounts.app_place(workspace, request.app_id)
        definition = request.definition
        image = self._images.ready(workspace, definition.image_id)
        volumes = {mount.mount_path: self._stored.volume_name(mount.volume_id) for mount in definition.volume_mounts}
        self._sandboxes.admit(workspace, request.app_id, definition)

        def machine(sandbox_id: str) -> Machine:
            wanted = Wanted(
                name=f"modal-{sandbox_id}",
                image=image.reference,
                args=tuple(definition.entrypoint_args),
                env={**env, "MODAL_SANDBOX_ID": sandbox_id, "MODAL_IS_REMOTE": "1"},
                workdir=definition.workdir,
                blocked=blocks(definition.network_access),
                memory_mb_max=definition.resources.memory_mb_max,
                milli_cpu_max=definition.resources.milli_cpu_max,
                volumes=volumes,
            )
            return self._make_machine(wanted)

        sandbox = self._sandboxes.open(
            v2=v2,
            machine=machine,
            workspace=workspace,
            environment=environment,
            app_id=request.app_id,
            app_name=app_name,
            definition=definition,
            tags={tag.tag_name: tag.tag_value for tag in request.tags},
        )
        await asyncio.sleep(self._settings.create_delay_s)
        return sandbox

    def _sandbox(self, call: Call, sandbox_id: str) -> Sandbox:
        return self._sandboxes.by_id(self._accounts.workspace(call), sandbox_id)

    async def SandboxGetTaskId(
        self, call: Call, request: api_pb2.SandboxGetTaskIdRequest
    ) -> api_pb2.SandboxGetTaskIdResponse:
        sandbox = self._sandbox(call, request.sandbox_id)
        if sandbox.result is not None and not sandbox.started.is_set():
            return api_pb2.SandboxGetTaskIdResponse(task_result=sandbox.result)
        scheduled = sandbox.v2 or sandbox.scheduled.is_set()
        return api_pb2.SandboxGetTaskIdResponse(task_id=sandbox.task_id if scheduled else "")

    SandboxGetTaskIdV2 = SandboxGetTaskId

    async def SandboxGetCommandRouterAccess(
        self, call: Call, request: api_pb2.SandboxGetCommandRouterAccessRequest
    ) -> api_pb2.SandboxGetCommandRouterAccessResponse:
        by_task = request.task_id and not request.sandbox_id
        sandbox_id = self._sandboxes.by_task(request.task_id).id if by_task else request.sandbox_id
        jwt = self._router_jwt(self._sandbox(call, sandbox_id))
        return api_pb2.SandboxGetCommandRouterAccessResponse(url=self.router_url, jwt=jwt)

    async def TaskGetCommandRouterAccess(
        self, call: Call, request: api_pb2.TaskGetCommandRouterAccessRequest
    ) -> api_pb2.TaskGetCommandRouterAccessResponse:
        sandbox = self._sandbox(call, self._sandboxes.by_task(request.task_id).id)
        return api_pb2.TaskGetCommandRouterAccessResponse(url=self.router_url, jwt=self._router_jwt(sandbox))

    def _router_jwt(self, sandbox: Sandbox) -> str:
        if sandbox.result is not None:
            raise refuse(Status.FAILED_PRECONDITION, f"Sandbox {sandbox.id} has already finished")
        return self._accounts.jwt(sandbox.task_id)

    async def SandboxWait(self, call: Call, request: api_pb2.SandboxWaitRequest) -> api_pb2.SandboxWaitResponse:
        sandbox = self._sandbox(call, request.sandbox_id)
        if sandbox.result is None and request.timeout > 0:
            await _until(sandbox.finished, request.timeout)
        return api_pb2.SandboxWaitResponse(result=sandbox.result, metadata=_metadata(sandbox))

    SandboxWaitV2 = SandboxWait

    async def SandboxTerminate(
        self, call: Call, request: api_pb2.SandboxTerminateRequest
    ) -> api_pb2.SandboxTerminateResponse:
        sandbox = self._sandbox(call, request.sandbox_id)
        await asyncio.sleep(self._settings.terminate_delay_s)
        before = sandbox.result
        self._sandboxes.end(sandbox, Result.GENERIC_STATUS_TERMINATED, 137)
        return api_pb2.SandboxTerminateResponse(existing_result=before)

    SandboxTerminateV2 = SandboxTerminate

    async def SandboxTagsGet(
        self, call: Call, request: api_pb2.SandboxTagsGetRequest
    ) -> api_pb2.SandboxTagsGetResponse:
        return api_pb2.SandboxTagsGetResponse(tags=_tags(self._sandbox(call, request.sandbox_id)))

    SandboxTagsGetV2 = SandboxTagsGet

    async def SandboxTagsSet(self, call: Call, request: api_pb2.SandboxTagsSetRequest) -> Empty:
        sandbox = self._sandbox(call, request.sandbox_id)
        sandbox.tags = {tag.tag_name: tag.tag_value for tag in request.tags}
        return Empty()

    SandboxTagsSetV2 = SandboxTagsSet

    async def SandboxListV2(self, call: Call, request: api_pb2.SandboxListRequest) -> api_pb2.SandboxListResponse:
        return self._list(call, request, either=True)

    async def SandboxList(self, call: Call, request: api_pb2.SandboxListRequest) -> api_pb2.SandboxListResponse:
        return self._list(call, request, either=False)

    def _list(self, call: Call, request: api_pb2.SandboxListRequest, *, either: bool) -> api_pb2.SandboxListResponse:
        place = (self._accounts.workspace(call), self._accounts.environment(request.environment_name))
        wanted = {(tag.tag_name, tag.tag_value) for tag in request.tags}
        found = [
            sandbox
            for sandbox in self._sandboxes.everything()
            if (request.include_finished or sandbox.result is None)
            and (either or not sandbox.v2)
            and sandbox.workspace == place[0]
            and (sandbox.app_id == request.app_id if request.app_id else sandbox.environment == place[1])
            and wanted <= set(sandbox.tags.items())
            and (not request.before_timestamp or sandbox.created_at < request.before_timestamp)
        ]
        found.sort(key=lambda sandbox: -sandbox.created_at)
        return api_pb2.SandboxListResponse(sandboxes=[_info(sandbox) for sandbox in found[: self._settings.list_page]])

    async def SandboxGetFromNameV2(
        self, call: Call, request: api_pb2.SandboxGetFromNameRequest
    ) -> api_pb2.SandboxGetFromNameResponse:
        return self._from_name(call, request, v2=True)

    async def SandboxGetFromName(
        self, call: Call, request: api_pb2.SandboxGetFromNameRequest
    ) -> api_pb2.SandboxGetFromNameResponse:
        return self._from_name(call, request, v2=False)

    def _from_name(
        self, call: Call, request: api_pb2.SandboxGetFromNameRequest, *, v2: bool
    ) -> api_pb2.SandboxGetFromNameResponse:
        workspace = self._accounts.workspace(call)
        environment = self._accounts.environment(request.environment_name)
        app_id = self._accounts.app_id(workspace, environment, request.app_name)
        sandbox = self._sandboxes.by_name(workspace, app_id, request.sandbox_name) if app_id else None
        if sandbox is None or sandbox.v2 is not v2:
            raise refuse(Status.NOT_FOUND, f"Sandbox {request.sandbox_name!r} not found in app {request.app_name!r}")
        return api_pb2.SandboxGetFromNameResponse(sandbox_id=sandbox.id, metadata=_metadata(sandbox))

    async def SandboxGetLogs(
        self, call: Call, request: api_pb2.SandboxGetLogsRequest
    ) -> AsyncIterator[api_pb2.TaskLogsBatch]:
        """The main command's output, V1."""
        sandbox = self._sandbox(call, request.sandbox_id)
        stderr = request.file_descriptor == api_pb2.FILE_DESCRIPTOR_STDERR
        entry, skip = 0, int(request.last_entry_id or 0)
        await _until(sandbox.started, request.timeout or 55)
        async for chunk in sandbox.machine.output(stderr=stderr):
            entry += 1
            if entry > skip:
                item = api_pb2.TaskLogs(data=chunk.decode(errors="replace"), file_descriptor=request.file_descriptor)
                yield api_pb2.TaskLogsBatch(items=[item], entry_id=str(entry))
        yield api_pb2.TaskLogsBatch(eof=True, entry_id=str(entry))

    async def SandboxGetTunnels(self, call: Call, request: Any) -> Message:
        self._sandbox(call, request.sandbox_id)
        return api_pb2.SandboxGetTunnelsResponse(result=Result(status=Result.GENERIC_STATUS_SUCCESS))

    SandboxGetTunnelsV2 = SandboxGetTunnels


def _metadata(sandbox: Sandbox) -> api_pb2.SandboxHandleMetadata:
    return api_pb2.SandboxHandleMetadata(result=sandbox.result, app_id=sandbox.app_id)


def _tags(sandbox: Sandbox) -> list[api_pb2.SandboxTag]:
    return [api_pb2.SandboxTag(tag_name=name, tag_value=value) for name, value in sandbox.tags.items()]


def _info(sandbox: Sandbox) -> api_pb2.SandboxInfo:
    task = api_pb2.TaskInfo(id=sandbox.task_id, started_at=sandbox.started_at or 0, result=sandbox.result)
    return api_pb2.SandboxInfo(
        id=sandbox.id,
        created_at=sandbox.created_at,
        task_info=task,
        app_id=sandbox.app_id,
        tags=_tags(sandbox),
        name=sandbox.name,
        image_id=sandbox.definition.image_id,
        timeout_secs=sandbox.definition.timeout_secs,
        metadata=_metadata(sandbox),
    )


async def _until(event: asyncio.Event, limit_s: float) -> None:
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({waiting}, timeout=limit_s)
    finally:
        waiting.cancel()
