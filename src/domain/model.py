"""Messages to and from a model, and what they cost."""

from typing import Literal

from pydantic import Field, JsonValue, SecretStr

from .value import Value

NO_MODEL = "none"
"""What names no model."""


class ModelEndpoint(Value):
    """Where a model answers."""

    name: str
    base_url: str | None = None
    api_key: SecretStr | None = None
    protocol: str = "openai-chat"


class ToolCall(Value):
    """A function call asked for by the model; `arguments` is the JSON text as it came, valid or not."""

    id: str
    name: str
    arguments: str


class Message(Value):
    """One turn. `role` is system, user, assistant or tool."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    reasoning_content: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    """Of a `tool` message: the call it answers."""


class Tool(Value):
    """A function that the model may call; `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: dict[str, JsonValue]


class ModelRequest(Value):
    """The whole conversation so far. Sampling parameters are the model's own settings."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()


class Usage(Value):
    """Tokens of one or more calls. None is unknown, which is not zero.

    `input_tokens` includes the cached ones, `output_tokens` the reasoning, as OpenAI's API counts them.
    """

    input_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: float | None = None

    def plus(self, other: "Usage") -> "Usage":
        """The sum, field by field. Input, output and cost are unknown where one side is; of the parts that only some
        replies tell of (cache, reasoning) it is the known sum.

        The sum of no calls adds nothing: added to what is unknown, it leaves it unknown.
        """
        if NO_USAGE in (self, other):
            return other if self == NO_USAGE else self
        known = self.plus_known(other)
        unknown = {name: None for name in _WHOLE if getattr(self, name) is None or getattr(other, name) is None}
        return known.model_copy(update=unknown) if unknown else known

    def plus_known(self, other: "Usage") -> "Usage":
        """The sum of what is known, field by field: at least so much. Unknown only where both sides are."""
        if NO_USAGE in (self, other):
            return other if self == NO_USAGE else self
        return Usage.model_validate(
            {name: _add_known(getattr(self, name), getattr(other, name)) for name in Usage.model_fields}
        )


NO_USAGE = Usage(**dict.fromkeys(Usage.model_fields, 0))
"""The sum of no calls."""
_WHOLE = ("input_tokens", "output_tokens", "cost_usd")


def _add_known(left: float | None, right: float | None) -> float | None:
    if left is None or right is None:
        return left if right is None else right
    return left + right


class Price(Value):
    """USD per million tokens; a cache price that is None is the input price."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cache_read: float | None = Field(default=None, ge=0)
    cache_write: float | None = Field(default=None, ge=0)

    def cost_usd(self, usage: Usage) -> float | None:
        """What `usage` costs, or None where its tokens are unknown."""
        if usage.input_tokens is None or usage.output_tokens is None:
            return None
        read, write = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
        plain = max(usage.input_tokens - read - write, 0)
        read_price = self.input if self.cache_read is None else self.cache_read
        write_price = self.input if self.cache_write is None else self.cache_write
        total = plain * self.input + read * read_price + write * write_price + usage.output_tokens * self.output
        return total / 1_000_000


class ModelResponse(Value):
    """One answer."""

    message: Message
    usage: Usage
    finish_reason: str
    """`stop`, `tool_calls`, `length`, `content_filter`, or as the endpoint says."""
    latency_s: float
    model: str = ""
    """As the endpoint names itself."""
