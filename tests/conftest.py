"""For all tests: no settings or keys of whoever runs them, no log lines, no sweeping of other workers' sandboxes."""

import ctypes
import os
import socket
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings

settings.register_profile("quick", max_examples=10)

SETTINGS_OF_PROGRAMS = ("AGENTCOMPASS_", "MODAL_", "OPENAI_", "ANTHROPIC_", "MSWEA_")


@pytest.fixture(autouse=True)
def clean_environment() -> Iterator[None]:
    """Variables that would change what is tested are out of this process, and of those that it starts."""
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ:
            if name.upper().startswith(SETTINGS_OF_PROGRAMS):
                patch.delenv(name)
        yield


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


@pytest.fixture(scope="session", autouse=True)
def host_of_its_own() -> None:
    """Side by side, each worker is a host by name: a sweep stops what dead processes of its own host have left."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    new_host_name = 0x04000000  # CLONE_NEWUTS; os.unshare comes with Python 3.12
    if worker and os.geteuid() == 0 and ctypes.CDLL(None).unshare(new_host_name) == 0:
        socket.sethostname(f"{worker}-{os.getppid()}-{socket.gethostname()}"[:64])
