"""Faults that a test queues for an RPC."""

import asyncio
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message
from grpclib.const import Status
from grpclib.exceptions import GRPCError
from modal_proto import api_pb2

Details = list[Message] | None


@dataclass
class Fault:
    """One misbehaviour of one method.

    It spares the first `skip` matching calls and strikes the next `times` (0: all that follow).
    `delay_s` comes first. Then `drop` cuts the connection, or `status` is answered. With `after` the call is carried
    out before that, so that only its answer is lost; `after_messages` lets a stream send that many messages first.
    """

    method: str
    status: str | None = None
    message: str = "injected"
    retry_after_s: float | None = None
    delay_s: float = 0
    drop: bool = False
    after: bool = False
    after_messages: int = 0
    times: int = 1
    skip: int = 0
    contains: str = ""
    """Strikes only requests whose text form contains this."""
    struck: int = 0

    def matches(self, method: str, request: Message | None) -> bool:
        if self.method not in (method, "*"):
            return False
        return not self.contains or self.contains in str(request)

    def error(self) -> GRPCError | None:
        if self.status is None:
            return None
        details: Details = None
        if self.retry_after_s is not None:
            details = [api_pb2.RPCRetryPolicy(retry_after_secs=self.retry_after_s)]
        return GRPCError(Status[self.status], self.message, details)


class Dropped(Exception):
    """The connection is to be cut instead of an answer."""


class Faults:
    """The faults still to strike, in the order they were queued."""

    def __init__(self) -> None:
        self._waiting: list[Fault] = []

    def add(self, **values: Any) -> None:
        fault = Fault(**values)
        if fault.status is not None:
            Status[fault.status]
        self._waiting.append(fault)

    def clear(self) -> None:
        self._waiting.clear()

    def left(self) -> list[dict[str, Any]]:
        return [vars(fault) for fault in self._waiting]

    def take(self, method: str, request: Message | None) -> Fault | None:
        """The fault that strikes this call, if any."""
        for fault in self._waiting:
            if not fault.matches(method, request):
                continue
            if fault.skip > 0:
                fault.skip -= 1
                continue
            fault.struck += 1
            if fault.times and fault.struck >= fault.times:
                self._waiting.remove(fault)
            return fault
        return None


async def strike(fault: Fault | None, *, after: bool) -> None:
    """Do what the fault wants at this point of its call; before the work, or after it.

    Raises:
        GRPCError: the answer the fault prescribes.
        Dropped: cut the connection.
    """
    if fault is None or fault.after_messages:
        return
    if not after and fault.delay_s:
        await asyncio.sleep(fault.delay_s)
    if fault.after is not after:
        return
    break_off(fault)


def break_off(fault: Fault) -> None:
    if fault.drop:
        raise Dropped
    error = fault.error()
    if error is not None:
        raise error
