"""A Docker engine that answers as a test says, over HTTP."""

import json
import re
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

VERSION = {"ApiVersion": "1.41", "Version": "20.10", "Os": "linux", "Arch": "amd64"}
CORES = 2


@dataclass
class Ran:
    """What became of a command."""

    marked: bool = True
    """Whether the lines that end its streams arrived."""
    running: bool = False
    code: int | None = 0
    hold: threading.Event | None = None
    """Its streams end when this is set."""
    refused: bool = False
    printed: bytes = b""
    """On stdout, before the line that ends it."""


@dataclass
class FakeEngine:
    """Answers by `METHOD /path` (without the version), the first whose pattern fits; commands by their words."""

    url: str = ""
    answers: list[tuple[str, Callable[["Request"], None]]] = field(default_factory=list)
    commands: Callable[[list[str]], Ran] = lambda words: Ran()
    calls: list[str] = field(default_factory=list)
    executed: list[list[str]] = field(default_factory=list)

    def on(self, pattern: str, answer: Callable[["Request"], None]) -> None:
        self.answers.insert(0, (pattern, answer))


class Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: FakeEngine

    def _handle(self) -> None:
        call = f"{self.command} {re.sub(r'^/v[0-9.]+', '', self.path.partition('?')[0])}"
        self.fake.calls.append(call)
        for pattern, answer in self.fake.answers:
            if re.fullmatch(pattern, call):
                answer(self)
                return
        self.say({"message": f"no answer to {call}"}, 404)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _handle

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def say(self, told: Any, status: int = 200) -> None:
        """A whole answer."""
        data = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def begin(self, **headers: str) -> None:
        """An answer that ends with the connection."""
        self.send_response(200)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Connection", "close")
        self.end_headers()

    def wait_for_close(self, limit_s: float) -> bool:
        """Whether the caller let go within the limit; what it sends is read slowly."""
        self.connection.settimeout(limit_s)
        try:
            while self.connection.recv(1024):
                pass
        except TimeoutError:
            return False
        except OSError:
            pass
        self.close_connection = True
        return True

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def serving() -> Iterator[FakeEngine]:
    fake = FakeEngine()
    handler = type("Handler", (Request,), {"fake": fake})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    server.block_on_close = False
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    fake.url = f"tcp://127.0.0.1:{server.server_port}"
    fake.on("GET /version", lambda request: request.say(VERSION))
    fake.on("GET /info", lambda request: request.say({"NCPU": CORES}))
    fake.on("GET /containers/[^/]+/json", lambda request: request.say({"State": {"Running": True}}))
    _serve_commands(fake)
    yield fake
    server.shutdown()
    thread.join()
    server.server_close()


def _serve_commands(fake: FakeEngine) -> None:
    ran: list[Ran] = []

    def create(request: Request) -> None:
        words = json.loads(request.body())["Cmd"]
        nonce = "".join(words[4:5])
        fake.executed.append(words)
        ran.append(fake.commands(words))
        if ran[-1].refused:
            request.say({"message": "refused"}, 500)
        else:
            request.say({"Id": f"{len(ran) - 1}x{nonce[:32]}"}, 201)

    def start(request: Request) -> None:
        request.body()
        index, _, nonce = request.path.split("/")[-2].partition("x")
        one = ran[int(index)]
        request.begin()
        if one.hold is not None:
            request.wfile.flush()
            one.hold.wait(30)
        line = f"{nonce}:{one.code}\n".encode() if one.marked else b""
        for kind, data in ((1, one.printed + line), (2, line)):
            if data:
                request.wfile.write(struct.pack(">BxxxL", kind, len(data)) + data)

    def inspect(request: Request) -> None:
        one = ran[int(request.path.split("/")[-2].partition("x")[0])]
        request.say({"Running": one.running, "ExitCode": one.code, "Pid": 1})

    fake.on("POST /containers/[^/]+/exec", create)
    fake.on("POST /exec/[^/]+/start", start)
    fake.on("GET /exec/[^/]+/json", inspect)
