"""Messages to and from the JSON of chat completions."""

import json
from typing import Any

import pytest
from agentcompass.adapters.models.openai_wire import UNKNOWN_REASON, encodable, read_answer, wire_message
from agentcompass.domain.model import Message, ToolCall
from hypothesis import given
from hypothesis import strategies as st


def reply(message: Any, **choice: Any) -> dict[str, Any]:
    return {"choices": [{"message": message, "finish_reason": "stop", **choice}]}


def read(message: Any, length: int = 3, **choice: Any) -> Message:
    answer = read_answer(reply(message, **choice), length)
    assert answer is not None
    return answer.message


def test_null_content_is_empty_text() -> None:
    assert read({"role": "assistant", "content": None}) == Message(role="assistant")


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_is_read_under_each_of_its_names(name: str) -> None:
    assert read({"content": "x", name: "thoughts"}).reasoning_content == "thoughts"


def test_reasoning_that_is_empty_or_null_is_none() -> None:
    assert read({"content": "x", "reasoning_content": "", "reasoning": None}).reasoning_content is None


def test_content_in_parts_is_text_and_thoughts() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b"},
    ]

    assert read({"content": parts}) == Message(role="assistant", content="ab", reasoning_content="hm")


def test_a_refusal_is_what_was_said() -> None:
    assert read({"content": None, "refusal": "I cannot"}).content == "I cannot"


def test_missing_and_repeated_ids_are_made_unique() -> None:
    function = {"name": "bash", "arguments": "{}"}
    calls = [{"function": function}, {"id": None, "function": function}, {"id": "a", "function": function}]
    message = read({"content": None, "tool_calls": [*calls, {"id": "a", "function": function}]}, length=5)

    assert [call.id for call in message.tool_calls] == ["call_5_0", "call_5_1", "a", "call_5_3"]


def test_made_ids_differ_between_turns() -> None:
    calls = {"tool_calls": [{"function": {"name": "bash", "arguments": "{}"}}]}

    assert read(calls, length=2).tool_calls[0].id != read(calls, length=4).tool_calls[0].id


@pytest.mark.parametrize(
    ("arguments", "text"), [('{"a":  1', '{"a":  1'), ("", ""), (None, ""), ({"a": "\u00e4"}, '{"a": "\u00e4"}')]
)
def test_arguments_are_the_text_that_came(arguments: Any, text: str) -> None:
    message = read({"tool_calls": [{"id": "a", "function": {"name": "bash", "arguments": arguments}}]})

    assert message.tool_calls[0].arguments == text


def test_the_old_form_of_a_call_is_read() -> None:
    message = read({"content": None, "function_call": {"name": "bash", "arguments": "{}"}})

    assert [(call.name, call.arguments) for call in message.tool_calls] == [("bash", "{}")]


@pytest.mark.parametrize("reason", ["length", "content_filter", "eos"])
def test_the_finish_reason_is_as_told(reason: str) -> None:
    answer = read_answer(reply({"content": "x"}, finish_reason=reason), 1)

    assert answer is not None
    assert answer.finish_reason == reason


def test_a_finish_reason_that_is_not_told_is_unknown() -> None:
    answer = read_answer(reply({"content": "x"}, finish_reason=None), 1)

    assert answer is not None
    assert answer.finish_reason == UNKNOWN_REASON


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "message", "content", "tool_calls", "function", "id", "name", "arguments", "usage", "type"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(_JSON)
def test_any_json_is_an_answer_or_none(junk: Any) -> None:
    payload = junk if isinstance(junk, dict) else {"choices": junk}

    for body in (payload, {"choices": [payload]}, reply(payload)):
        answer = read_answer(body, 1)
        assert answer is None or answer.message.role == "assistant"


_SURROGATES = st.text(st.characters(exclude_categories=()))


@given(_SURROGATES)
def test_any_text_can_be_sent(text: str) -> None:
    sent = encodable(text)

    assert sent.encode("utf-8").decode("utf-8") == sent


@given(st.text())
def test_ordinary_text_is_sent_as_it_is(text: str) -> None:
    assert encodable(text) == text


@given(_SURROGATES, st.booleans())
def test_any_message_can_be_sent_as_json(text: str, send_reasoning: bool) -> None:
    calls = (ToolCall(id="a", name=text, arguments=text),)
    message = Message(role="assistant", content=text, reasoning_content=text, tool_calls=calls)

    assert json.dumps(wire_message(message, send_reasoning), ensure_ascii=False).encode("utf-8")


@given(st.text(min_size=1), st.text())
def test_what_is_sent_reads_back_the_same(content: str, arguments: str) -> None:
    message = Message(
        role="assistant",
        content=content,
        reasoning_content="thoughts",
        tool_calls=(ToolCall(id="a", name="bash", arguments=arguments),),
    )

    assert read(wire_message(message, send_reasoning=True)) == message
