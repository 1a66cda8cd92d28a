"""The openai-chat model against a real HTTP server: what it sends, and what it makes of every fault."""

import asyncio
import json
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from agentcompass.adapters.models.openai_chat import OpenAIChatModel, OpenAIChatParameters
from agentcompass.domain.errors import AgentCompassError, BudgetSpent, ContextExceeded, ModelBusy, ModelRefused
from agentcompass.domain.model import Message, ModelEndpoint, ModelRequest, Price, Tool, ToolCall
from openai_server import (
    BUDGET_ERRORS,
    CONTEXT_ERRORS,
    HALF,
    HANG,
    HTML,
    RESET,
    Answer,
    Call,
    OpenAIServer,
    Raw,
    Reply,
    Script,
    call,
    echo_key,
    error,
    raw_error,
)
from pydantic import SecretStr
from structlog.testing import capture_logs
from tenacity import RetryError

KEY = "sk-live-0123456789abcdef"
TOOL = Tool(name="bash", description="Run a command", parameters={"type": "object"})


class Waits(list[float]):
    """A sleep that takes no time, and what it was asked for."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)
        await asyncio.sleep(0)


@asynccontextmanager
async def served(
    script: Script, *, path: str = "/v1", suffix: str = "", name: str = "m", key: str | None = KEY, **parameters: Any
) -> AsyncIterator[tuple[OpenAIChatModel, OpenAIServer, Waits]]:
    """A model at a server that answers from `script`; `suffix` is added to the base URL."""
    waits = Waits()
    with OpenAIServer(script, path=path) as server:
        secret = SecretStr(key) if key else None
        endpoint = ModelEndpoint(name=name, base_url=server.url + suffix, api_key=secret)
        model = OpenAIChatModel(OpenAIChatParameters.model_validate(parameters), endpoint, sleep=waits)
        try:
            yield model, server, waits
        finally:
            await model.close()


def asking(*messages: Message, tools: tuple[Tool, ...] = ()) -> ModelRequest:
    return ModelRequest(messages=messages or (Message(role="user", content="hi"),), tools=tools)


async def failing(script: Script, **parameters: Any) -> tuple[AgentCompassError, int]:
    """The error of a call, and how often the server was asked."""
    async with served(script, **parameters) as (model, server, _):
        with pytest.raises(AgentCompassError) as caught:
            await model.complete(asking())
        return caught.value, len(server.calls)


async def sent(*messages: Message, tools: tuple[Tool, ...] = (), **options: Any) -> dict[str, Any]:
    """The JSON that the server got."""
    async with served([Reply("ok")], **options) as (model, server, _):
        await model.complete(asking(*messages, tools=tools))
    body: dict[str, Any] = server.calls[0].body
    return body


# What is sent


async def test_without_parameters_only_the_model_and_the_messages_are_sent() -> None:
    assert await sent() == {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


async def test_parameters_that_are_set_are_sent_and_extra_body_is_over_all() -> None:
    body = await sent(
        temperature=0.0,
        top_p=0.9,
        max_tokens=100,
        max_completion_tokens=200,
        seed=0,
        stop=["a", "b"],
        presence_penalty=0.1,
        frequency_penalty=0.2,
        reasoning_effort="high",
        parallel_tool_calls=False,
        extra_body={"top_k": 5, "seed": 7, "provider": {"order": ["x"]}},
        tools=(TOOL,),
    )

    assert {name: value for name, value in body.items() if name not in ("model", "messages", "tools")} == {
        "temperature": 0.0,
        "top_p": 0.9,
        "max_tokens": 100,
        "max_completion_tokens": 200,
        "seed": 7,
        "stop": ["a", "b"],
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
        "reasoning_effort": "high",
        "parallel_tool_calls": False,
        "top_k": 5,
        "provider": {"order": ["x"]},
    }
    assert body["tools"] == [{"type": "function", "function": TOOL.model_dump()}]


async def test_parallel_tool_calls_is_sent_only_with_tools() -> None:
    assert "parallel_tool_calls" not in await sent(parallel_tool_calls=True)


async def test_every_role_is_sent_in_its_form() -> None:
    body = await sent(
        Message(role="system", content="be brief"),
        Message(role="user", content="work"),
        Message(role="assistant", tool_calls=(ToolCall(id="c1", name="bash", arguments='{"a": '),)),
        Message(role="tool", content="", tool_call_id="c1"),
        Message(role="assistant", content="", reasoning_content="thoughts"),
    )

    assert body["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "work"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"a": '}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": ""},
        {"role": "assistant", "content": ""},
    ]


async def test_reasoning_is_sent_back_where_the_parameter_says_so() -> None:
    body = await sent(Message(role="assistant", content="x", reasoning_content="thoughts"), send_reasoning=True)

    assert body["messages"] == [{"role": "assistant", "content": "x", "reasoning_content": "thoughts"}]


async def test_text_that_utf8_cannot_hold_does_not_break_the_call() -> None:
    body = await sent(Message(role="user", content="a\udc80b \ud83d\ude00"))

    assert body["messages"][0]["content"] == "a\ufffdb \U0001f600"


@pytest.mark.parametrize("path", ["/v1", "", "/api/v3/openai", "/serve/llm%20a/v1"])
@pytest.mark.parametrize("suffix", ["", "/", "//", "/chat/completions"])
async def test_the_base_urls_path_is_kept(path: str, suffix: str) -> None:
    async with served([Reply("ok")], path=path, suffix=suffix) as (model, server, _):
        await model.complete(asking())

    assert server.calls[0].path == f"{path}/chat/completions"


async def test_the_base_urls_query_is_kept() -> None:
    async with served([Reply("ok")], suffix="/?api-version=2024-10-21&x=") as (model, server, _):
        await model.complete(asking())

    assert server.calls[0].path == "/v1/chat/completions?api-version=2024-10-21&x="


@pytest.mark.parametrize("name", ["org/model", "hf.co/org/Model-GGUF:Q4_K_M", "accounts/x/models/y", "a model"])
async def test_model_names_of_any_form_are_sent_as_they_are(name: str) -> None:
    assert (await sent(name=name))["model"] == name


async def test_the_key_and_extra_headers_are_sent() -> None:
    async with served([Reply("ok")], extra_headers={"X-Team": "blue", "api-key": "azure-key"}) as (model, server, _):
        await model.complete(asking())
    headers = server.calls[0].headers

    assert headers["authorization"] == f"Bearer {KEY}"
    assert headers["x-team"] == "blue"
    assert headers["api-key"] == "azure-key"


async def test_an_authorization_of_ones_own_replaces_the_keys() -> None:
    async with served([Reply("ok")], extra_headers={"Authorization": "Token abc"}, key=None) as (model, server, _):
        await model.complete(asking())

    assert server.calls[0].headers["authorization"] == "Token abc"


async def test_the_environment_of_the_sdk_does_not_reach_the_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-environment")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-environment")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-environment")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "Authorization: Bearer environment\nX-From: environment")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://environment.invalid")
    async with served([Reply("ok")], key=None) as (model, server, _):
        await model.complete(asking())

    assert "environment" not in json.dumps(server.calls[0].headers)


# What comes back


async def test_the_reply_and_its_cost_are_read() -> None:
    usage = {
        "prompt_tokens": 1_000_000,
        "completion_tokens": 100_000,
        "prompt_tokens_details": {"cached_tokens": 400_000},
        "completion_tokens_details": {"reasoning_tokens": 60_000},
    }
    answer = Reply(None, [call("bash", {"command": "ls"})], "thoughts", usage=usage, payload={"model": "m-2025"})
    async with served([answer], price={"input": 2, "output": 10, "cache_read": 0.5}) as (model, _, _):
        response = await model.complete(asking())

    assert response.message.tool_calls == (ToolCall(id="call_a", name="bash", arguments='{"command": "ls"}'),)
    assert response.message.reasoning_content == "thoughts"
    assert response.finish_reason == "tool_calls"
    assert response.model == "m-2025"
    assert (response.usage.cache_read_tokens, response.usage.reasoning_tokens) == (400_000, 60_000)
    assert response.usage.cost_usd == pytest.approx(1.2 + 0.2 + 1.0)


async def test_the_price_may_come_from_a_table() -> None:
    prices = {"org/a:b": Price(input=1, output=1), "other": Price(input=9, output=9)}
    async with served([Reply("ok")], name="org/a:b", prices=prices) as (model, _, _):
        response = await model.complete(asking())

    assert model.price == Price(input=1, output=1)
    assert response.usage.cost_usd == pytest.approx(110 / 1e6)


async def test_without_a_price_the_cost_is_null_and_said_once() -> None:
    with capture_logs() as logs:
        async with served([Reply("ok")] * 3) as (model, _, _):
            responses = [await model.complete(asking()) for _ in range(3)]

    assert [response.usage.cost_usd for response in responses] == [None] * 3
    assert [entry["event"] for entry in logs] == ["model.price_unknown"]


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}])
async def test_usage_that_is_not_told_is_unknown_even_with_a_price(usage: dict[str, int] | None) -> None:
    with capture_logs() as logs:
        async with served([Reply("ok", usage=usage)] * 2, price={"input": 1, "output": 1}) as (model, _, _):
            told = [(await model.complete(asking())).usage for _ in range(2)]

    assert told[0].input_tokens is None
    assert told[0].output_tokens is None
    assert told[0].cost_usd is None
    assert [entry["event"] for entry in logs] == ["model.usage_unknown"]


async def test_a_reply_cut_in_its_reasoning_says_length() -> None:
    async with served([Reply(None, reasoning_content="hmm", finish_reason="length")]) as (model, _, _):
        response = await model.complete(asking())

    assert (response.finish_reason, response.message.content) == ("length", "")
    assert response.message.reasoning_content == "hmm"


# What is tried again


TRANSIENT: dict[str, Answer | Callable[..., Answer]] = {
    "429": error(429, "Rate limit reached"),
    "429 quota words of a limit per minute": error(
        429, "You exceeded your current quota, please check your plan and billing details.", code="rate_limit"
    ),
    "408": error(408, "timeout"),
    "500": error(500, "internal"),
    "502 page": Raw(HTML.body, 502, HTML.headers),
    "503": error(503, "overloaded"),
    "529": error(529, "overloaded_error"),
    "reset": RESET,
    "half a body": HALF,
    "page with 200": HTML,
    "nothing with 200": Raw(b""),
    "no object": Raw(b"[]"),
    "no choices": Reply(payload={"choices": []}),
    "choices null": Reply(payload={"choices": None}),
    "message null": Reply(payload={"choices": [{"index": 0, "message": None}]}),
    "a router's error with 200": Raw(b'{"error": {"message": "upstream is down", "code": 502}}'),
    "a choice's error": Reply(payload={"choices": [{"message": {"content": ""}, "finish_reason": "error",
                                                    "error": {"message": "provider", "code": 503}}]}),
}  # fmt: skip


@pytest.mark.parametrize("kind", TRANSIENT)
async def test_a_passing_fault_is_tried_again(kind: str) -> None:
    async with served([TRANSIENT[kind], TRANSIENT[kind], Reply("well")], max_tries=3) as (model, server, waits):
        response = await model.complete(asking())

    assert response.message.content == "well"
    assert len(server.calls) == 3
    assert len(waits) == 2


@pytest.mark.parametrize("kind", TRANSIENT)
async def test_a_fault_that_stays_is_busy_with_its_cause(kind: str) -> None:
    busy, asked = await failing(lambda _: TRANSIENT[kind], max_tries=2)

    assert type(busy) is ModelBusy
    assert asked == 2
    assert "gave up after 2 tries in" in busy.message
    assert "m' at http://127.0.0.1:" in busy.message
    assert not isinstance(busy.__cause__, RetryError)
    assert isinstance(busy.__cause__, ModelBusy)


async def test_the_message_has_the_status_and_the_endpoints_words() -> None:
    busy, _ = await failing([error(503, "model is\nloading")] * 2, max_tries=2)

    assert "HTTP 503: model is loading; gave up after 2 tries" in busy.message


async def test_a_page_is_told_by_its_text() -> None:
    busy, _ = await failing([HTML], max_tries=1)

    assert "the reply is no JSON: 502 Bad gateway; gave up after 1 try" in busy.message


async def test_a_time_out_is_tried_again_and_names_its_limit() -> None:
    busy, asked = await failing([HANG, HANG], max_tries=2, timeout_s=0.2)

    assert type(busy) is ModelBusy
    assert "no answer within 0.2 s (timeout_s)" in busy.message
    assert asked == 2


async def test_nobody_there_is_busy_and_says_where() -> None:
    with OpenAIServer() as server:
        url = server.url
    endpoint = ModelEndpoint(name="m", base_url=url)
    waits = Waits()
    model = OpenAIChatModel(OpenAIChatParameters(max_tries=3), endpoint, sleep=waits)
    with pytest.raises(ModelBusy, match="no connection: .*gave up after 3 tries") as caught:
        await model.complete(asking())
    await model.close()

    assert "base URL" in caught.value.hint
    assert len(waits) == 2


@pytest.mark.parametrize(("told", "least", "most"), [("7", 7, 7.7), ("0", 0, 2), ("3600", 20, 20), ("soon", 0, 2)])
async def test_retry_after_is_honoured_within_our_bound(told: str, least: float, most: float) -> None:
    script = [error(429, "slow", headers={"retry-after": told}), Reply("well")]
    async with served(script, max_wait_s=20) as (model, _, waits):
        await model.complete(asking())

    assert least <= waits[0] <= most


async def test_retry_after_may_be_a_date() -> None:
    when = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    async with served([error(503, "x", headers={"Retry-After": when}), Reply("well")]) as (model, _, waits):
        await model.complete(asking())

    assert 20 < waits[0] <= 33


async def test_the_time_of_all_tries_is_bounded_too() -> None:
    async with served([HANG] * 9, max_tries=9, timeout_s=0.3, total_retry_s=0.2) as (model, server, _):
        with pytest.raises(ModelBusy, match="gave up after 1 try"):
            await model.complete(asking())

    assert len(server.calls) == 1


async def test_each_retry_is_one_event() -> None:
    with capture_logs() as logs:
        async with served([error(503, "x")] * 2 + [Reply("well")], price={"input": 1, "output": 1}) as (model, _, _):
            await model.complete(asking())

    assert [(entry["event"], entry["call"], entry["tries"]) for entry in logs] == [
        ("call.retried", "model.complete", 1),
        ("call.retried", "model.complete", 2),
    ]


# What is not


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 413, 422, 501])
async def test_a_refusal_is_not_tried_again(status: int) -> None:
    refused, asked = await failing([error(status, "that is not allowed")] * 3)

    assert type(refused) is ModelRefused
    assert asked == 1
    assert f"HTTP {status}: that is not allowed" in refused.message


@pytest.mark.parametrize(("status", "hint"), [(401, "--model-api-key"), (404, "/v1"), (400, "--model-params")])
async def test_a_refusal_has_a_hint(status: int, hint: str) -> None:
    refused, _ = await failing([error(status, "no")])

    assert hint in refused.hint


@pytest.mark.parametrize("vendor", CONTEXT_ERRORS)
async def test_a_conversation_that_is_too_long_is_told_at_once(vendor: str) -> None:
    too_long, asked = await failing([CONTEXT_ERRORS[vendor]] * 3)

    assert type(too_long) is ContextExceeded
    assert asked == 1


async def test_max_tokens_beyond_the_window_is_a_setting_and_no_long_conversation() -> None:
    refused, _ = await failing([CONTEXT_ERRORS["vllm"]], max_tokens=4096)

    assert type(refused) is ModelRefused
    assert "max_tokens is 4096" in refused.hint


async def test_a_reply_limit_that_the_model_does_not_have_is_refused() -> None:
    words = "max_tokens is too large: 100000. This model supports at most 16384 completion tokens."
    refused, _ = await failing([error(400, words, code="invalid_value")], max_tokens=100_000)

    assert type(refused) is ModelRefused


@pytest.mark.parametrize("vendor", BUDGET_ERRORS)
async def test_an_empty_account_is_told_at_once(vendor: str) -> None:
    spent, asked = await failing([BUDGET_ERRORS[vendor]] * 3)

    assert type(spent) is BudgetSpent
    assert asked == 1


async def test_a_request_larger_than_the_limit_per_minute_is_refused() -> None:
    refused, asked = await failing([error(429, "Request too large for m on tokens per min (TPM): Limit 6000")] * 2)

    assert type(refused) is ModelRefused
    assert asked == 1


@pytest.mark.parametrize(
    "body",
    [
        {"error": "plain words"},
        {"message": "plain words"},
        {"detail": "plain words"},
        {"detail": [{"loc": ["body"], "msg": "plain words"}]},
        [{"error": {"message": "plain words"}}],
        {"error": {"message": "Provider returned error", "metadata": {"raw": "plain words"}}},
    ],
)
async def test_the_words_of_a_refusal_are_found_in_any_dialect(body: Any) -> None:
    refused, _ = await failing([raw_error(400, body)])

    assert "plain words" in refused.message


async def test_a_long_refusal_is_cut() -> None:
    refused, _ = await failing([error(400, "x" * 1_000_000)])

    assert len(refused.message) < 700


# Secrets


def everything_in(exc: BaseException) -> str:
    return "".join(traceback.format_exception(exc))


async def test_a_key_that_the_endpoint_repeats_is_masked() -> None:
    secret = "header-secret-value"
    refused, _ = await failing([echo_key], extra_headers={"x-other": secret})

    assert "***" in refused.message
    assert KEY not in everything_in(refused)
    assert secret not in everything_in(refused)


async def test_a_key_in_a_page_or_a_retried_error_is_masked() -> None:
    page = Raw(f"<p>bad key {KEY}</p>".encode(), 200, {"content-type": "text/html"})
    with capture_logs() as logs:
        busy, _ = await failing(
            [page, error(500, f"key {KEY}"), Reply(payload={"choices": [], "key": KEY})], max_tries=3
        )

    assert KEY not in everything_in(busy)
    assert KEY not in json.dumps(logs, default=str)


async def test_a_password_in_the_url_is_sent_and_never_shown() -> None:
    with OpenAIServer([error(404, "nothing here")]) as server:
        url = server.url.replace("://", "://me:hidden-word@")
        model = OpenAIChatModel(OpenAIChatParameters(), ModelEndpoint(name="m", base_url=url), sleep=Waits())
        with pytest.raises(ModelRefused) as caught:
            await model.complete(asking())
        await model.close()

    assert server.calls[0].headers["authorization"].startswith("Basic ")
    assert "hidden-word" not in str(caught.value)


# Many at once, and the end


async def test_hundreds_of_calls_run_side_by_side() -> None:
    calls = 200
    with OpenAIServer(lambda _: Reply("ok"), delay_s=0.5) as server:
        model = OpenAIChatModel(OpenAIChatParameters(), ModelEndpoint(name="m", base_url=server.url), sleep=Waits())
        responses = await asyncio.gather(*(model.complete(asking()) for _ in range(calls)))
        await model.close()

    assert {response.message.content for response in responses} == {"ok"}
    assert len(server.calls) == calls


async def test_a_cancelled_call_is_not_tried_again() -> None:
    arrived, loop = asyncio.Event(), asyncio.get_running_loop()

    def hang(_: Call) -> Answer:
        loop.call_soon_threadsafe(arrived.set)
        return HANG

    async with served(hang) as (model, server, waits):
        task = asyncio.create_task(model.complete(asking()))
        await arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert len(server.calls) == 1
    assert waits == []


async def test_a_cancelled_wait_ends_at_once() -> None:
    waiting = asyncio.Event()

    async def endless(_: float) -> None:
        waiting.set()
        await asyncio.Event().wait()

    with OpenAIServer(lambda _: error(503, "x")) as server:
        model = OpenAIChatModel(OpenAIChatParameters(), ModelEndpoint(name="m", base_url=server.url), sleep=endless)
        task = asyncio.create_task(model.complete(asking()))
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await model.close()

    assert len(server.calls) == 1


async def test_closing_twice_is_harmless() -> None:
    async with served([]) as (model, _, _):
        await model.close()
