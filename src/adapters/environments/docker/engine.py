"""The connection to a Docker engine: one client, its own threads, and streams that can be cut from outside."""

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import requests
from docker import APIClient
from docker.errors import DockerException, create_api_error_from_http_exception
from docker.transport import UnixHTTPAdapter

from ....domain.errors import SandboxStartFailed
from ....domain.one_line import one_line
from .endpoint import Endpoint, resolve_endpoint
from .errors import explanation

T = TypeVar("T")

_reader = threading.local()

_SHORT_CALLS = 64
_LONG_CALLS = 1024
_POOLED_CONNECTIONS = 128


class DockerEngine:
    """Connects at the first call. Short calls and long ones (commands, copies, pulls) have threads of their own each,
    so that no start and no removal waits for a thread that those hold.
    """

    def __init__(self, host: str | None, context: str | None, timeout_s: float) -> None:
        self._host, self._context, self._timeout_s = host, context, timeout_s
        self._lock = threading.Lock()
        self._client: APIClient | None = None
        self._short: ThreadPoolExecutor | None = None
        self._long: ThreadPoolExecutor | None = None
        self._streams: set[CutableStream] = set()

    def endpoint(self) -> Endpoint:
        """Where the engine is to be found. Raises ConfigError as `resolve_endpoint`."""
        return resolve_endpoint(self._host, self._context, os.environ)

    def call(self, function: Callable[[APIClient], T]) -> asyncio.Future[T]:
        """Run `function` with the client in a thread; what docker or requests raise is raised as it is.

        Raises:
            SandboxStartFailed: the engine cannot be reached.
        """
        if self._short is None:
            self._short = ThreadPoolExecutor(_SHORT_CALLS, "docker")
        return asyncio.get_running_loop().run_in_executor(self._short, lambda: function(self._connected()))

    def long_call(self, function: Callable[[APIClient], T]) -> asyncio.Future[T]:
        """As `call`, for what may take as long as a command, a copy or a pull."""
        if self._long is None:
            self._long = ThreadPoolExecutor(_LONG_CALLS, "docker-stream")
        return asyncio.get_running_loop().run_in_executor(self._long, lambda: function(self._connected()))

    @contextmanager
    def watched(self, stream: "CutableStream") -> Iterator[None]:
        """While this is open, `close` cuts the stream."""
        self._streams.add(stream)
        try:
            yield
        finally:
            self._streams.discard(stream)

    async def close(self) -> None:
        """Cut what still streams and let connections go; the next call connects anew."""
        for stream in tuple(self._streams):
            stream.cut()
        for pool in (self._short, self._long):
            if pool is not None:
                pool.shutdown(wait=False, cancel_futures=True)
        self._short = self._long = None
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _connected(self) -> APIClient:
        with self._lock:
            if self._client is None:
                self._client = connect(self.endpoint(), self._timeout_s)
            return self._client


def connect(endpoint: Endpoint, timeout_s: float) -> APIClient:
    """A client that speaks the engine's version of the API. Blocks.

    Raises:
        SandboxStartFailed: no engine answers there.
    """
    try:
        if endpoint.socket is not None:
            _knock(endpoint.socket, timeout_s)
        client = APIClient(
            base_url=endpoint.url,
            version="auto",
            timeout=max(1, round(timeout_s)),
            tls=endpoint.tls,
            use_ssh_client=endpoint.url.startswith("ssh://"),
            max_pool_size=_POOLED_CONNECTIONS,
        )
    except (DockerException, requests.RequestException, OSError, ValueError) as exc:  # ValueError: no such URL
        message = f"no Docker engine answers at {endpoint.url!r} ({endpoint.origin}): {_cause(exc)}"
        raise SandboxStartFailed(message, hint=_next_step(endpoint, exc)) from exc
    client.headers["Accept-Encoding"] = "identity"
    client.hooks["response"].append(_hand_to_reader)
    if endpoint.socket is not None:
        client.trust_env = False
        adapter = _OnePoolAdapter(f"http+unix://{endpoint.socket}", client.timeout, max_pool_size=_POOLED_CONNECTIONS)
        client.mount("http+docker://", adapter)
    return client


def _knock(path: Path, timeout_s: float) -> None:
    # docker-py leaves the socket of a connection that failed to the garbage collector, with a warning.
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.settimeout(timeout_s)
        caller.connect(str(path))


def _cause(error: BaseException) -> str:
    # What the system said where it said something, without the tale of docker, requests and urllib3 around it.
    said = explanation(error)
    one: BaseException | None = error
    while one is not None:
        if isinstance(one, OSError) and one.strerror:
            said = one_line(one.strerror)
        one = one.__cause__ or one.__context__
    return said


def _next_step(endpoint: Endpoint, error: BaseException) -> str:
    if endpoint.socket is not None and isinstance(error, PermissionError):
        return f"you may not use {str(endpoint.socket)!r}: join its group, or use another engine with DOCKER_HOST"
    return "start Docker, or name another engine with DOCKER_HOST or `docker context use`"


class _OnePoolAdapter(UnixHTTPAdapter):
    # docker-py keys its pools by the whole URL, so that no connection is ever used twice for calls on other objects.

    def get_connection(self, url: Any, proxies: Any = None) -> Any:
        return super().get_connection("http+docker://localhost", proxies)


def checked(response: requests.Response) -> requests.Response:
    """The response itself, or docker's APIError for a status that tells of a failure."""
    try:
        response.raise_for_status()
    except requests.HTTPError as exc:
        with response:
            create_api_error_from_http_exception(exc)
    return response


@contextmanager
def responses_to(stream: "CutableStream") -> Iterator[None]:
    """Responses to what this thread asks for meanwhile go to `stream`; docker-py keeps those of its generators."""
    _reader.stream = stream
    try:
        yield
    finally:
        _reader.stream = None
        stream.close()


def _hand_to_reader(response: requests.Response, *_: Any, **__: Any) -> None:
    stream = getattr(_reader, "stream", None)
    if stream is not None and response.ok:
        stream.attach(response)


class CutableStream:
    """A response that is read in one thread and may be ended from another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._response: requests.Response | None = None
        self._socket: socket.socket | None = None
        self.is_cut = False

    def attach(self, response: requests.Response, *, patient: bool = True) -> None:
        """Take over `response`; `patient` lets reading it from now on last as long as it wants."""
        with self._lock:
            self._response = response
            self._socket = _socket_of(response)
            if self._socket is not None and patient:
                self._socket.settimeout(None)
            if self.is_cut:
                self._shut_down()

    def cut(self) -> None:
        """The reader sees the end of the stream, now or as soon as it begins."""
        with self._lock:
            self.is_cut = True
            self._shut_down()

    def close(self) -> None:
        """Let the connection go; called by the reader."""
        with self._lock:
            response, self._response, self._socket = self._response, None, None
        if response is not None:
            response.close()

    def _shut_down(self) -> None:
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        elif self._response is not None:
            self._response.close()


def _socket_of(response: requests.Response) -> socket.socket | None:
    found: Any = response.raw
    for name in ("_fp", "fp", "raw", "_sock"):
        found = getattr(found, name, None)
    return found if hasattr(found, "shutdown") and hasattr(found, "settimeout") else None
