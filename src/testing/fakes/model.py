"""A model that answers from a script."""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar, TypeAlias

from ...domain.model import Message, ModelEndpoint, ModelRequest, ModelResponse, Price, ToolCall, Usage
from ...domain.value import Parameters as AdapterParameters
from .calling import settled

Reply: TypeAlias = str | ModelResponse | BaseException
ReplyScript: TypeAlias = Callable[[ModelRequest], Reply | Awaitable[Reply]]

RECENT = 100
DEFAULT_USAGE = Usage(input_tokens=10, cache_read_tokens=0, cache_write_tokens=0, output_tokens=5, reasoning_tokens=0)


class ScriptExhausted(AssertionError):
    """More answers were asked for than the script has: the test is wrong, not the run."""


def reply(text: str = "", *tool_calls: ToolCall, usage: Usage = DEFAULT_USAGE) -> ModelResponse:
    """A response with this text and these tool calls."""
    message = Message(role="assistant", content=text, tool_calls=tool_calls)
    finish_reason = "tool_calls" if tool_calls else "stop"
    return ModelResponse(message=message, usage=usage, finish_reason=finish_reason, latency_s=0.0)


class FakeModelParameters(AdapterParameters):
    """A script that can be given on a command line."""

    replies: tuple[str | ModelResponse, ...] = ()
    by_turn: bool = False
    """The n-th reply answers every conversation's n-th turn, so that one script serves many attempts."""
    price: Price | None = None


class FakeModel:
    """Answers with `replies`: a list used up in order, or a function of the request. An exception is raised.

    `calls` counts; `recent` keeps the last requests, at most 100.
    """

    Parameters: ClassVar[type[AdapterParameters]] = FakeModelParameters

    def __init__(
        self,
        parameters: FakeModelParameters | None = None,
        endpoint: ModelEndpoint | None = None,
        *,
        replies: Sequence[Reply] | ReplyScript | None = None,
    ) -> None:
        self.parameters = parameters or FakeModelParameters()
        self.endpoint = endpoint or ModelEndpoint(name="fake")
        self.replies: Sequence[Reply] | ReplyScript = self.parameters.replies if replies is None else replies
        self.calls = 0
        self.recent: deque[ModelRequest] = deque(maxlen=RECENT)
        self.closed = False

    @property
    def name(self) -> str:
        """As the endpoint says."""
        return self.endpoint.name

    @property
    def price(self) -> Price | None:
        """As set."""
        return self.parameters.price

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """The next reply.

        Raises:
            ScriptExhausted: there is none left.
        """
        turn = sum(m.role == "assistant" for m in request.messages) if self.parameters.by_turn else self.calls
        self.calls += 1
        self.recent.append(request)
        answer = await self._answer(request, turn)
        if isinstance(answer, BaseException):
            raise answer
        return self._priced(reply(answer) if isinstance(answer, str) else answer)

    async def _answer(self, request: ModelRequest, turn: int) -> Reply:
        if callable(self.replies):
            scripted: Reply = await settled(self.replies(request))
            return scripted
        if turn >= len(self.replies):
            raise ScriptExhausted(f"FakeModel {self.name!r} has {len(self.replies)} replies, asked for {turn + 1}")
        return self.replies[turn]

    def _priced(self, response: ModelResponse) -> ModelResponse:
        if self.price is None or response.usage.cost_usd is not None:
            return response
        cost = self.price.cost_usd(response.usage)
        return response.model_copy(update={"usage": response.usage.model_copy(update={"cost_usd": cost})})

    async def close(self) -> None:
        """Remember that it was asked for."""
        self.closed = True
