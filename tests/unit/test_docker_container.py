"""A container whose creation is not answered is found and removed all the same."""

from typing import Any

import pytest
import requests
from agentcompass.adapters.environments.docker.container import DockerContainer, owner_labels
from agentcompass.adapters.environments.docker.images import DockerImage
from agentcompass.domain.errors import SandboxBusy
from agentcompass.domain.sandbox import SandboxSpec
from agentcompass.testing.environment import an_owner
from docker.errors import APIError, NotFound

OWNER = an_owner()
IMAGE = DockerImage("image", "sha256:1", "sha256:1", "linux/amd64", "/", "0", ())


class FakeClient:
    """An engine's containers, at most one, and what goes wrong with the calls on it, in their order."""

    def __init__(self) -> None:
        self.there: str | None = None
        self.made = 0
        self.reserved = False
        self.unanswered: list[int] = []
        self.start_failures = 0
        self.api_version = "1.41"
        self.created_with: dict[str, Any] = {}

    def create_host_config(self, **options: object) -> dict[str, object]:
        return options

    def create_container(self, **config: Any) -> dict[str, str]:
        self.created_with = config
        if self.there is not None or self.reserved:
            raise _conflict()
        self.made += 1
        self.there = f"id-{self.made}"
        if self.made in self.unanswered:
            raise requests.ReadTimeout("no answer")
        return {"Id": self.there}

    def start(self, container: str) -> None:
        if self.start_failures:
            self.start_failures -= 1
            raise APIError("busy")

    def inspect_container(self, container: str) -> dict[str, Any]:
        if self.there is None:
            raise NotFound("No such container")
        return {"Id": self.there, "Config": {"Labels": owner_labels(OWNER)}}

    def remove_container(self, container: str, **_: object) -> None:
        if container != self.there:
            raise NotFound("No such container")
        self.there = None


def _conflict() -> APIError:
    response = requests.Response()
    response.status_code = 409
    said = f'Conflict. The container name "/{DockerContainer(SandboxSpec(), OWNER).name}" is already in use'
    return APIError("409", response=response, explanation=said)


def _started(container: DockerContainer, client: FakeClient) -> None:
    container.start(client, IMAGE)  # type: ignore[arg-type]  # as much of a client as it uses


def test_what_a_later_try_made_without_an_answer_is_removed() -> None:
    client, container = FakeClient(), DockerContainer(SandboxSpec(), OWNER)
    client.start_failures, client.unanswered = 1, [2]
    with pytest.raises(APIError):
        _started(container, client)
    with pytest.raises(requests.ReadTimeout):
        _started(container, client)
    container.remove(client)  # type: ignore[arg-type]  # as above

    assert client.made == 2
    assert client.there is None


def test_a_name_that_the_engine_keeps_for_a_container_to_come_is_waited_for() -> None:
    client, container = FakeClient(), DockerContainer(SandboxSpec(), OWNER)
    client.reserved = True

    with pytest.raises(SandboxBusy, match="keeps the name"):
        _started(container, client)


def test_the_removal_of_what_was_never_made_is_no_error() -> None:
    client, container = FakeClient(), DockerContainer(SandboxSpec(), OWNER)
    client.reserved = True
    with pytest.raises(SandboxBusy):
        _started(container, client)
    container.remove(client)  # type: ignore[arg-type]  # as above

    assert client.made == 0


@pytest.mark.parametrize(("version", "told"), [("1.40", None), ("1.41", "linux/arm64"), ("1.51", "linux/arm64")])
def test_the_engine_is_told_the_platform_where_it_can_be(version: str, told: str | None) -> None:
    client, container = FakeClient(), DockerContainer(SandboxSpec(platform="linux/arm64"), OWNER)
    client.api_version = version
    _started(container, client)

    assert client.created_with["platform"] == told
