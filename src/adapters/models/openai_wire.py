"""Between our messages and the JSON of chat completions, in the dialects that its many servers speak."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...domain.model import Message, Tool, ToolCall, Usage

UNKNOWN_REASON = "unknown"
"""The finish reason of an endpoint that tells none."""


class Answer(NamedTuple):
    """What a completion's JSON says."""

    message: Message
    finish_reason: str
    usage: Usage
    model: str


def request_body(
    model: str, messages: Sequence[Message], tools: Sequence[Tool], settings: Mapping[str, Any], send_reasoning: bool
) -> dict[str, Any]:
    """The JSON of a request; settings that are None are not sent."""
    body: dict[str, Any] = {"model": model, "messages": [wire_message(m, send_reasoning) for m in messages]}
    if tools:
        body["tools"] = [{"type": "function", "function": tool.model_dump(mode="json")} for tool in tools]
    return body | {name: value for name, value in settings.items() if value is not None}


def wire_message(message: Message, send_reasoning: bool) -> dict[str, Any]:
    """One message as the endpoint reads it: null content beside tool calls, and text that can be UTF-8."""
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.tool_call_id or "", "content": encodable(message.content)}
    wire: dict[str, Any] = {"role": message.role, "content": encodable(message.content)}
    if message.role == "assistant":
        wire.update(_assistant_extras(message, send_reasoning))
    return wire


def _assistant_extras(message: Message, send_reasoning: bool) -> Iterator[tuple[str, Any]]:
    if message.tool_calls:
        yield "tool_calls", [_wire_call(call) for call in message.tool_calls]
        if not message.content:
            yield "content", None
    if send_reasoning and message.reasoning_content is not None:
        yield "reasoning_content", encodable(message.reasoning_content)


def _wire_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": encodable(call.name), "arguments": encodable(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}


def encodable(text: str) -> str:
    """`text` with its surrogate pairs joined and lone surrogates replaced, which UTF-8 has no form for."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def read_answer(payload: Mapping[str, Any], conversation_length: int) -> Answer | None:
    """What `payload` says, or None when it holds no message. Never fails on odd values: they count as unknown."""
    choice = _first(payload.get("choices"))
    message = _mapping(choice.get("message"))
    if not message:
        return None
    content, thoughts = _split_content(message.get("content"))
    spoken = Message(
        role="assistant",
        content=content or _text(message.get("refusal")),
        reasoning_content=_reasoning(message, thoughts),
        tool_calls=tuple(_tool_calls(message, conversation_length)),
    )
    reason = _text(choice.get("finish_reason")) or UNKNOWN_REASON
    said_something = bool(spoken.content or spoken.tool_calls or spoken.reasoning_content)
    return Answer(spoken, reason, read_usage(payload.get("usage"), said_something), _text(payload.get("model")))


def _split_content(content: Any) -> tuple[str, str]:
    """Text and thoughts of a content that may be null, a string, or a list of typed parts."""
    if not isinstance(content, list):
        return _text(content), ""
    texts, thoughts = [], []
    for part in content:
        part = _mapping(part)
        if part.get("type") == "thinking":
            thoughts.append(_split_content(part.get("thinking"))[0])
        else:
            texts.append(_text(part.get("text")))
    return "".join(texts), "".join(thoughts)


def _reasoning(message: Mapping[str, Any], thoughts: str) -> str | None:
    for name in ("reasoning_content", "reasoning"):
        if text := _text(message.get(name)):
            return text
    return thoughts or None


def _tool_calls(message: Mapping[str, Any], conversation_length: int) -> Iterator[ToolCall]:
    """The calls; an id that is missing or used twice is made from the turn, unique in the conversation."""
    calls = message.get("tool_calls") or []
    old_form = message.get("function_call")
    if old_form and not calls:
        calls = [{"function": old_form}]
    taken: set[str] = set()
    for index, call in enumerate(calls if isinstance(calls, list) else []):
        call = _mapping(call)
        function = _mapping(call.get("function"))
        call_id = _text(call.get("id"))
        if not call_id or call_id in taken:
            call_id = f"call_{conversation_length}_{index}"
        taken.add(call_id)
        yield ToolCall(id=call_id, name=_text(function.get("name")), arguments=arguments_text(function))


def arguments_text(function: Mapping[str, Any]) -> str:
    """The arguments as the JSON text that came; servers that send the object itself get it dumped."""
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        return arguments
    return "" if arguments is None else json.dumps(arguments, ensure_ascii=False)


def read_usage(usage: Any, said_something: bool = True) -> Usage:
    """The tokens told. A zero that cannot be true (no prompt, or words without a token) is unknown.

    Counts are brought to OpenAI's way: an endpoint whose cached tokens exceed its prompt counts them apart, and one
    whose total is prompt + completion + reasoning counts the reasoning apart.
    """
    told = _mapping(usage)
    prompt = _count(told, "prompt_tokens") or None
    output = _count(told, "completion_tokens")
    if output == 0 and (said_something or prompt is None):
        output = None
    read, written = _first_count(_cache_reads(told)), _first_count(_cache_writes(told))
    details = _mapping(told.get("completion_tokens_details"))
    reasoning = _first_count([_count(details, "reasoning_tokens"), _count(told, "reasoning_tokens")])
    if prompt is None and output is None:
        return Usage()
    total = _count(told, "total_tokens")
    if None not in (prompt, output) and reasoning and total == (prompt or 0) + (output or 0) + reasoning:
        output = (output or 0) + reasoning
    if prompt is not None and (cached := (read or 0) + (written or 0)) > prompt:
        prompt += cached
    return Usage(
        input_tokens=prompt,
        cache_read_tokens=read,
        cache_write_tokens=written,
        output_tokens=output,
        reasoning_tokens=reasoning,
    )


def _cache_reads(told: Mapping[str, Any]) -> Iterator[int | None]:
    yield _count(_mapping(told.get("prompt_tokens_details")), "cached_tokens")
    for name in ("prompt_cache_hit_tokens", "cache_read_input_tokens", "cached_tokens"):
        yield _count(told, name)


def _cache_writes(told: Mapping[str, Any]) -> Iterator[int | None]:
    details = _mapping(told.get("prompt_tokens_details"))
    for name in ("cache_write_tokens", "cache_creation_tokens"):
        yield _count(details, name)
    yield _count(told, "cache_creation_input_tokens")


def _first_count(counts: Iterable[int | None]) -> int | None:
    return next((count for count in counts if count is not None), None)


def _count(values: Mapping[str, Any], name: str) -> int | None:
    value = values.get(name)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _first(items: Any) -> Mapping[str, Any]:
    return _mapping(items[0]) if isinstance(items, list) and items else {}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
