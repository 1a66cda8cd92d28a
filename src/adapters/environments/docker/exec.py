"""One `docker exec`, read from its first byte to its end marker in a thread."""

import struct
import time
from collections.abc import Sequence
from typing import Any

from docker import APIClient

from ...support.shell_supervision import MARK_VARIABLE, Mark
from ...support.streams import EndMarker
from ...support.supervised_commands import SupervisedRun
from .engine import CutableStream, checked

_CHUNK_BYTES = 64 * 1024
_HEADER_BYTES = 8
_STDOUT, _STDERR = 1, 2


class DockerExec(SupervisedRun):
    """A command in a container. `run` blocks; everything else may be called from other threads."""

    def __init__(
        self, container: str, argv: Sequence[str], *, mark: Mark, env: dict[str, str], user: str, max_output_bytes: int
    ) -> None:
        super().__init__(mark, max_output_bytes)
        self.started_at: float | None = None
        """Clock of the event loop's `time.monotonic`, when the engine was told to start it."""
        self.ended_at: float | None = None
        self.inspected: dict[str, Any] | None = None
        """What the engine says of it; only when its streams ended without the end marker, or not at all."""
        self.stream = CutableStream()
        self.abandoned = False
        """Set from outside: it is not started any more."""
        self._id = ""
        self._container, self._argv, self._user = container, list(argv), user
        self._env = {**env, MARK_VARIABLE: mark.name}

    @property
    def elapsed_s(self) -> float:
        """Seconds from its start to its end, or until now."""
        return 0.0 if self.started_at is None else (self.ended_at or time.monotonic()) - self.started_at

    @property
    def process_code(self) -> int | None:
        """Of its first process, as the engine told; None where it was not asked or does not tell."""
        return self.inspected.get("ExitCode") if self.inspected else None

    @property
    def never_ran(self) -> bool:
        """Whether the engine could not start it; `stdout` then tells why."""
        return self.inspected is not None and not self.inspected.get("Running") and not self.inspected.get("Pid")

    def run(self, client: APIClient) -> None:
        """Start it and read until it has ended or the stream was cut. Raises what docker and requests raise."""
        created = client.exec_create(
            self._container, self._argv, environment=self._env, user=self._user, workdir="/", stdin=False
        )
        self._id = created["Id"]
        if self.abandoned:
            return
        self.started_at = time.monotonic()
        # Without the headers that ask for an upgrade: a plain response, whose own buffer holds what came with the
        # header. docker-py reads the bare socket behind that buffer, and loses short outputs.
        url = f"{client.base_url}/v{client.api_version}/exec/{self._id}/start"
        body = {"Detach": False, "Tty": False}
        response = checked(client.post(url, json=body, stream=True, timeout=client.timeout))
        self.stream.attach(response)
        try:
            self._read(response.raw)
        finally:
            self.ended_at = time.monotonic()
            self.stream.close()
        if not self.ended_by_marker and not self.stream.is_cut:
            self.inspected = _inspected_end(client, self._id)

    def ask_end(self, client: APIClient) -> bool:
        """Whether the engine says that it has ended, whatever its streams say. Blocks, and raises as `run` does."""
        found: dict[str, Any] = client.exec_inspect(self._id)
        if not found.get("Running"):
            self.inspected = found
        return self.inspected is not None

    def _read(self, raw: Any) -> None:
        frames = _Frames({_STDOUT: self.ends[0], _STDERR: self.ends[1]})
        read_some = raw.read1 if hasattr(raw, "read1") else raw._fp.read1  # urllib3 1.26 has none of its own
        while not self.ended_by_marker:
            chunk = read_some(_CHUNK_BYTES)
            if not chunk:
                break
            frames.feed(chunk)
        for end in self.ends:
            end.close()


def _inspected_end(client: APIClient, exec_id: str) -> dict[str, Any]:
    # The engine may see a process's streams end a moment before the process itself.
    for _ in range(20):
        found: dict[str, Any] = client.exec_inspect(exec_id)
        if not found.get("Running"):
            break
        time.sleep(0.05)
    return found


class _Frames:
    # The engine's multiplexed stream: kind, three zeros, length (big endian), then that many bytes.

    def __init__(self, sinks: dict[int, EndMarker]) -> None:
        self._sinks = sinks
        self._sink: EndMarker | None = None
        self._header = bytearray()
        self._left = 0

    def feed(self, chunk: bytes) -> None:
        view = memoryview(chunk)
        while view:
            view = self._payload(view) if self._left else self._header_part(view)

    def _payload(self, view: memoryview) -> memoryview:
        part = view[: self._left]
        self._left -= len(part)
        if self._sink is not None:
            self._sink.feed(part)
        return view[len(part) :]

    def _header_part(self, view: memoryview) -> memoryview:
        part = view[: _HEADER_BYTES - len(self._header)]
        self._header += part
        if len(self._header) == _HEADER_BYTES:
            kind, self._left = struct.unpack(">BxxxL", self._header)
            self._sink = self._sinks.get(kind)
            self._header.clear()
        return view[len(part) :]
