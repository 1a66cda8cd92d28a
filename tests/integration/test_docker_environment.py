"""Docker keeps every promise of the port in an image with nothing but a shell.

How commands fare in Debian's shell, Modal's suite shows: the same scripts supervise them there.
"""

import pytest
from agentcompass.adapters.environments.docker.environment import DockerEnvironment, DockerParameters
from agentcompass.domain.ports import Environment, Sandbox
from agentcompass.domain.sandbox import SandboxOwner, SandboxSpec
from agentcompass.testing.environment import EnvironmentContract
from docker import APIClient

pytestmark = pytest.mark.docker


class TestDocker(EnvironmentContract):
    large_output_mb = 50

    @pytest.fixture
    def environment(self, docker_client: APIClient) -> Environment:
        self.client = docker_client
        return DockerEnvironment(DockerParameters(pull_policy="never"))

    @pytest.fixture
    def spec(self, busybox_image: str) -> SandboxSpec:
        return SandboxSpec(image=busybox_image, timeout=600)

    async def destroy(self, environment: Environment, sandbox: Sandbox, owner: SandboxOwner) -> None:
        self.client.remove_container(sandbox.id, force=True)
