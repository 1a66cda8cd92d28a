"""Any endpoint that speaks OpenAI's chat completions: OpenAI, Azure, routers, and servers of one's own."""

import asyncio
import json
import ssl
import time
from collections.abc import Iterator
from typing import Any, ClassVar

import structlog
from openai import (
    DEFAULT_CONNECTION_LIMITS,
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    AsyncOpenAI,
    DefaultAsyncHttpxClient,
    Timeout,
)
from pydantic import Field, JsonValue, SecretStr, field_validator
from tenacity.wait import wait_random_exponential

from ...domain.errors import AgentCompassError, ModelBusy, ModelRefused
from ...domain.model import ModelEndpoint, ModelRequest, ModelResponse, Price, Usage
from ...domain.redaction import Redactor
from ...domain.value import Parameters as AdapterParameters
from ..support.retrying import Sleep, WaitAsTold, retrying
from .openai_address import NO_KEY, checked_headers, read_address, read_key
from .openai_errors import Busy, cut, one_line, read_refusal, refusal, retry_after_s
from .openai_wire import Answer, read_answer, request_body

log = structlog.get_logger()

_BAD_GATEWAY = 502
_NO_SCORE: dict[str, JsonValue] = {"identity": False}
_SAMPLING = (
    "temperature",
    "top_p",
    "max_tokens",
    "max_completion_tokens",
    "seed",
    "stop",
    "presence_penalty",
    "frequency_penalty",
    "reasoning_effort",
    "parallel_tool_calls",
)


class OpenAIChatParameters(AdapterParameters):
    """`model.params`. A sampling parameter that is None is not sent: the endpoint's own default holds."""

    temperature: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    top_p: float | None = Field(default=None, ge=0, le=1)
    max_tokens: int | None = Field(default=None, gt=0)
    """Longest reply in tokens; OpenAI's newer models want `max_completion_tokens` instead."""
    max_completion_tokens: int | None = Field(default=None, gt=0)
    """Longest reply in tokens, reasoning included."""
    seed: int | None = None
    stop: str | tuple[str, ...] | None = None
    """Texts at which the reply ends."""
    presence_penalty: float | None = Field(default=None, allow_inf_nan=False)
    frequency_penalty: float | None = Field(default=None, allow_inf_nan=False)
    reasoning_effort: str | None = None
    """As the endpoint names its levels: `low`, `medium`, `high`, ..."""
    parallel_tool_calls: bool | None = None
    """Whether one reply may call several tools; sent only with tools."""
    send_reasoning: bool = False
    """Send the reasoning of earlier replies back, as `reasoning_content` (some endpoints want it, others refuse it)."""
    extra_body: dict[str, JsonValue] = Field(default_factory=dict)
    """Further keys of the request's JSON (`top_k`, `chat_template_kwargs`, a router's options), over all others."""
    extra_headers: dict[str, SecretStr] = Field(default_factory=dict, json_schema_extra=_NO_SCORE)
    """Further headers; their values count as secrets."""
    timeout_s: float = Field(default=600, gt=0, json_schema_extra=_NO_SCORE)
    """One try, from its start to its reply's last byte."""
    connect_timeout_s: float = Field(default=15, gt=0, json_schema_extra=_NO_SCORE)
    max_tries: int = Field(default=8, ge=1, json_schema_extra=_NO_SCORE)
    """Tries of one call, on 429, 5xx, time-outs and lost connections."""
    max_wait_s: float = Field(default=60, ge=0, json_schema_extra=_NO_SCORE)
    """Longest wait between two tries, whatever the endpoint's Retry-After says."""
    total_retry_s: float = Field(default=900, ge=0, json_schema_extra=_NO_SCORE)
    """Once a call has taken this long no further try is planned; one that runs may end."""
    price: Price | None = None
    """Of this model. Without it (and without its line in `prices`) cost is unknown, which is null."""
    prices: dict[str, Price] = Field(default_factory=dict)
    """Model name -> price, for a table that serves several models."""

    @field_validator("extra_body")
    @classmethod
    def _no_other_protocol(cls, value: dict[str, JsonValue]) -> dict[str, JsonValue]:
        for name in ("messages", "tools", "stream"):
            if name in value:
                raise ValueError(f"{name!r} is not for extra_body to set")
        return value

    @field_validator("extra_headers")
    @classmethod
    def _sendable(cls, value: dict[str, SecretStr]) -> dict[str, SecretStr]:
        return checked_headers(value)


class OpenAIChatModel:
    """Any endpoint that speaks OpenAI's chat completions.

    One client for all attempts. Built without contacting anything; `sleep` waits between tries.
    """

    Parameters: ClassVar[type[AdapterParameters]] = OpenAIChatParameters

    def __init__(
        self, parameters: OpenAIChatParameters, endpoint: ModelEndpoint, *, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._parameters = parameters
        self._endpoint = endpoint
        self._sleep = sleep
        self._price = parameters.price or parameters.prices.get(endpoint.name)
        self._warned: set[str] = set()
        address, key = read_address(endpoint.base_url), read_key(endpoint)
        headers = {name: value.get_secret_value().strip() for name, value in parameters.extra_headers.items()}
        self._where = f"model {endpoint.name!r} at {address.shown}"
        self._redactor = Redactor([*([] if key == NO_KEY else [key]), *headers.values(), *address.secrets])
        # The limits' class is httpx's or httpx2's, as the SDK's release has it.
        limits = type(DEFAULT_CONNECTION_LIMITS)(max_connections=None, max_keepalive_connections=1000)
        self._client = AsyncOpenAI(
            api_key=key,
            base_url=address.url,
            default_query=address.query or None,
            max_retries=0,
            timeout=Timeout(parameters.timeout_s, connect=parameters.connect_timeout_s),
            http_client=DefaultAsyncHttpxClient(limits=limits),
        )
        # The SDK takes these from its own environment variables; ours are the settings.
        self._client.organization = self._client.project = None
        self._client._custom_headers = headers

    @property
    def name(self) -> str:
        """As the user gave it."""
        return self._endpoint.name

    @property
    def price(self) -> Price | None:
        """`price`, or this model's line in `prices`."""
        return self._price

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """As the port promises; an empty reply is returned as it is."""
        body = self._body(request)
        started, tries = time.monotonic(), 0

        async def once() -> ModelResponse:
            nonlocal tries
            tries += 1
            return await self._once(body, len(request.messages))

        policy = self._parameters
        wait = WaitAsTold(wait_random_exponential(multiplier=1, max=policy.max_wait_s), max_wait_s=policy.max_wait_s)
        retry = retrying(
            "model.complete", tries=policy.max_tries, total_s=policy.total_retry_s, wait=wait, sleep=self._sleep
        )
        try:
            return await retry(once)
        except Busy as exc:
            elapsed_s = time.monotonic() - started
            told = f"{exc.message}; gave up after {tries} {'try' if tries == 1 else 'tries'} in {elapsed_s:.1f} s"
            raise ModelBusy(told, hint=exc.hint or "raise max_tries or total_retry_s, or lower concurrency") from exc

    async def close(self) -> None:
        """Let connections go."""
        await self._client.close()

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        settings: dict[str, Any] = {name: getattr(self._parameters, name) for name in _SAMPLING}
        if not request.tools:
            settings["parallel_tool_calls"] = None
        return request_body(self.name, request.messages, request.tools, settings, self._parameters.send_reasoning)

    async def _once(self, body: dict[str, Any], conversation_length: int) -> ModelResponse:
        limit_s = self._parameters.timeout_s
        started = time.monotonic()
        try:
            async with asyncio.timeout(limit_s):
                text = await self._post(body)
        except TimeoutError as exc:
            raise Busy(f"{self._where}: no answer within {limit_s:g} s (timeout_s)") from exc
        latency_s = time.monotonic() - started
        answer = self._read(text, conversation_length)
        usage = self._priced(answer.usage)
        return ModelResponse(
            message=answer.message,
            usage=usage,
            finish_reason=answer.finish_reason,
            latency_s=latency_s,
            model=answer.model,
        )

    async def _post(self, body: dict[str, Any]) -> bytes:
        named = ("model", "messages")
        rest = {name: value for name, value in body.items() if name not in named} | self._parameters.extra_body
        create: Any = self._client.chat.completions.with_raw_response.create  # typed for OpenAI's own keys only
        try:
            reply = await create(**{name: body[name] for name in named}, extra_body=rest)
        except APIStatusError as exc:
            exc.args = (self._redactor.text(str(exc)),)  # a traceback shows it
            raise self._refusal(exc.status_code, exc.response.text, retry_after_s(exc.response.headers)) from exc
        except APITimeoutError as exc:
            raise self._timed_out(exc) from exc
        except APIConnectionError as exc:
            raise self._unreachable(exc) from exc
        content: bytes = reply.content
        return content

    def _read(self, body: bytes, conversation_length: int) -> Answer:
        """The answer in a reply of status 200, whose body may be anything all the same."""
        text = body.decode("utf-8", "replace")
        try:
            payload: Any = json.loads(text)
        except (ValueError, RecursionError) as exc:
            raise Busy(f"{self._where}: the reply is no JSON: {self._snippet(read_refusal(text).text)}") from exc
        payload = payload if isinstance(payload, dict) else {}
        answer = read_answer(payload, conversation_length)
        error = _error_within(payload)
        if error is not None and (answer is None or answer.finish_reason == "error"):
            code = error.get("code")
            status = code if isinstance(code, int) and 400 <= code < 600 else _BAD_GATEWAY
            raise self._refusal(status, json.dumps({"error": error}), None)
        if answer is None:
            raise Busy(f"{self._where}: the reply has no message: {self._snippet(text)}")
        return answer

    def _refusal(self, status: int, body: str, wait_s: float | None) -> AgentCompassError:
        told = read_refusal(body)
        message = f"{self._where}: HTTP {status}: {self._snippet(told.text) or 'no message'}"
        limit = self._parameters.max_completion_tokens or self._parameters.max_tokens
        return refusal(message, status, told, max_tokens=limit, wait_s=wait_s)

    def _timed_out(self, exc: APITimeoutError) -> Busy:
        name = "connect_timeout_s" if "Connect" in type(exc.__cause__).__name__ else "timeout_s"
        what = "no connection" if name == "connect_timeout_s" else "no answer"
        return Busy(f"{self._where}: {what} within {getattr(self._parameters, name):g} s ({name})")

    def _unreachable(self, exc: APIConnectionError) -> AgentCompassError:
        causes = list(_causes(exc))
        reason = self._snippet(str(causes[0])) if causes else ""
        message = f"{self._where}: no connection: {reason or type(causes[0] if causes else exc).__name__}"
        if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
            return ModelRefused(message, hint="the certificate is not trusted: set SSL_CERT_FILE to its authority's")
        return Busy(message, hint="is the endpoint up, and the base URL right?")

    def _snippet(self, text: str) -> str:
        return cut(self._redactor.text(one_line(text)))

    def _priced(self, usage: Usage) -> Usage:
        if self._price is None:
            self._warn_once("model.price_unknown", hint="set price in --model-params; cost is null until then")
            return usage
        cost = self._price.cost_usd(usage)
        if cost is None:
            self._warn_once("model.usage_unknown", hint="the endpoint tells no token counts; cost is null")
        return usage.model_copy(update={"cost_usd": cost})

    def _warn_once(self, event: str, *, hint: str) -> None:
        if event not in self._warned:
            self._warned.add(event)
            log.warning(event, model=self.name, hint=hint)


def _error_within(payload: dict[str, Any]) -> dict[str, Any] | None:
    """The error that a router reports in a reply of status 200, beside or inside the first choice."""
    choices = payload.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    for holder in (payload, first):
        error = holder.get("error") if isinstance(holder, dict) else None
        if error:
            return error if isinstance(error, dict) else {"message": str(error)}
    return None


def _causes(exc: BaseException) -> Iterator[BaseException]:
    cause = exc.__cause__ or exc.__context__
    seen = {id(exc)}
    while cause is not None and id(cause) not in seen:
        yield cause
        seen.add(id(cause))
        cause = cause.__cause__ or cause.__context__
