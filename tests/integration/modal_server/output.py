"""One output stream of a command: kept for readers who come back with an offset."""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator

WINDOW = 64 * 1024 * 1024
"""So much undelivered output stops the command, as a full pipe does; so much delivered output can be read again."""
BLOCK = 1024 * 1024
"""Output is kept, and delivered at most, in pieces of about this size."""


class OffsetLost(Exception):
    """The output before the offset is no longer kept."""


class Output:
    """Bytes in order; several readers, each from its own offset."""

    def __init__(self) -> None:
        self._blocks: list[bytearray] = []
        self._starts: list[int] = []
        self._end = 0
        self._delivered = 0
        self._closed = False
        self._changed = asyncio.Event()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def append(self, data: bytes) -> None:
        """Waits while too much is undelivered."""
        while self._end - self._delivered > WINDOW and not self._closed:
            await self._changed.wait()
        if not self._blocks or len(self._blocks[-1]) >= BLOCK:
            self._blocks.append(bytearray())
            self._starts.append(self._end)
        self._blocks[-1] += data
        self._end += len(data)
        while len(self._starts) > 1 and self._starts[1] < self._delivered - WINDOW:
            del self._starts[0], self._blocks[0]
        self._wake()

    def close(self) -> None:
        self._closed = True
        self._wake()

    def forget(self) -> None:
        """Keep nothing more of it."""
        self.close()
        self._blocks.clear()
        self._starts.clear()

    async def read(self, offset: int) -> AsyncIterator[bytes]:
        """What was printed from `offset` on, until the stream is closed; never an empty piece.

        Raises:
            OffsetLost: that part is no longer kept.
        """
        while True:
            while offset < self._end:
                piece = self._piece(offset)
                yield piece
                offset += len(piece)
                self._delivered = max(self._delivered, offset)
                self._wake()
            if self._closed:
                return
            await self._changed.wait()

    def _piece(self, offset: int) -> bytes:
        index = bisect_right(self._starts, offset) - 1
        if index < 0:
            raise OffsetLost
        return bytes(memoryview(self._blocks[index])[offset - self._starts[index] :])
