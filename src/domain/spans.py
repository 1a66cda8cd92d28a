"""Stretches of time, and how long they are together."""

from datetime import datetime

_MERGE_AT = 1024


class Spans:
    """The union of stretches, added in any order; memory grows with its gaps, not with their number."""

    def __init__(self) -> None:
        self._spans: list[tuple[float, float]] = []
        self._merge_at = _MERGE_AT
        self.first: str | None = None
        """The earliest start, as it was given."""
        self.last: str | None = None
        """The latest end."""

    def add(self, start: str, end: str) -> None:
        """From `start` to `end`, both ISO 8601; passed over where they are something else."""
        try:
            span = (datetime.fromisoformat(start).timestamp(), datetime.fromisoformat(end).timestamp())
        except ValueError:
            return
        self.first = start if self.first is None else min(self.first, start)
        self.last = end if self.last is None else max(self.last, end)
        self._spans.append(span)
        if len(self._spans) >= self._merge_at:
            self._spans = _merged(self._spans)
            self._merge_at = max(_MERGE_AT, 2 * len(self._spans))

    def total_s(self) -> float | None:
        """Seconds that lie in at least one stretch; None where there is none."""
        if not self._spans:
            return None
        return sum(max(end - start, 0.0) for start, end in _merged(self._spans))


def _merged(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged
