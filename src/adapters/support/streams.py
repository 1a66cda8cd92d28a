"""What is kept of a command's output: bounded, cut at character boundaries, counted in full."""

import re

_CONTINUATION = range(0x80, 0xC0)
_LONGEST_CHARACTER = 4


class HeadAndTail:
    """The first and the last half of at most `limit` bytes of a stream, whatever passes in between.

    Memory stays within twice `limit`. Not safe for threads: one feeds, and when it has ended another may read.
    """

    def __init__(self, limit: int) -> None:
        self._tail_limit = limit // 2
        self._head_limit = limit - self._tail_limit
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0
        """Bytes fed, kept or not."""

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Add the next bytes of the stream."""
        self.total += len(data)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if len(data) >= self._tail_limit:
            self._tail[:] = data[len(data) - self._tail_limit :]
            return
        self._tail += data
        if len(self._tail) > 2 * self._tail_limit:
            del self._tail[: len(self._tail) - self._tail_limit]

    @property
    def truncated(self) -> bool:
        """Whether bytes were left out."""
        return self.total > self._head_limit + self._tail_limit

    def text(self) -> str:
        """What is kept, as UTF-8 with replacement; no character is split by the cut."""
        if not self.truncated:
            return (self._head + self._tail).decode("utf-8", "replace")
        tail = self._tail[max(0, len(self._tail) - self._tail_limit) :]
        head_text = without_split_end(bytes(self._head)).decode("utf-8", "replace")
        return head_text + without_split_start(bytes(tail)).decode("utf-8", "replace")


class EndMarker:
    """Finds the line `NONCE:STATUS` that ends a command's stream, wherever chunks are cut, and hides it."""

    def __init__(self, nonce: str, kept: HeadAndTail) -> None:
        self._nonce = nonce.encode()
        self._pattern = re.compile(re.escape(self._nonce) + rb":(\d{1,5})\n")
        self._longest = len(self._nonce) + len(":12345\n")
        self._kept = kept
        self._held = b""
        self.status: int | None = None
        """The exit status that the marker told; None until it has passed."""

    @property
    def ended(self) -> bool:
        """Whether the marker has passed."""
        return self.status is not None

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Pass the next bytes on. What follows the marker was not written by the command's first process: ignored."""
        if self.ended:
            return
        window = self._held + bytes(data)
        found = self._pattern.search(window)
        if found is not None:
            self.status = int(found[1])
            self._held = b""
            self._kept.feed(window[: found.start()])
            return
        start = self._possible_start(window)
        self._held = window[start:]
        self._kept.feed(memoryview(window)[:start])

    def close(self) -> None:
        """The stream has ended: what looked like the beginning of a marker was output."""
        self._kept.feed(self._held)
        self._held = b""

    def _possible_start(self, window: bytes) -> int:
        begin = max(0, len(window) - self._longest)
        whole = window.find(self._nonce, begin)
        if whole >= 0:
            return whole
        for start in range(max(begin, len(window) - len(self._nonce)), len(window)):
            if self._nonce.startswith(window[start:]):
                return start
        return len(window)


def without_split_end(data: bytes) -> bytes:
    """`data` without an incomplete UTF-8 character at its end; other bytes, valid or not, stay."""
    for back in range(1, min(_LONGEST_CHARACTER, len(data) + 1)):
        byte = data[-back]
        if byte in _CONTINUATION:
            continue
        return data[:-back] if _character_length(byte) > back else data
    return data


def without_split_start(data: bytes) -> bytes:
    """`data` without the rest of a UTF-8 character that begins before it."""
    start = 0
    while start < min(_LONGEST_CHARACTER - 1, len(data)) and data[start] in _CONTINUATION:
        start += 1
    return data[start:]


def _character_length(lead: int) -> int:
    for length, lowest in ((4, 0xF0), (3, 0xE0), (2, 0xC0)):
        if lead >= lowest:
            return length
    return 1
