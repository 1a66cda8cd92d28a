"""For all tests: log events go nowhere unless a test captures them."""

import os
from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def silent_log() -> Iterator[None]:
    """`structlog.testing.capture_logs` still sees every event."""
    with open(os.devnull, "w") as nowhere:
        structlog.configure(
            processors=[structlog.processors.KeyValueRenderer()],
            logger_factory=structlog.PrintLoggerFactory(nowhere),
            cache_logger_on_first_use=False,
        )
        yield
        structlog.reset_defaults()
