"""Modal keeps every promise of the port, with the real SDK, on both of its sandbox backends."""

import pytest
from agentcompass.adapters.environments.modal.environment import ModalEnvironment
from agentcompass.adapters.environments.modal.parameters import ModalParameters
from agentcompass.domain.ports import Environment, Sandbox
from agentcompass.domain.sandbox import SandboxOwner, SandboxSpec
from agentcompass.testing.environment import EnvironmentContract
from modal_server_client import ModalServer

pytest_plugins = ("modal_fixtures",)
pytestmark = pytest.mark.docker


class OnModal(EnvironmentContract):
    large_output_mb = 50
    quiet_s = 65

    @pytest.fixture
    def environment(self, modal_server: ModalServer) -> Environment:
        self.server = modal_server
        return ModalEnvironment(ModalParameters(create_rate=50), modal_server.variables)

    async def destroy(self, environment: Environment, sandbox: Sandbox, owner: SandboxOwner) -> None:
        self.server.end(sandbox.id)


class TestModalOnDebian(OnModal):
    @pytest.fixture
    def spec(self, debian_image: str) -> SandboxSpec:
        return SandboxSpec(image=debian_image, timeout=600)


class TestModalV1OnBusybox(OnModal):
    quiet_s = 3

    @pytest.fixture(autouse=True)
    def _first_backend(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MODAL_SANDBOX_V2", "0")

    @pytest.fixture
    def spec(self, busybox_image: str) -> SandboxSpec:
        return SandboxSpec(image=busybox_image, timeout=600)
