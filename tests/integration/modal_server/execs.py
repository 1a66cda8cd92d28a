"""One command in a sandbox: its process, its streams, its end."""

import asyncio
import fcntl
import os
import subprocess
from collections.abc import Callable
from typing import IO

from machines import Launch
from output import Output
from processes import children, kill, kill_family

CHUNK = 1024 * 1024
PIPE = 256 * 1024
Convert = Callable[[bytes], bytes]


class StdinClosed(Exception):
    """The command no longer takes input."""


class StdinGap(Exception):
    """The offset lies beyond what was written so far."""


class Exec:
    """A command that has been started; `exit_code` is set when its own process has ended (128 + n after signal n).

    Its streams stay open for as long as anything it left behind holds them, as at Modal.
    """

    def __init__(self, launch: Launch, *, discard: tuple[bool, bool], convert: Convert | None = None) -> None:
        self.stdout, self.stderr = Output(), Output()
        self.merged = False
        self.exit_code: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.timed_out = False
        self.written = 0
        self.stdin_closed = False
        self._convert = convert
        self._writing = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self._process = subprocess.Popen(
            launch.argv,
            env=launch.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL if discard[0] else subprocess.PIPE,
            stderr=subprocess.DEVNULL if discard[1] else subprocess.PIPE,
            start_new_session=True,
        )
        self._stdin: asyncio.StreamWriter | None = None

    async def attach(self) -> None:
        """Begin to read what it prints and to watch for its end."""
        loop = asyncio.get_running_loop()
        handle = os.pidfd_open(self._process.pid)
        loop.add_reader(handle, self._ended, handle)
        self._stdin = await _writer(self._process.stdin)
        for stream, output, convert in (
            (self._process.stdout, self.stdout, self._convert),
            (self._process.stderr, self.stderr, None),
        ):
            if stream is None:
                output.close()
            else:
                self._tasks.append(loop.create_task(_pump(stream, output, convert)))

    def _ended(self, handle: int) -> None:
        asyncio.get_running_loop().remove_reader(handle)
        os.close(handle)
        code = self._process.wait()
        if not self.exit_code.done():
            self.exit_code.set_result(code if code >= 0 else 128 - code)

    async def write(self, offset: int, data: bytes, eof: bool) -> None:
        """Put `data` at `offset` of the input; what was written before is skipped.

        Raises:
            StdinClosed: the command ended or closed its input.
            StdinGap: bytes before `offset` are missing.
        """
        async with self._writing:
            if offset > self.written:
                raise StdinGap
            fresh = data[self.written - offset :]
            if fresh and (self.stdin_closed or self._stdin is None):
                raise StdinClosed
            if fresh:
                await self._send(fresh)
            if eof and not self.stdin_closed:
                self.close_stdin()

    async def _send(self, data: bytes) -> None:
        assert self._stdin is not None
        try:
            self._stdin.write(data)
            await self._stdin.drain()
        except OSError as exc:
            self.close_stdin()
            raise StdinClosed from exc
        self.written += len(data)

    def close_stdin(self) -> None:
        self.stdin_closed = True
        if self._stdin is not None:
            self._stdin.close()

    def kill(self, *, tree: bool) -> None:
        """End it: all it started, or itself alone (then what it started goes on)."""
        if tree:
            kill_family(self._process.pid)
        else:
            kill([self._process.pid, *children(self._process.pid)])

    async def close(self) -> None:
        """Its sandbox has ended: let go of everything."""
        kill([self._process.pid])
        self.close_stdin()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.stdout.forget()
        self.stderr.forget()


async def _writer(pipe: IO[bytes] | None) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
    transport, _ = await loop.connect_write_pipe(lambda: protocol, pipe)
    return asyncio.StreamWriter(transport, protocol, None, loop)


async def _pump(pipe: IO[bytes], output: Output, convert: Convert | None) -> None:
    reader = asyncio.StreamReader(limit=CHUNK)
    loop = asyncio.get_running_loop()
    fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, PIPE)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    held = bytearray()
    try:
        while data := await reader.read(CHUNK):
            if convert is None:
                await output.append(data)
            else:
                held += data
        converted = convert(bytes(held)) if convert is not None else b""
        if converted:
            await output.append(converted)
    finally:
        output.close()
        transport.close()
