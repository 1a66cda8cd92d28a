"""What every model promises: a test suite to be inherited from.

    class TestMyModel(ModelContract):
        errors = frozenset({ModelRefused, ModelBusy})

        @asynccontextmanager
        async def opened(self, script: Script, folder: Path) -> AsyncIterator[Model]:
            ...  # a model whose calls are answered as `script` says, call by call

The tests are coroutines: they need pytest-asyncio.
"""

import asyncio
import json
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeAlias

import pytest

from ..domain.errors import AgentCompassError
from ..domain.model import Message, ModelRequest, Tool, ToolCall, Usage
from ..domain.ports import Model
from ..domain.value import Parameters

BASH = Tool(
    name="bash",
    description="Run a command",
    parameters={"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
)


class Said(NamedTuple):
    """A reply for the model to give."""

    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning_content: str | None = None
    finish_reason: str = "stop"
    usage: Usage = Usage(input_tokens=100, output_tokens=10)


class Fails(NamedTuple):
    """An answer for which the model must raise `error` (an exact class)."""

    error: type[AgentCompassError]


class Hangs(NamedTuple):
    """No answer for as long as the test lasts."""


Answer: TypeAlias = Said | Fails | Hangs
Script: TypeAlias = Sequence[Answer]


def conversation(*turns: str | Message) -> ModelRequest:
    """A request whose texts are user messages, with one tool."""
    messages = (turn if isinstance(turn, Message) else Message(role="user", content=turn) for turn in turns)
    return ModelRequest(messages=tuple(messages), tools=(BASH,))


class ModelContract:
    """The promises of `domain.ports.Model`, for one adapter."""

    pytestmark = pytest.mark.asyncio

    errors: ClassVar[frozenset[type[AgentCompassError]]] = frozenset()
    """Which errors the script can make this model raise."""

    def opened(self, script: Script, folder: Path) -> AbstractAsyncContextManager[Model]:
        """A model that answers its calls as `script` says, in order, closed at the end; `folder` is for its files."""
        raise NotImplementedError

    async def test_it_answers_as_an_assistant(self, tmp_path: Path) -> None:
        async with self.opened([Said("hello", finish_reason="stop")], tmp_path) as model:
            response = await model.complete(conversation("hi"))

        assert response.message == Message(role="assistant", content="hello")
        assert response.finish_reason == "stop"
        assert response.latency_s >= 0

    async def test_it_has_a_name_and_parameters_that_may_be_empty(self, tmp_path: Path) -> None:
        async with self.opened([], tmp_path) as model:
            name, parameters = model.name, type(model).Parameters

        assert name
        assert isinstance(parameters.model_validate({}), Parameters)

    async def test_the_answers_of_a_conversation_come_in_order(self, tmp_path: Path) -> None:
        words = ["one", "two", "three"]
        request = conversation("count")
        heard = []
        async with self.opened([Said(word) for word in words], tmp_path) as model:
            for _ in words:
                response = await model.complete(request)
                heard.append(response.message.content)
                request = conversation(*request.messages, response.message, "go on")

        assert heard == words

    async def test_tool_calls_come_with_their_ids_and_the_text_of_their_arguments(self, tmp_path: Path) -> None:
        arguments = '{"command": "echo \\"\u00e4\\" | tr a-z A-Z"}'
        calls = (
            ToolCall(id="call_1", name="bash", arguments=arguments),
            ToolCall(id="x/2", name="bash", arguments="{}"),
        )
        async with self.opened([Said(tool_calls=calls, finish_reason="tool_calls")], tmp_path) as model:
            response = await model.complete(conversation("work"))

        assert response.message.tool_calls == calls
        assert response.message.content == ""
        assert json.loads(response.message.tool_calls[0].arguments)["command"].startswith("echo")

    async def test_arguments_that_are_not_json_are_the_harness_to_judge(self, tmp_path: Path) -> None:
        calls = (ToolCall(id="call_1", name="no such tool", arguments='{"command": "ls'),)
        async with self.opened([Said(tool_calls=calls)], tmp_path) as model:
            response = await model.complete(conversation("work"))

        assert response.message.tool_calls == calls

    async def test_a_conversation_goes_on_after_a_tools_result(self, tmp_path: Path) -> None:
        call = ToolCall(id="call_1", name="bash", arguments='{"command": "ls"}')
        async with self.opened([Said(tool_calls=(call,)), Said("done")], tmp_path) as model:
            first = await model.complete(conversation("work"))
            result = Message(role="tool", tool_call_id="call_1", content="a\nb\n")
            second = await model.complete(conversation("work", first.message, result))

        assert second.message.content == "done"

    async def test_an_empty_answer_is_returned_as_it_is(self, tmp_path: Path) -> None:
        async with self.opened([Said("")], tmp_path) as model:
            response = await model.complete(conversation("hi"))

        assert response.message == Message(role="assistant")

    async def test_a_cut_answer_says_so(self, tmp_path: Path) -> None:
        cut = Said("", reasoning_content="hmm, let me", finish_reason="length")
        async with self.opened([cut], tmp_path) as model:
            response = await model.complete(conversation("hi"))

        assert response.finish_reason == "length"
        assert response.message.reasoning_content == "hmm, let me"

    async def test_usage_is_as_told(self, tmp_path: Path) -> None:
        usage = Usage(input_tokens=1000, cache_read_tokens=900, output_tokens=50, reasoning_tokens=40)
        async with self.opened([Said("x", usage=usage)], tmp_path) as model:
            told = (await model.complete(conversation("hi"))).usage

        assert told.model_copy(update={"cost_usd": None}) == usage

    async def test_usage_that_is_not_told_is_unknown_and_not_zero(self, tmp_path: Path) -> None:
        async with self.opened([Said("x", usage=Usage())], tmp_path) as model:
            usage = (await model.complete(conversation("hi"))).usage

        assert usage.input_tokens is None
        assert usage.output_tokens is None

    async def test_without_a_price_the_cost_is_unknown(self, tmp_path: Path) -> None:
        async with self.opened([Said("x")], tmp_path) as model:
            price, usage = model.price, (await model.complete(conversation("hi"))).usage

        assert usage.cost_usd == (None if price is None else price.cost_usd(usage))

    async def test_an_answer_may_hold_any_text(self, tmp_path: Path) -> None:
        text = "\u4e2d\u6587 \U0001f600 \u2028 </s> \x00 \\ud800 ```bash\nls\n```  \n"
        async with self.opened([Said(text), Said("done")], tmp_path) as model:
            first = await model.complete(conversation("hi"))
            second = await model.complete(conversation("hi", first.message, text))

        assert first.message.content == text
        assert second.message.content == "done"

    async def test_conversations_run_side_by_side(self, tmp_path: Path) -> None:
        async with self.opened([Said("same")] * 20, tmp_path) as model:
            responses = await asyncio.gather(*(model.complete(conversation(f"task {n}")) for n in range(20)))

        assert {response.message.content for response in responses} == {"same"}

    async def test_a_cancelled_call_ends_at_once(self, tmp_path: Path) -> None:
        async with self.opened([Hangs()], tmp_path) as model:
            task = asyncio.create_task(model.complete(conversation("hi")))
            await asyncio.sleep(0.1)
            task.cancel()
            done, _ = await asyncio.wait({task}, timeout=10)

        assert done
        assert task.cancelled()

    async def test_errors_are_of_the_class_that_decides(self, tmp_path: Path) -> None:
        raised = {}
        for number, expected in enumerate(sorted(self.errors, key=lambda error: error.__name__)):
            folder = tmp_path / str(number)
            folder.mkdir()
            async with self.opened([Fails(expected)], folder) as model:
                with pytest.raises(AgentCompassError) as caught:
                    await model.complete(conversation("hi"))
            raised[expected] = caught.value

        assert all(type(error) is expected for expected, error in raised.items())
        assert all(error.message and "\n" not in error.message for error in raised.values())
