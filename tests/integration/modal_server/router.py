"""The task command router: commands in a sandbox, their streams, their ends."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from accounts import Accounts
from dispatch import Call, refuse
from engine import Engine
from execs import Exec, StdinClosed, StdinGap
from file_tools import as_shell
from grpclib.const import Status
from grpclib.exceptions import GRPCError
from images import Images
from modal_proto import task_command_router_pb2 as pb
from output import OffsetLost, Output
from sandbox_calls import blocks
from sandboxes import Sandbox, Sandboxes
from settings import Settings
from stored_objects import StoredObjects

ANSWER_AFTER_TIMEOUT_S = 5
"""A command killed at its limit is reported this late where the SDK's own clock is to be first."""
EARLY_S = 0.3
"""So much before its limit it is killed where the server is to be first."""


class Router:
    """Answers the RPCs of the task command router."""

    def __init__(
        self,
        settings: Settings,
        accounts: Accounts,
        stored: StoredObjects,
        images: Images,
        sandboxes: Sandboxes,
        engine: Engine | None,
        label: str,
    ) -> None:
        self._settings = settings
        self._accounts = accounts
        self._stored = stored
        self._images = images
        self._sandboxes = sandboxes
        self._engine = engine
        self._label = label
        self._limits: set[asyncio.Task[None]] = set()

    def guard(self, call: Call) -> None:
        """Raises GRPCError(UNAUTHENTICATED) without a bearer token; whose it is, is checked with the request."""
        if not call.headers.get("authorization", "").startswith("Bearer "):
            raise refuse(Status.UNAUTHENTICATED, "missing bearer token")

    def _sandbox(self, call: Call, task_id: str) -> Sandbox:
        self._accounts.check_jwt(call.headers["authorization"].removeprefix("Bearer "), task_id)
        sandbox = self._sandboxes.by_task(task_id)
        _alive(sandbox)
        return sandbox

    def _exec(self, call: Call, request: Any) -> tuple[Sandbox, Exec]:
        sandbox = self._sandbox(call, request.task_id)
        command = sandbox.execs.get(request.exec_id)
        if command is None:
            raise refuse(Status.NOT_FOUND, f"Exec {request.exec_id!r} not found")
        return sandbox, command

    async def TaskExecStart(self, call: Call, request: pb.TaskExecStartRequest) -> pb.TaskExecStartResponse:
        sandbox = self._sandbox(call, request.task_id)
        if request.HasField("pty_info") and request.pty_info.enabled:
            raise refuse(Status.UNIMPLEMENTED, "this server gives commands no terminal")
        await _while_alive(sandbox, sandbox.started.wait())
        if request.exec_id not in sandbox.starting:
            sandbox.starting[request.exec_id] = asyncio.ensure_future(self._start(sandbox, request))
        try:
            await asyncio.shield(sandbox.starting[request.exec_id])
        except OSError as exc:
            raise refuse(Status.INVALID_ARGUMENT, f"cannot run the command: {exc.strerror}") from exc
        return pb.TaskExecStartResponse()

    async def _start(self, sandbox: Sandbox, request: pb.TaskExecStartRequest) -> Exec:
        argv, convert = as_shell(list(request.command_args), self._settings.read_limit_bytes)
        env = self._stored.variables(list(request.secret_ids), list(request.secret_sources))
        launch = sandbox.machine.launch(argv, env, request.workdir)
        discard = (
            request.stdout_config == pb.TASK_EXEC_STDOUT_CONFIG_DEVNULL,
            request.stderr_config == pb.TASK_EXEC_STDERR_CONFIG_DEVNULL,
        )
        command = Exec(launch, discard=discard, convert=convert)
        await command.attach()
        sandbox.execs[request.exec_id] = command
        sandbox.touch()
        command.exit_code.add_done_callback(lambda _: sandbox.touch())
        if request.timeout_secs:
            limit = asyncio.ensure_future(self._limit(command, request.timeout_secs))
            self._limits.add(limit)
            limit.add_done_callback(self._limits.discard)
        return command

    async def _limit(self, command: Exec, seconds: float) -> None:
        early = EARLY_S if self._settings.exec_timeout_code == 137 else 0
        await asyncio.wait({command.exit_code}, timeout=seconds - early)
        if not command.exit_code.done():
            command.timed_out = True
            command.kill(tree=self._settings.exec_timeout_kills == "tree")

    async def TaskExecWait(self, call: Call, request: pb.TaskExecWaitRequest) -> pb.TaskExecWaitResponse:
        sandbox, command = self._exec(call, request)
        code = await _while_alive(sandbox, asyncio.shield(command.exit_code))
        if command.timed_out and self._settings.exec_timeout_code == -1:
            await asyncio.sleep(ANSWER_AFTER_TIMEOUT_S)
        return pb.TaskExecWaitResponse(signal=9) if command.timed_out else pb.TaskExecWaitResponse(code=code)

    async def TaskExecPoll(self, call: Call, request: pb.TaskExecPollRequest) -> pb.TaskExecPollResponse:
        _, command = self._exec(call, request)
        if not command.exit_code.done():
            return pb.TaskExecPollResponse()
        return pb.TaskExecPollResponse(code=command.exit_code.result())

    async def TaskExecStdioRead(
        self, call: Call, request: pb.TaskExecStdioReadRequest
    ) -> AsyncIterator[pb.TaskExecStdioReadResponse]:
        sandbox, command = self._exec(call, request)
        stderr = request.file_descriptor == pb.TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDERR
        output = command.stderr if stderr else command.stdout
        async for data in _from(output, request.offset):
            yield pb.TaskExecStdioReadResponse(data=data)
        _alive(sandbox)

    async def TaskExecStdinWrite(
        self, call: Call, request: pb.TaskExecStdinWriteRequest
    ) -> pb.TaskExecStdinWriteResponse:
        sandbox, command = self._exec(call, request)
        sandbox.touch()
        await _write(command, request.offset, request.data, request.eof)
        return pb.TaskExecStdinWriteResponse()

    async def TaskExecStdinWriteStream(
        self, call: Call, request: pb.TaskExecStdinWriteStreamRequest
    ) -> pb.TaskExecStdinWriteStreamResponse:
        sandbox, command = self._exec(call, request.start)
        offset = request.start.offset
        async for part in call.stream:
            sandbox.touch()
            await _write(command, offset, part.data, part.WhichOneof(_only_oneof(part)) == "end")
            offset += len(part.data)
        return pb.TaskExecStdinWriteStreamResponse()

    async def TaskExecStdinStatus(
        self, call: Call, request: pb.TaskExecStdinStatusRequest
    ) -> pb.TaskExecStdinStatusResponse:
        _, command = self._exec(call, request)
        return pb.TaskExecStdinStatusResponse(num_bytes_written=command.written, closed=command.stdin_closed)

    async def SandboxWaitUntilReady(
        self, call: Call, request: pb.SandboxWaitUntilReadyTcrRequest
    ) -> pb.SandboxWaitUntilReadyTcrResponse:
        sandbox = self._sandbox(call, request.task_id)
        await _while_alive(sandbox, sandbox.started.wait())
        return pb.SandboxWaitUntilReadyTcrResponse(ready_at=sandbox.started_at or 0)

    async def SandboxStdioReadV2(
        self, call: Call, request: pb.SandboxStdioReadV2Request
    ) -> AsyncIterator[pb.SandboxStdioReadV2Response]:
        """The main command's output, V2."""
        sandbox = self._sandbox(call, request.task_id)
        await _while_alive(sandbox, sandbox.started.wait())
        position = 0
        stderr = request.file_descriptor == pb.SANDBOX_STDIO_FILE_DESCRIPTOR_STDERR
        async for chunk in sandbox.machine.output(stderr=stderr):
            fresh = chunk[max(0, request.offset - position) :]
            position += len(chunk)
            if fresh:
                yield pb.SandboxStdioReadV2Response(data=fresh, starting_offset=position - len(fresh))

    async def TaskSetNetworkAccess(
        self, call: Call, request: pb.TaskSetNetworkAccessRequest
    ) -> pb.TaskSetNetworkAccessResponse:
        sandbox = self._sandbox(call, request.task_id)
        if blocks(sandbox.definition.network_access):
            raise refuse(Status.FAILED_PRECONDITION, "the network access of this sandbox cannot be changed")
        await sandbox.machine.block_network(blocks(request.network_access))
        return pb.TaskSetNetworkAccessResponse()

    async def TaskSnapshotFilesystem(
        self, call: Call, request: pb.TaskSnapshotFilesystemRequest
    ) -> pb.TaskSnapshotFilesystemResponse:
        sandbox = self._sandbox(call, request.task_id)
        await _while_alive(sandbox, sandbox.started.wait())
        if self._engine is None:
            raise refuse(Status.UNIMPLEMENTED, "the light backend takes no snapshots")
        repository = f"modal-server/snapshot-{request.snapshot_id.lower()}"
        await self._engine.commit(f"modal-{sandbox.id}", repository, self._label)
        image = self._images.adopt(sandbox.workspace, f"{repository}:{self._label}")
        return pb.TaskSnapshotFilesystemResponse(image_id=image.id)


def _alive(sandbox: Sandbox) -> None:
    if sandbox.result is not None:
        raise refuse(Status.NOT_FOUND, f"Task {sandbox.task_id} has finished")


async def _while_alive(sandbox: Sandbox, waited: Any) -> Any:
    """What `waited` gives, unless the sandbox ends first. Raises GRPCError(NOT_FOUND)."""
    wanted, end = asyncio.ensure_future(waited), asyncio.ensure_future(sandbox.finished.wait())
    try:
        await asyncio.wait({wanted, end}, return_when=asyncio.FIRST_COMPLETED)
        if not wanted.done():
            _alive(sandbox)
        return wanted.result()
    finally:
        wanted.cancel()
        end.cancel()


async def _from(output: Output, offset: int) -> AsyncIterator[bytes]:
    try:
        async for data in output.read(offset):
            yield data
    except OffsetLost as exc:
        raise refuse(Status.OUT_OF_RANGE, f"output before offset {offset} is no longer kept") from exc


async def _write(command: Exec, offset: int, data: bytes, eof: bool) -> None:
    try:
        await command.write(offset, data, eof)
    except StdinClosed as exc:
        raise GRPCError(Status.FAILED_PRECONDITION, "the command no longer reads its input") from exc
    except StdinGap as exc:
        raise GRPCError(Status.INVALID_ARGUMENT, "bytes before the offset are missing") from exc


def _only_oneof(message: Any) -> str:
    return str(message.DESCRIPTOR.oneofs[0].name)
