"""A local HTTP server that speaks OpenAI's chat completions from a script, with every fault that endpoints have.

In a test: `with OpenAIServer([Reply("hello"), error(429, "slow down"), RESET]) as server:` and give `server.url` as the
base URL; `server.calls` has what was asked. By hand:

    python tests/integration/openai_server.py --port 8000 --script replies.json
    python tests/integration/openai_server.py --port 8000 --replay RUN_DIR

A script is a JSON list: a reply {"content", "tool_calls", "reasoning_content", "finish_reason", "usage"}, an error
{"status", "message", "code", "headers"}, or {"fault": NAME} (see FAULTS), each with an optional "times".
"""

import argparse
import asyncio
import json
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

from agentcompass.adapters.models.replay import ReplayModel, ReplayParameters
from agentcompass.domain.errors import AgentCompassError
from agentcompass.domain.model import Message, ModelEndpoint, ModelRequest, ToolCall

DEFAULT_USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}


@dataclass(frozen=True)
class Call:
    """One request as it came."""

    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: Any
    at: float


@dataclass(frozen=True)
class Reply:
    """An assistant message, and what is told of it. `message` and `payload` add keys to the JSON, or replace them."""

    content: str | None = ""
    tool_calls: Sequence[Mapping[str, Any]] | None = None
    reasoning_content: str | None = None
    finish_reason: str | None = None
    usage: Mapping[str, Any] | None = field(default_factory=lambda: DEFAULT_USAGE)
    message: Mapping[str, Any] = field(default_factory=dict)
    payload: Mapping[str, Any] = field(default_factory=dict)

    def bytes(self, model: str) -> bytes:
        """The response's body."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.tool_calls:
            message["tool_calls"] = [dict(call) for call in self.tool_calls]
        if self.reasoning_content is not None:
            message["reasoning_content"] = self.reasoning_content
        reason = self.finish_reason or ("tool_calls" if self.tool_calls else "stop")
        choice = {"index": 0, "message": {**message, **self.message}, "finish_reason": reason}
        body = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": model, "choices": [choice]}
        return json.dumps({**body, "usage": self.usage, **self.payload}).encode()


@dataclass(frozen=True)
class Raw:
    """Any HTTP response."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "application/json"})


@dataclass(frozen=True)
class Broken:
    """No proper response: `reset` the connection, `hang` until the server closes, or send `half` a body."""

    how: str


RESET, HANG, HALF = Broken("reset"), Broken("hang"), Broken("half")
HTML = Raw(
    b"<html><head><title>502</title><style>p {color: red}</style></head><body><p>Bad gateway</p></body></html>",
    headers={"content-type": "text/html"},
)
Answer: TypeAlias = Reply | Raw | Broken
Script: TypeAlias = Sequence["Answer | Callable[[Call], Answer]"] | Callable[[Call], Answer]


def call(name: str, arguments: Any, call_id: str | None = "call_a") -> dict[str, Any]:
    """A tool call as OpenAI writes it; arguments that are no text are dumped."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    identity = {} if call_id is None else {"id": call_id}
    return {**identity, "type": "function", "function": {"name": name, "arguments": text}}


def error(
    status: int, message: str, *, code: str | None = None, kind: str | None = None, headers: Mapping[str, str] = {}
) -> Raw:
    """An error as OpenAI writes it."""
    body = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    return Raw(json.dumps(body).encode(), status, {"content-type": "application/json", **headers})


def raw_error(status: int, body: Any) -> Raw:
    """An error of another shape."""
    return Raw(json.dumps(body).encode(), status)


def echo_key(asked: Call) -> Answer:
    """A refusal that repeats the key it was sent."""
    sent = asked.headers.get("authorization", "")
    return error(401, f"Incorrect API key provided: {sent}. Headers were {json.dumps(asked.headers)}")


CONTEXT_ERRORS: dict[str, Raw] = {
    "openai": error(
        400,
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 130001 tokens.",
        code="context_length_exceeded",
        kind="invalid_request_error",
    ),
    "azure": raw_error(400, {"error": {"message": "Please shorten the input.", "code": "context_length_exceeded"}}),
    "vllm": raw_error(
        400,
        {
            "object": "error",
            "message": "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.",
            "type": "BadRequestError",
            "code": 400,
        },
    ),
    "vllm-prompt": error(400, "The decoder prompt (length 9000) is longer than the maximum model length of 8192."),
    "sglang": raw_error(
        400,
        {"object": "error", "message": "The input (10000 tokens) is longer than the model's context length (8192)."},
    ),
    "llama.cpp": error(
        400,
        "the request exceeds the available context size, try increasing it",
        kind="exceed_context_size_error",
    ),
    "tgi": raw_error(422, {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096."}),
    "anthropic": error(400, "prompt is too long: 210000 tokens > 200000 maximum", kind="invalid_request_error"),
    "gemini": raw_error(
        400,
        [{"error": {"code": 400, "message": "The input token count (2000000) exceeds the maximum number of tokens"}}],
    ),
    "mistral": raw_error(400, {"message": "Prompt contains 40000 tokens, too large for model with 32768 context"}),
    "xai": error(400, "This model's maximum prompt length is 131072 but the request contains 137000 tokens."),
    "moonshot": error(400, "Invalid request: Your request exceeded model token limit: 8192"),
    "dashscope": error(400, "Range of input length should be [1, 30720]", code="invalid_parameter_error"),
    "zhipu": raw_error(400, {"error": {"code": "1261", "message": "Prompt 超长"}}),
    "lmstudio": raw_error(400, {"error": "The model is loaded with context length of only 4096 tokens."}),
    "litellm": error(413, "ContextWindowExceededError: input is too long for requested model"),
    "llama-cpp-python": error(500, "Requested tokens (5000) exceed context window of 2048"),
}
BUDGET_ERRORS: dict[str, Raw] = {
    "openai": error(429, "You exceeded your current quota.", code="insufficient_quota", kind="insufficient_quota"),
    "deepseek": error(402, "Insufficient Balance"),
    "openrouter": error(402, "This request requires more credits, or fewer max_tokens."),
    "anthropic": error(400, "Your credit balance is too low to access the API."),
    "openai-limit": error(400, "Billing hard limit has been reached", code="billing_hard_limit_reached"),
    "litellm": error(400, "Budget has been exceeded! Current cost: 5.1, Max budget: 5.0", kind="budget_exceeded"),
    "zhipu": raw_error(429, {"error": {"code": "1113", "message": "您的账户余额不足,请充值"}}),
    "moonshot": error(429, "suspended, check your balance", kind="exceeded_current_quota_error"),
}
FAULTS: dict[str, Answer | Callable[[Call], Answer]] = {
    "reset": RESET,
    "hang": HANG,
    "half": HALF,
    "html": HTML,
    "echo_key": echo_key,
    "no_choices": Reply(payload={"choices": []}),
    "empty": Reply(""),
    "usage_null": Reply("ok", usage=None),
    "usage_zero": Reply("ok", usage={"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}),
    **{f"context:{vendor}": answer for vendor, answer in CONTEXT_ERRORS.items()},
    **{f"budget:{vendor}": answer for vendor, answer in BUDGET_ERRORS.items()},
}


class OpenAIServer:
    """Serves on 127.0.0.1 from enter to exit; `url` is the base URL, `calls` what was asked, in order.

    A list answers one call each; when it is used up, further calls are refused with status 400.
    """

    def __init__(self, script: Script = (), *, port: int = 0, path: str = "/v1", delay_s: float = 0) -> None:
        self.calls: list[Call] = []
        self.path = path
        self.delay_s = delay_s
        self.closing = threading.Event()
        self._script = script
        self._lock = threading.Lock()
        self._port = port
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """To be given as the base URL."""
        assert self._server is not None, "the server is not running"
        return f"http://127.0.0.1:{self._server.server_address[1]}{self.path}"

    def __enter__(self) -> Self:
        self._server = _Server(("127.0.0.1", self._port), _Handler)
        self._server.owner = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, at: TracebackType | None) -> None:
        self.closing.set()
        assert self._server is not None
        assert self._thread is not None
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, asked: Call) -> Answer:
        """What the script says to this call, which is logged."""
        with self._lock:
            number = len(self.calls)
            self.calls.append(asked)
        if callable(self._script):
            return self._script(asked)
        if number >= len(self._script):
            return error(400, f"the script has {len(self._script)} answers; this is call {number + 1}")
        scripted = self._script[number]
        return scripted(asked) if callable(scripted) else scripted


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024
    owner: OpenAIServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError | ValueError):  # the client went away, or we reset it
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: `OpenAIServer.calls` is the log."""

    def do_GET(self) -> None:
        self._send(Raw(json.dumps({"object": "list", "data": [{"id": "scripted", "object": "model"}]}).encode()))

    def do_POST(self) -> None:
        owner = self.server.owner
        text = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Call(self.path, headers, json.loads(text), time.monotonic())
        if self.path.partition("?")[0] != f"{owner.path}/chat/completions":
            self._send(error(404, f"no such path: {self.path}"))
            return
        owner.closing.wait(owner.delay_s)
        answer = owner.answer(asked)
        if isinstance(answer, Broken):
            self._break(answer.how)
        else:
            self._send(Raw(answer.bytes(asked.body["model"])) if isinstance(answer, Reply) else answer)

    def _send(self, raw: Raw, length: int | None = None) -> None:
        head = [f"HTTP/1.1 {raw.status} Scripted", f"content-length: {length or len(raw.body)}"]
        head += [f"{name}: {value}" for name, value in raw.headers.items()]
        self.wfile.write("\r\n".join([*head, "", ""]).encode() + raw.body)

    def _break(self, how: str) -> None:
        self.close_connection = True
        if how == "hang":
            self.server.owner.closing.wait()
        elif how == "half":
            self._send(Raw(b'{"choices": [{"mess'), length=1000)
        else:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()


def replaying(path: str) -> Callable[[Call], Answer]:
    """A script that answers from recordings, as the `replay` model does; what that refuses is an error 400."""
    model = ReplayModel(ReplayParameters(path=path), ModelEndpoint(name="replay"))
    lock = threading.Lock()

    def answer(asked: Call) -> Answer:
        request = ModelRequest(messages=tuple(map(_message, asked.body["messages"])))
        try:
            with lock:
                response = asyncio.run(model.complete(request))
        except AgentCompassError as exc:
            return error(400, str(exc))
        said = response.message
        return Reply(
            said.content,
            [call(it.name, it.arguments, it.id) for it in said.tool_calls],
            said.reasoning_content,
            response.finish_reason,
        )

    return answer


def _message(wire: Mapping[str, Any]) -> Message:
    calls = wire.get("tool_calls") or ()
    return Message(
        role=wire["role"],
        content=wire.get("content") or "",
        tool_call_id=wire.get("tool_call_id"),
        tool_calls=tuple(ToolCall(id=it["id"], **it["function"]) for it in calls),
    )


def read_script(text: str) -> list[Answer | Callable[[Call], Answer]]:
    """The script in a JSON text (see the module's docstring)."""
    script: list[Answer | Callable[[Call], Answer]] = []
    for entry in json.loads(text):
        times = entry.pop("times", 1)
        if "fault" in entry:
            script += [FAULTS[entry["fault"]]] * times
        elif "status" in entry:
            script += [error(entry.pop("status"), entry.pop("message", ""), **entry)] * times
        else:
            script += [Reply(**entry)] * times
    return script


def _main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--path", default="/v1", help="path of the base URL")
    parser.add_argument("--delay", type=float, default=0, help="seconds before each answer")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--script", type=Path, help="JSON list of answers")
    source.add_argument("--replay", help="recordings, as the replay model takes them")
    given = parser.parse_args()
    script: Script = replaying(given.replay) if given.replay else read_script(given.script.read_text("utf-8"))
    with OpenAIServer(script, port=given.port, path=given.path, delay_s=given.delay) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            sys.stdout.write(f"{len(server.calls)} calls\n")


if __name__ == "__main__":
    _main()
