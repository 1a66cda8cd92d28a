"""Docker keeps every promise in an image with nothing but a shell, and those that hang on its programs in Debian's."""

import pytest
from agentcompass.adapters.environments.docker.environment import DockerEnvironment, DockerParameters
from agentcompass.domain.ports import Environment, Sandbox
from agentcompass.domain.sandbox import SandboxOwner, SandboxSpec
from agentcompass.testing.environment import (
    CommandContract,
    ContractSetting,
    EnvironmentContract,
    FileCommandContract,
)
from docker import APIClient

pytestmark = pytest.mark.docker


class OnDocker(ContractSetting):
    @pytest.fixture
    def environment(self, docker_client: APIClient) -> Environment:
        return DockerEnvironment(DockerParameters(pull_policy="never"))

    @pytest.fixture(autouse=True)
    def _destroyer(self, docker_client: APIClient) -> None:
        self.client = docker_client

    async def destroy(self, environment: Environment, sandbox: Sandbox, owner: SandboxOwner) -> None:
        self.client.remove_container(sandbox.id, force=True)


class TestDockerOnBusybox(OnDocker, EnvironmentContract):
    large_output_mb = 50

    @pytest.fixture
    def spec(self, busybox_image: str) -> SandboxSpec:
        return SandboxSpec(image=busybox_image, timeout=600)


class TestDockerOnDebian(OnDocker, CommandContract, FileCommandContract):
    @pytest.fixture
    def spec(self, debian_image: str) -> SandboxSpec:
        return SandboxSpec(image=debian_image, timeout=600)
