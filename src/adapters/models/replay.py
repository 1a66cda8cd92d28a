"""Answers from recorded replies, strictly in order (`recording` says how they are stored)."""

import asyncio
import hashlib
import time
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

from pydantic import Field

from ...domain.errors import ConfigError, ModelRefused
from ...domain.model import Message, ModelEndpoint, ModelRequest, ModelResponse, Price
from ...domain.value import Parameters as AdapterParameters
from .recording import Recorded, Recording, Recordings, find_recordings

_KEPT_OPEN = 64
"""Recordings whose replies stay in memory."""
_SNIPPET = 120


class ReplayParameters(AdapterParameters):
    """`model.params` of the protocol `replay`."""

    path: str | None = None
    """A file of replies, a folder of them, a run's folder, or `package:a.package/folder`; None is the model's name."""
    delay_s: float = Field(default=0, ge=0, json_schema_extra={"identity": False})
    """Time that each reply takes."""


class _Place(NamedTuple):
    """A reply of a recording."""

    recording: Recording
    position: int


class ReplayModel:
    """Replies recorded from a model, without an endpoint and without cost.

    Any number of conversations are served side by side, each from its own recording.
    The conversation itself tells where it is: one reply further than the longest earlier request that it continues. So
    a reply that the harness did not keep (it could not be parsed, say) counts all the same. A request that continues
    no earlier one is as far as it has assistant messages, and each must be the recorded one. The same request asked
    again gets the same reply, or that of the next recording where several serve its prompt.
    """

    Parameters: ClassVar[type[AdapterParameters]] = ReplayParameters

    def __init__(self, parameters: ReplayParameters, endpoint: ModelEndpoint) -> None:
        self._endpoint = endpoint
        self._delay_s = parameters.delay_s
        self._path = parameters.path or endpoint.name
        try:
            self._recordings = Recordings(find_recordings(self._path))
        except OSError as exc:
            raise ConfigError(f"recordings at {self._path!r} cannot be read: {exc.strerror or exc}") from exc
        self._asked: defaultdict[bytes, list[_Place]] = defaultdict(list)
        self._open: OrderedDict[str, tuple[Recorded, ...]] = OrderedDict()

    @property
    def name(self) -> str:
        """As the user gave it."""
        return self._endpoint.name

    @property
    def price(self) -> Price | None:
        """Nothing."""
        return Price(input=0, output=0)

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """The next recorded reply.

        Raises:
            ModelRefused: no recording serves this conversation, it has left the recorded course, or all is used.
            ConfigError: the recording cannot be read.
        """
        started = time.monotonic()
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
        place = await self._place(request.messages)
        replies = await self._replies(place.recording)
        if place.position >= len(replies):
            raise ModelRefused(
                f"recording {place.recording.name!r} has {len(replies)} replies and all are used; the conversation "
                f"asks for number {place.position + 1} after {_snippet(request.messages)}",
                hint="the run has taken another course than the recorded one",
            )
        recorded = replies[place.position]
        return ModelResponse(
            message=recorded.message,
            usage=recorded.usage.model_copy(update={"cost_usd": 0.0}),
            finish_reason=recorded.finish_reason,
            latency_s=time.monotonic() - started,
            model=f"recording {place.recording.name}",
        )

    async def close(self) -> None:
        """Forget what was read."""
        self._open.clear()

    async def _place(self, messages: Sequence[Message]) -> _Place:
        digests = list(_digests(messages))
        candidates = await self._candidates(messages, digests)
        # No await from here on: two equal requests at once must not be given the same turn.
        asked = self._asked[digests[-1]]
        place = candidates[len(asked) % len(candidates)]
        if len(asked) < len(candidates):
            asked.append(place)
        return place

    async def _candidates(self, messages: Sequence[Message], digests: Sequence[bytes]) -> list[_Place]:
        for length in range(len(messages) - 1, 0, -1):
            earlier = self._asked.get(digests[length - 1], ())
            if earlier:
                tail = _said(messages[length:])
                going_on = [_Place(it.recording, it.position + 1) for it in earlier if await self._went_so(it, tail)]
                if going_on:
                    return going_on
        return await self._fresh(messages)

    async def _went_so(self, place: _Place, tail: Sequence[Message]) -> bool:
        """Whether `tail`, what was said since the reply at `place`, is that reply (or nothing: it was not kept)."""
        replies = await self._replies(place.recording)
        if place.position >= len(replies):
            return False
        return not tail or (len(tail) == 1 and _same(tail[0], replies[place.position].message))

    async def _fresh(self, messages: Sequence[Message]) -> list[_Place]:
        opening = next((message.content for message in messages if message.role == "user"), "")
        recordings = self._recordings.serving(opening)
        if not recordings:
            raise ModelRefused(
                f"none of the {len(self._recordings.all)} recordings at {self._path!r} serves the conversation that "
                f"opens with {opening[:_SNIPPET]!r}",
                hint="each serves the conversations whose first user message has its match",
            )
        said = _said(messages)
        places = [_Place(it, len(said)) for it in recordings if await self._begins_with(it, said)]
        if not places:
            raise _strayed(_Place(recordings[0], len(said) - 1), messages)
        return places

    async def _begins_with(self, recording: Recording, said: Sequence[Message]) -> bool:
        replies = await self._replies(recording)
        return len(said) <= len(replies) and all(map(_same, said, (reply.message for reply in replies)))

    async def _replies(self, recording: Recording) -> tuple[Recorded, ...]:
        known = self._open.get(recording.name)
        if known is None:
            known = await asyncio.to_thread(recording.replies)
            self._open[recording.name] = known
            while len(self._open) > _KEPT_OPEN:
                self._open.popitem(last=False)
        return known


def _strayed(place: _Place, messages: Sequence[Message]) -> ModelRefused:
    said = _said(messages)
    return ModelRefused(
        f"recording {place.recording.name!r}: the conversation's {len(said)} assistant messages are not the recorded "
        f"ones; asked after {_snippet(messages)}",
        hint="the harness changed what the model had said, or the conversation is another one",
    )


def _snippet(messages: Sequence[Message]) -> str:
    last = messages[-1] if messages else None
    return f"the {last.role} message {last.content[:_SNIPPET]!r}" if last else "no message"


def _said(messages: Sequence[Message]) -> list[Message]:
    return [message for message in messages if message.role == "assistant"]


def _same(left: Message, right: Message) -> bool:
    """Whether both say the same, whatever ids their calls have and whatever was thought."""
    calls = [[(call.name, call.arguments) for call in message.tool_calls] for message in (left, right)]
    return left.content == right.content and calls[0] == calls[1]


def _digests(messages: Sequence[Message]) -> Iterator[bytes]:
    """For each message, a digest of the conversation up to it; one for an empty conversation."""
    digest = hashlib.blake2b(digest_size=16)
    for message in messages:
        calls = [part for call in message.tool_calls for part in (call.id, call.name, call.arguments)]
        for part in (message.role, message.content, message.tool_call_id or "", *calls):
            data = part.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "big") + data)
        digest.update(len(calls).to_bytes(8, "big"))
        yield digest.copy().digest()
    if not messages:
        yield digest.digest()
