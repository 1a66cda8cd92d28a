"""One command in a Modal sandbox, read from its first byte to its end."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import IO, Any, Protocol

import modal
from modal.container_process import ContainerProcess
from modal.io_streams import StreamReader
from modal.stream_type import StreamType

from ...support.shell_supervision import MARK_VARIABLE, Mark
from ...support.supervised_commands import FIRST_SIGNAL, SupervisedRun
from .errors import FAILURES

HELPER = {MARK_VARIABLE: "helper"}
"""Variables of our own commands: whoever kills a command by its marks sees that these are not its."""
NO_EXIT_CODE = -1
"""What the SDK gives in place of an exit code when its time limit was reached."""
_STDIN_PIECE_BYTES = 1024 * 1024
_START_LIMIT_S = 330.0
_LOOK_AFTER_S = 10.0
"""Between two questions whether a command is still there that says nothing."""
_GRACE_S = 15.0
"""For output that is still on its way when the command has ended: the SDK asks again for some ten seconds."""
_GRACE_OF_KILLED_S = 2.0
"""Where nothing is promised: a child of a killed supervisor may hold the streams for ever."""
_CALL_LIMIT_S = 15.0


class Sink(Protocol):
    """Takes a stream's bytes."""

    @property
    def ended(self) -> bool:
        """Whether it wants no more."""

    def feed(self, data: bytes) -> None:
        """The next bytes."""

    def close(self) -> None:
        """The stream has ended."""


class ModalProcess:
    """A command as it is sent, and what came of it: of `read`, or of `finish`.

    Both may be cancelled; the command then goes on. They raise what the SDK raises, and TimeoutError: its output cannot
    be had to its end.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], limit_s: float, workdir: str | None = "/") -> None:
        self.started_at: float | None = None
        """By `time.monotonic`, when Modal had started it."""
        self.ended_at: float | None = None
        self.code: int | None = None
        """Exit code; None where the sinks made it needless to ask."""
        self._argv = [_sendable(word) for word in argv]
        self._env: dict[str, str | None] = {name: _sendable(value) for name, value in env.items()}
        self._limit_s, self._workdir = limit_s, workdir
        self._heard_at = 0.0

    @property
    def elapsed_s(self) -> float:
        """Seconds from its start to its end, or until now."""
        return 0.0 if self.started_at is None else (self.ended_at or time.monotonic()) - self.started_at

    async def read(self, sandbox: modal.Sandbox, stdout: Sink, stderr: Sink) -> None:
        """Start it and read until the sinks have had enough or it has ended."""
        async with self._started(sandbox, StreamType.PIPE) as process:
            await self._read(process, (process.stdout, stdout), (process.stderr, stderr))

    async def finish(self, sandbox: modal.Sandbox, stderr: Sink, stdin: IO[bytes] | None = None) -> None:
        """Start it, give it `stdin` and await its end; stdout is thrown away, stderr read only if need be."""
        async with self._started(sandbox, StreamType.DEVNULL) as process:
            await self._finish(process, stderr, stdin)

    @asynccontextmanager
    async def _started(self, sandbox: modal.Sandbox, stdout: StreamType) -> AsyncIterator[ContainerProcess[bytes]]:
        process = await self._start(sandbox, stdout)
        self.started_at = self._heard_at = time.monotonic()
        try:
            yield process
        finally:
            self.ended_at = time.monotonic()

    async def _start(self, sandbox: modal.Sandbox, stdout: StreamType) -> ContainerProcess[bytes]:
        try:
            async with asyncio.timeout(_START_LIMIT_S) as limit:
                return await sandbox.exec.aio(
                    *self._argv,
                    timeout=math.ceil(self._limit_s),
                    workdir=self._workdir,
                    env=self._env,
                    text=False,
                    stdout=stdout,
                )
        except TimeoutError as exc:
            if not limit.expired():
                raise
            raise TimeoutError(f"not started within {_START_LIMIT_S:g} s") from exc

    async def _read(self, process: ContainerProcess[bytes], *streams: tuple[StreamReader[bytes], Sink]) -> None:
        drains = [asyncio.ensure_future(self._drain(stream, sink)) for stream, sink in streams]
        try:
            await self._watch(process, drains)
        finally:
            await _cancelled(*drains)
        if self.code is None and not all(sink.ended for _, sink in streams):
            async with asyncio.timeout(_CALL_LIMIT_S):
                self.code = await process.wait.aio()

    async def _finish(self, process: ContainerProcess[bytes], stderr: Sink, stdin: IO[bytes] | None) -> None:
        # Most such commands end at once and print nothing: then their streams need no call.
        refusal = None if stdin is None else await _feed(process, stdin)
        waiting = asyncio.ensure_future(process.wait.aio())
        try:
            done, _ = await asyncio.wait({waiting}, timeout=_LOOK_AFTER_S)
        finally:
            await _cancelled(waiting)
        if done:
            self.code = waiting.result()
        elif refusal is not None:
            raise refusal
        if self.code is None:
            await self._read(process, (process.stderr, stderr))
        elif self.code:
            with suppress(*FAILURES):
                async with asyncio.timeout(_CALL_LIMIT_S):
                    await self._drain(process.stderr, stderr)

    async def _watch(self, process: ContainerProcess[bytes], drains: "Sequence[asyncio.Future[None]]") -> None:
        # Streams may stay open though the command has ended (a background child holds them), and a worker that is
        # gone may leave them silent: hence a look at the process now and then.
        pending = set(drains)
        while pending:
            done, pending = await asyncio.wait(pending, timeout=_LOOK_AFTER_S, return_when=asyncio.FIRST_EXCEPTION)
            for drain in done:
                drain.result()
            if pending and not done:
                async with asyncio.timeout(_CALL_LIMIT_S):
                    self.code = await process.poll.aio()
                if self.code is not None:
                    await self._read_rest(pending, self.code)
                    return

    async def _read_rest(self, pending: "set[asyncio.Future[None]]", code: int) -> None:
        grace_s = _GRACE_S if 0 <= code < FIRST_SIGNAL else _GRACE_OF_KILLED_S
        ended_at = time.monotonic()
        while pending and (left := max(ended_at, self._heard_at) + grace_s - time.monotonic()) > 0:
            done, pending = await asyncio.wait(pending, timeout=left, return_when=asyncio.FIRST_EXCEPTION)
            for drain in done:
                drain.result()
        if pending and grace_s == _GRACE_S:
            raise TimeoutError(f"the command has ended, and its output did not within {grace_s:g} s")

    async def _drain(self, stream: StreamReader[bytes], sink: Sink) -> None:
        chunks = aiter(stream)
        try:
            async for chunk in chunks:
                self._heard_at = time.monotonic()
                sink.feed(chunk)
                if sink.ended:
                    return
        finally:
            sink.close()
            with suppress(*FAILURES):
                await chunks.aclose()


class SupervisedExec(SupervisedRun):
    """A command that runs under `support.shell_supervision`: its end is told by a line in both of its streams."""

    def __init__(
        self, argv: Sequence[str], mark: Mark, env: Mapping[str, str], limit_s: float, kept_bytes: int
    ) -> None:
        super().__init__(mark, kept_bytes)
        self.process = ModalProcess(argv, {**env, MARK_VARIABLE: mark.name}, limit_s)

    async def run(self, sandbox: modal.Sandbox) -> None:
        """Start it and read both streams to its end. Raises as `ModalProcess` does."""
        await self.process.read(sandbox, *self.ends)

    @property
    def elapsed_s(self) -> float:
        """Seconds from its start to its end, or until now."""
        return self.process.elapsed_s

    @property
    def process_code(self) -> int | None:
        """Of its first process; None where Modal was not asked, or does not tell."""
        return None if self.process.code == NO_EXIT_CODE else self.process.code


class Kept:
    """A sink of the first `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self.data = bytearray()
        self._limit = limit

    @property
    def ended(self) -> bool:
        """Never: what follows is let go."""
        return False

    def feed(self, data: bytes) -> None:
        """Keep what there is room for."""
        self.data += data[: max(0, self._limit - len(self.data))]

    def close(self) -> None:
        """Nothing to do."""

    def text(self) -> str:
        """What is kept."""
        return self.data.decode("utf-8", "replace")

    def line(self) -> str:
        """The same on one line."""
        return " ".join(self.text().split())


class Written:
    """A sink that writes to a file."""

    ended = False

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def feed(self, data: bytes) -> None:
        """Write it."""
        self._file.write(data)

    def close(self) -> None:
        """The file is its owner's."""


async def _cancelled(*tasks: "asyncio.Future[Any]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _feed(process: ContainerProcess[bytes], stdin: IO[bytes]) -> modal.exception.ConflictError | None:
    """Returns Modal's word where the command reads no more: its exit code tells why, if it has ended."""
    try:
        piece = stdin.read(_STDIN_PIECE_BYTES)  # of a file that was written a moment ago, in memory or the page cache
        while piece:
            process.stdin.write(piece)
            if not (piece := stdin.read(_STDIN_PIECE_BYTES)):
                break  # its last bytes and its end are one call
            await process.stdin.drain.aio()
        process.stdin.write_eof()
        await process.stdin.drain.aio()
    except modal.exception.ConflictError as exc:
        return exc
    return None


def _sendable(text: str) -> str:
    # Half a surrogate pair has no bytes in the protocol's UTF-8.
    return text.encode("utf-8", "replace").decode()
