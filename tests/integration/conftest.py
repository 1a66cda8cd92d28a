"""The Docker engine, its environment, and the images of the integration tests, which are kept at the engine."""

import os
from collections.abc import AsyncIterator, Iterator

import images
import pytest
import pytest_asyncio
from agentcompass.adapters.environments.docker.endpoint import resolve_endpoint
from agentcompass.adapters.environments.docker.engine import connect
from agentcompass.adapters.environments.docker.environment import DockerEnvironment, DockerParameters
from agentcompass.domain.errors import SandboxStartFailed
from docker import APIClient

REQUIRED = "REQUIRE_DOCKER"


@pytest.fixture(scope="session")
def docker_client() -> Iterator[APIClient]:
    """The engine. Without one, tests are skipped, or fail where REQUIRE_DOCKER is set."""
    try:
        client = connect(resolve_endpoint(None, None, os.environ), 600)
    except SandboxStartFailed as exc:
        if os.environ.get(REQUIRED):
            pytest.fail(f"{REQUIRED} is set, but {exc}")
        pytest.skip(str(exc))
    yield client
    client.close()


@pytest.fixture(scope="session")
def busybox_image(docker_client: APIClient) -> str:
    """An image with a POSIX shell, and no bash."""
    images.make(docker_client, ["busybox"])
    return images.BUSYBOX


@pytest.fixture(scope="session")
def debian_image(docker_client: APIClient) -> str:
    """An image with bash and coreutils; `debian:bookworm-slim` is there too."""
    images.make(docker_client, ["debian"])
    return images.DEBIAN


@pytest.fixture(scope="session")
def python_image(docker_client: APIClient) -> str:
    """An image with python3 and git."""
    images.make(docker_client, ["python"])
    return images.PYTHON


@pytest_asyncio.fixture
async def environment(docker_client: APIClient) -> AsyncIterator[DockerEnvironment]:
    """Docker's. It pulls nothing."""
    environment = DockerEnvironment(DockerParameters(pull_policy="never"))
    yield environment
    await environment.close()
