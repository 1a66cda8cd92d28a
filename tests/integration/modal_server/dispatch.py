"""From a gRPC stream to the method of the part of the server that answers it: log, faults, credentials."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from call_log import CallLog
from faults import Dropped, Fault, Faults, break_off, strike
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError, StreamTerminatedError
from grpclib.server import Stream

Guard = Callable[["Call"], None]
Reply = Message | AsyncIterator[Message]


@dataclass(frozen=True)
class Call:
    """One RPC as its answerer sees it."""

    method: str
    headers: dict[str, str]
    stream: Stream[Any, Any]

    @property
    def token_id(self) -> str:
        return self.headers.get("x-modal-token-id", "")


def refuse(status: Status, message: str) -> GRPCError:
    return GRPCError(status, message)


class Service:
    """One gRPC service, answered by methods named as its RPCs on any of `parts`; other RPCs are UNIMPLEMENTED."""

    def __init__(
        self, descriptor: ServiceDescriptor, parts: Iterable[object], guard: Guard, log: CallLog, faults: Faults
    ) -> None:
        self._descriptor = descriptor
        self._parts = tuple(parts)
        self._guard = guard
        self._log = log
        self._faults = faults

    def __mapping__(self) -> dict[str, Handler]:
        name = self._descriptor.full_name
        return {f"/{name}/{method.name}": self._handler(method) for method in self._descriptor.methods}

    def _handler(self, method: MethodDescriptor) -> Handler:
        answer = next((getattr(part, method.name) for part in self._parts if hasattr(part, method.name)), None)
        streams_in, streams_out = method.client_streaming, method.server_streaming

        async def handle(stream: Stream[Any, Any]) -> None:
            await self._handle(method.name, answer, stream)

        cardinality = next(kind for kind in Cardinality if kind.value == (streams_in, streams_out))
        return Handler(handle, cardinality, GetMessageClass(method.input_type), GetMessageClass(method.output_type))

    async def _handle(self, method: str, answer: Callable[..., Any] | None, stream: Stream[Any, Any]) -> None:
        request = await stream.recv_message()
        headers = {name: str(value) for name, value in (stream.metadata or {}).items()}
        call = Call(method, headers, stream)
        entry = self._log.begin(method, request, headers)
        status = "CANCELLED"
        try:
            await self._answer(call, answer, request)
            status = "OK"
        except GRPCError as exc:
            status = exc.status.name
            raise
        except Dropped:
            status = "DROPPED"
            _cut_connection(stream)
        except StreamTerminatedError:
            status = "CLIENT_GONE"
            raise
        finally:
            self._log.end(entry, status)

    async def _answer(self, call: Call, answer: Callable[..., Any] | None, request: Message | None) -> None:
        fault = self._faults.take(call.method, request)
        await strike(fault, after=False)
        if answer is None:
            raise refuse(Status.UNIMPLEMENTED, f"{call.method} is not part of this server")
        self._guard(call)
        reply = answer(call, request)
        if inspect.isasyncgen(reply):
            await _send_all(call.stream, reply, fault)
            await strike(fault, after=True)
        else:
            await _send_one(call.stream, reply, fault)


async def _send_one(stream: Stream[Any, Any], reply: Awaitable[Message], fault: Fault | None) -> None:
    message = await reply
    await strike(fault, after=True)
    await stream.send_message(message)


async def _send_all(stream: Stream[Any, Any], reply: AsyncIterator[Message], fault: Fault | None) -> None:
    sent = 0
    async for message in reply:
        await stream.send_message(message)
        sent += 1
        if fault is not None and fault.after_messages == sent:
            break_off(fault)


def _cut_connection(stream: Stream[Any, Any]) -> None:
    stream._stream._transport.abort()
