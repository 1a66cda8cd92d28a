"""`fake`, a Docker engine that answers as a test says, and `engine`, the connection to it.

A test module gets them by `pytest_plugins = ("docker_fixtures",)`; this module itself is never imported.
"""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from agentcompass.adapters.environments.docker.engine import DockerEngine
from docker_fakes import FakeEngine, serving


@pytest.fixture
def fake() -> Iterator[FakeEngine]:
    with serving() as fake:
        yield fake


@pytest_asyncio.fixture
async def engine(fake: FakeEngine) -> AsyncIterator[DockerEngine]:
    engine = DockerEngine(fake.url, None, timeout_s=20)
    yield engine
    await engine.close()
