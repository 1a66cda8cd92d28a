"""One command in a Modal sandbox, read from its first byte to its end."""

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Protocol

import modal
from modal.container_process import ContainerProcess
from modal.io_streams import StreamReader
from modal.stream_type import StreamType

from ...support.shell_supervision import MARK_VARIABLE, Mark
from ...support.streams import EndMarker, HeadAndTail
from .errors import FAILURES

HELPER = {MARK_VARIABLE: "helper"}
"""Variables of our own commands: whoever kills a command by its marks sees that these are not its."""
NO_EXIT_CODE = -1
"""What the SDK gives in place of an exit code when its time limit was reached."""
_STDIN_PIECE_BYTES = 1024 * 1024
_LOOK_AFTER_S = 10.0
_GRACE_S = 2.0
_CODE_LIMIT_S = 15.0


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
    """A command as it is sent, and what came of it. `run` may be cancelled; the command then goes on."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        limit_s: float,
        sinks: tuple[Sink | None, Sink],
        workdir: str | None = "/",
    ) -> None:
        """`sinks` take stdout and stderr; where stdout has none it is thrown away, and stderr read after a failure."""
        self.started_at: float | None = None
        """By `time.monotonic`, when Modal had started it."""
        self.ended_at: float | None = None
        self.code: int | None = None
        """Exit code; None while the sinks have not made it needless to ask, or where nobody knows."""
        self._argv = [_sendable(word) for word in argv]
        self._env: dict[str, str | None] = {name: _sendable(value) for name, value in env.items()}
        self._limit_s, self._sinks, self._workdir = limit_s, sinks, workdir

    @property
    def elapsed_s(self) -> float:
        """Seconds from its start to its end, or until now."""
        return 0.0 if self.started_at is None else (self.ended_at or time.monotonic()) - self.started_at

    async def run(self, sandbox: modal.Sandbox, stdin: IO[bytes] | None = None) -> None:
        """Start it, give it `stdin`, and read until its sinks have had enough or it has ended.

        Raises what the SDK raises.
        """
        process = await sandbox.exec.aio(
            *self._argv,
            timeout=math.ceil(self._limit_s),
            workdir=self._workdir,
            env=self._env,
            text=False,
            stdout=StreamType.PIPE if self._sinks[0] else StreamType.DEVNULL,
        )
        self.started_at = time.monotonic()
        try:
            if stdin is not None:
                await _feed(process, stdin)
            await (self._read(process) if self._sinks[0] else self._await_end(process))
        finally:
            self.ended_at = time.monotonic()

    async def _read(self, process: ContainerProcess[bytes]) -> None:
        streams = zip((process.stdout, process.stderr), self._sinks, strict=True)
        drains = [asyncio.ensure_future(_drain(stream, sink)) for stream, sink in streams if sink]
        try:
            await self._watch(process, drains)
        finally:
            for drain in drains:
                drain.cancel()
            await asyncio.gather(*drains, return_exceptions=True)
        if self.code is None and not all(sink and sink.ended for sink in self._sinks):
            async with asyncio.timeout(_CODE_LIMIT_S):
                self.code = await process.wait.aio()

    async def _await_end(self, process: ContainerProcess[bytes]) -> None:
        waiting = asyncio.ensure_future(process.wait.aio())
        try:
            while not (await asyncio.wait({waiting}, timeout=_LOOK_AFTER_S))[0]:
                await process.poll.aio()  # raises where the worker is gone, which `wait` goes on asking
            self.code = waiting.result()
        finally:
            waiting.cancel()
        if self.code:
            with suppress(TimeoutError):
                async with asyncio.timeout(_CODE_LIMIT_S):
                    await _drain(process.stderr, self._sinks[1])

    async def _watch(self, process: ContainerProcess[bytes], drains: "Sequence[asyncio.Future[None]]") -> None:
        # Streams may stay open though the command has ended (a background child holds them), and a worker that is
        # gone may leave them silent: hence a look at the process now and then.
        pending = set(drains)
        while pending:
            done, pending = await asyncio.wait(pending, timeout=_LOOK_AFTER_S, return_when=asyncio.FIRST_EXCEPTION)
            for drain in done:
                drain.result()
            if pending and not done:
                self.code = await process.poll.aio()
                if self.code is not None:
                    await asyncio.wait(pending, timeout=_GRACE_S)
                    return


class SupervisedExec:
    """A command that runs under `support.shell_supervision`: its end is told by a line in both of its streams."""

    def __init__(
        self, argv: Sequence[str], mark: Mark, env: Mapping[str, str], limit_s: float, kept_bytes: int
    ) -> None:
        self.mark = mark
        self.alone = True
        """Whether no other command ran beside it."""
        self.stdout, self.stderr = HeadAndTail(kept_bytes), HeadAndTail(kept_bytes)
        self._ends = (_Marked(EndMarker(mark.nonce, self.stdout)), _Marked(EndMarker(mark.nonce, self.stderr)))
        self.process = ModalProcess(argv, {**env, MARK_VARIABLE: mark.name}, limit_s, self._ends)

    @property
    def elapsed_s(self) -> float:
        """Seconds from its start to its end, or until now."""
        return self.process.elapsed_s

    @property
    def exit_code(self) -> int | None:
        """As the end line told, or Modal; None where neither did."""
        return self.process.code if self._ends[0].status is None else self._ends[0].status

    @property
    def ended_by_marker(self) -> bool:
        """Whether both streams were received to the end of the command's first process."""
        return all(end.ended for end in self._ends)


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


class _Marked:
    def __init__(self, end: EndMarker) -> None:
        self._end = end

    @property
    def status(self) -> int | None:
        return self._end.status

    @property
    def ended(self) -> bool:
        return self._end.status is not None

    def feed(self, data: bytes) -> None:
        self._end.feed(data)

    def close(self) -> None:
        self._end.close()


async def _drain(stream: StreamReader[bytes], sink: Sink) -> None:
    chunks, is_over = aiter(stream), False
    try:
        async for chunk in chunks:
            sink.feed(chunk)
            if sink.ended:
                return
        is_over = True
    finally:
        sink.close()
        if not is_over:  # each call is a trip to the SDK's own thread
            with suppress(*FAILURES):
                await chunks.aclose()


async def _feed(process: ContainerProcess[bytes], stdin: IO[bytes]) -> None:
    try:
        piece = stdin.read(_STDIN_PIECE_BYTES)
        while piece:
            process.stdin.write(piece)
            if not (piece := stdin.read(_STDIN_PIECE_BYTES)):
                break  # its last bytes and its end are one call
            await process.stdin.drain.aio()
        process.stdin.write_eof()
        await process.stdin.drain.aio()
    except modal.exception.ConflictError:
        return  # the command reads no more: its exit code tells why


def _sendable(text: str) -> str:
    # Half a surrogate pair has no bytes in the protocol's UTF-8.
    return text.encode("utf-8", "replace").decode()
