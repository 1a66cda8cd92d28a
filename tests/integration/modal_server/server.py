"""All parts of the server, put together."""

import os
import secrets
import shutil
import tempfile
from pathlib import Path
from typing import Any

from accounts import Accounts
from build_logs import BuildLogs
from call_log import CallLog
from dispatch import Service
from engine import LABEL, Engine
from faults import Faults
from grpclib.config import Configuration
from grpclib.server import Server
from images import Images
from machines import Container, LightMachine, Machine, Wanted
from modal._utils.grpc_utils import custom_detail_codec
from modal_proto import api_pb2, task_command_router_pb2
from router import Router
from sandbox_calls import SandboxCalls
from sandboxes import Sandboxes
from settings import Settings
from stored_objects import StoredObjects

WINDOW = 16 * 1024 * 1024


class ModalServer:
    """One server: both gRPC services on one port, and the state behind them.

    `engine` is None for the light backend, whose sandboxes live under a temporary folder.
    """

    def __init__(self, settings: Settings, engine: Engine | None) -> None:
        self.label = f"{os.getpid()}-{secrets.token_hex(4)}"
        self.settings = settings
        self._initial = settings.copy()
        self._engine = engine
        self.folder = Path(tempfile.mkdtemp(prefix="modal-server-"))
        self.log = CallLog()
        self.faults = Faults()
        self.accounts = Accounts(settings)
        self.stored = StoredObjects(settings, self.accounts)
        self.images = Images(settings, self.accounts, self.stored, engine, self.label)
        self.sandboxes = Sandboxes(settings)
        self.calls = SandboxCalls(settings, self.accounts, self.stored, self.images, self.sandboxes, self._machine)
        router = Router(settings, self.accounts, self.stored, self.images, self.sandboxes, engine, self.label)
        control = [self.accounts, self.stored, self.images, BuildLogs(self.accounts, self.images), self.calls]
        self._grpc = Server(
            [
                Service(_service(api_pb2), control, self.accounts.guard, self.log, self.faults),
                Service(_service(task_command_router_pb2), [router], router.guard, self.log, self.faults),
            ],
            status_details_codec=custom_detail_codec,
            config=Configuration(http2_connection_window_size=WINDOW, http2_stream_window_size=WINDOW),
        )

    def _machine(self, wanted: Wanted) -> Machine:
        if self._engine is None:
            return LightMachine(self.folder, wanted)
        return Container(self._engine, self.label, wanted)

    async def listen(self, host: str, port: int) -> int:
        """Returns the port, which differs from a given 0."""
        await self._grpc.start(host, port)
        assert self._grpc._server is not None
        bound: int = self._grpc._server.sockets[0].getsockname()[1]
        self.calls.router_url = f"http://{host}:{bound}"
        return bound

    def cut_connections(self) -> int:
        """Break every open connection, as a network that fails for a moment does."""
        cut = 0
        for handler in list(self._grpc._handlers):
            for stream in list(handler._tasks):
                stream._transport.abort()
                cut += 1
        return cut

    async def reset(self) -> None:
        """As new: nothing running, nothing known, the settings of the command line."""
        self.faults.clear()
        await self.sandboxes.clear()
        await self.images.clear()
        self.calls.clear()
        self.stored.clear()
        self.accounts.clear()
        self.settings.update(self._initial)
        self._initial = self.settings.copy()
        self.log.clear()

    async def close(self) -> None:
        await self.reset()
        self._grpc.close()
        await self._grpc.wait_closed()
        if self._engine is not None:
            await self._engine.remove_labelled(f"{LABEL}={self.label}")
            await self._engine.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def _service(module: Any) -> Any:
    services = module.DESCRIPTOR.services_by_name
    return services["ModalClient"] if "ModalClient" in services else services["TaskCommandRouter"]
