"""Time as it is written down."""

from datetime import UTC, datetime


def now_iso() -> str:
    """UTC, ISO 8601, milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
