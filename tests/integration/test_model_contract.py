"""Every model of ours keeps the promises of the port."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from agentcompass.adapters.models.openai_chat import OpenAIChatModel, OpenAIChatParameters
from agentcompass.adapters.models.replay import ReplayModel, ReplayParameters
from agentcompass.domain.errors import BudgetSpent, ContextExceeded, ModelBusy, ModelRefused
from agentcompass.domain.model import Message, ModelEndpoint, ModelRequest, ModelResponse, Price, Usage
from agentcompass.domain.ports import Model
from agentcompass.testing.fakes.model import FakeModel
from agentcompass.testing.fakes.model import Reply as FakeReply
from agentcompass.testing.model import Answer as Scripted
from agentcompass.testing.model import Fails, Hangs, ModelContract, Said
from openai_server import (
    BUDGET_ERRORS,
    CONTEXT_ERRORS,
    HANG,
    Answer,
    OpenAIServer,
    Reply,
    call,
    error,
)

ALL_ERRORS = frozenset({BudgetSpent, ContextExceeded, ModelBusy, ModelRefused})
_OVER_HTTP: dict[type[Exception], Answer] = {
    BudgetSpent: BUDGET_ERRORS["openai"],
    ContextExceeded: CONTEXT_ERRORS["vllm"],
    ModelBusy: error(503, "overloaded"),
    ModelRefused: error(401, "no such key"),
}


async def _no_wait(_: float) -> None:
    await asyncio.sleep(0)


class TestOpenAIChatModel(ModelContract):
    errors = ALL_ERRORS

    @asynccontextmanager
    async def opened(self, script: Sequence[Scripted], folder: Path) -> AsyncIterator[Model]:
        with OpenAIServer([_over_http(answer) for answer in script]) as server:
            endpoint = ModelEndpoint(name="org/model:tag", base_url=server.url)
            model = OpenAIChatModel(OpenAIChatParameters(max_tries=1), endpoint, sleep=_no_wait)
            try:
                yield model
            finally:
                await model.close()


class TestPricedOpenAIChatModel(ModelContract):
    errors = ALL_ERRORS

    @asynccontextmanager
    async def opened(self, script: Sequence[Scripted], folder: Path) -> AsyncIterator[Model]:
        parameters = OpenAIChatParameters(max_tries=1, price=Price(input=3, output=15, cache_read=0.3))
        with OpenAIServer([_over_http(answer) for answer in script]) as server:
            model = OpenAIChatModel(parameters, ModelEndpoint(name="m", base_url=server.url), sleep=_no_wait)
            try:
                yield model
            finally:
                await model.close()


class TestReplayModel(ModelContract):
    errors = frozenset({ModelRefused})

    @asynccontextmanager
    async def opened(self, script: Sequence[Scripted], folder: Path) -> AsyncIterator[Model]:
        path = folder / "recording.jsonl"
        path.write_text("".join(json.dumps(_recorded(it)) + "\n" for it in script if isinstance(it, Said)))
        delay_s = 3600 if any(isinstance(it, Hangs) for it in script) else 0
        model = ReplayModel(ReplayParameters(path=str(path), delay_s=delay_s), ModelEndpoint(name="recorded"))
        yield model
        await model.close()


class TestFakeModel(ModelContract):
    errors = ALL_ERRORS

    @asynccontextmanager
    async def opened(self, script: Sequence[Scripted], folder: Path) -> AsyncIterator[Model]:
        answers = iter(script)

        async def reply(_: ModelRequest) -> FakeReply:
            scripted = next(answers)
            if isinstance(scripted, Hangs):
                await asyncio.sleep(3600)
            return scripted.error("scripted") if isinstance(scripted, Fails) else _response(scripted)

        model = FakeModel(replies=reply)
        yield model
        await model.close()


def _over_http(scripted: Scripted) -> Answer:
    if isinstance(scripted, Fails):
        return _OVER_HTTP[scripted.error]
    if isinstance(scripted, Hangs):
        return HANG
    calls = [call(it.name, it.arguments, it.id) for it in scripted.tool_calls]
    content = None if calls else scripted.content
    return Reply(content, calls, scripted.reasoning_content, scripted.finish_reason, _wire_usage(scripted.usage))


def _wire_usage(usage: Usage) -> dict[str, Any] | None:
    if usage.input_tokens is None:
        return None
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def _recorded(said: Said) -> dict[str, Any]:
    calls = [it.model_dump() for it in said.tool_calls]
    return {**said._asdict(), "tool_calls": calls, "usage": said.usage.model_dump()}


def _response(said: Said) -> ModelResponse:
    message = Message(
        role="assistant",
        content=said.content,
        tool_calls=said.tool_calls,
        reasoning_content=said.reasoning_content,
    )
    return ModelResponse(message=message, usage=said.usage, finish_reason=said.finish_reason, latency_s=0)
