"""The reading end of a command's output."""

import asyncio
import os

from ...support.streams import HeadAndTail

_CHUNK_BYTES = 65536
_LARGEST_PIPE_BYTES = 1024 * 1024
"""A command can make its pipe no larger than this (Linux: pipe-max-size, as anybody may)."""


def output_pipes(max_bytes: int) -> tuple["OutputPipe", "OutputPipe"]:
    """Two pipes, for output and errors, or none at all. Raises OSError as pipe(2) does."""
    output = OutputPipe(max_bytes)
    try:
        return output, OutputPipe(max_bytes)
    except OSError:
        output.close()
        raise


class OutputPipe:
    """A pipe whose reading end is read by the event loop for as long as anybody holds the writing end.

    What comes after `settle` is dropped, not refused: a service that a command left behind goes on printing and must
    not die of it.
    """

    def __init__(self, max_bytes: int) -> None:
        self.kept = HeadAndTail(max_bytes)
        self._loop = asyncio.get_running_loop()
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._settled = False
        self.closed = False
        self._loop.add_reader(self._reader, self._read)

    @property
    def writer(self) -> int:
        """For the command."""
        return self._writer

    def hand_over(self) -> None:
        """The command has its own copy of the writing end: close ours."""
        if self._writer >= 0:
            os.close(self._writer)
            self._writer = -1

    def settle(self) -> None:
        """The command has ended: take what it has printed, and nothing that comes later."""
        read = 0
        while not self.closed and read < _LARGEST_PIPE_BYTES and (size := self._read()):
            read += size
        self._settled = True

    def close(self) -> None:
        """Close what is open."""
        self.hand_over()
        if not self.closed:
            self.closed = True
            self._loop.remove_reader(self._reader)
            os.close(self._reader)

    def _read(self) -> int:
        try:
            data = os.read(self._reader, _CHUNK_BYTES)
        except BlockingIOError:
            return 0
        if not data:
            self.close()
        elif not self._settled:
            self.kept.feed(data)
        return len(data)
