"""Writing to a stream that may be slow, stopped, closed or gone, without ever holding up the run."""

import contextlib
import threading
from collections import deque
from typing import TextIO

_CAPACITY = 20_000


class QuietStream:
    """A stream whose writes never raise; after the first failure they do nothing."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._broken = False

    def write(self, text: str) -> int:
        """Write `text`; characters the stream cannot encode are written as escapes."""
        if not self._broken:
            try:
                self._write(text)
            except (OSError, ValueError):
                self._broken = True
        return len(text)

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
        except UnicodeEncodeError:
            self._stream.write(text.encode("ascii", "backslashreplace").decode("ascii"))

    def flush(self) -> None:
        """Flush; a failure ends all writing."""
        if not self._broken:
            try:
                self._stream.flush()
            except (OSError, ValueError):
                self._broken = True

    def isatty(self) -> bool:
        """Whether it is a terminal; False once closed."""
        with contextlib.suppress(OSError, ValueError):
            return self._stream.isatty()
        return False

    def fileno(self) -> int:
        """The stream's own descriptor (rich asks it for the terminal's size)."""
        return self._stream.fileno()

    @property
    def encoding(self) -> str:
        """The stream's own encoding."""
        return getattr(self._stream, "encoding", None) or "utf-8"


class LineWriter:
    """Writes lines from a thread of its own: a stopped terminal or a full pipe costs the caller nothing.

    At most `capacity` lines wait; of further ones only the number is kept, and told once there is room again.
    """

    def __init__(self, stream: TextIO, *, capacity: int = _CAPACITY) -> None:
        self._stream = QuietStream(stream)
        self._capacity = capacity
        self._waiting: deque[str] = deque()
        self._dropped = 0
        self._changed = threading.Condition()
        self._busy = False
        self._finished = False
        self._thread: threading.Thread | None = None

    def line(self, text: str) -> None:
        """Write `text` and a newline, soon; at once after `finish`."""
        with self._changed:
            if not self._finished:
                self._enqueue(text)
                return
        self._put([text])

    def finish(self, limit_s: float = 2.0) -> None:
        """Wait until everything is written, at most `limit_s`; the thread then ends."""
        with self._changed:
            self._finished = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not (self._waiting or self._busy), timeout=limit_s)

    def _enqueue(self, text: str) -> None:
        if len(self._waiting) >= self._capacity:
            self._dropped += 1
            return
        self._waiting.append(text)
        self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="progress-writer", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while batch := self._next_batch():
            self._put(batch)

    def _next_batch(self) -> list[str]:
        with self._changed:
            self._busy = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._waiting or self._finished)
            batch = list(self._waiting)
            self._waiting.clear()
            if self._dropped:
                batch.append(f"({self._dropped} lines were not shown: the output was not being read)")
                self._dropped = 0
            self._busy = bool(batch)
            return batch

    def _put(self, lines: list[str]) -> None:
        self._stream.write("".join(f"{line}\n" for line in lines))
        self._stream.flush()
