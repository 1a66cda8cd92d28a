"""The environment that the contributor guide adds works as it is shown, on whatever speaks Docker's API."""

import os
import re
from pathlib import Path
from types import ModuleType

import pytest
from agentcompass.adapters.environments.docker.endpoint import resolve_endpoint
from agentcompass.app.catalog import Kind, required
from agentcompass.domain.ports import Environment
from agentcompass.domain.sandbox import Command, SandboxSpec
from agentcompass.testing.environment import an_owner

pytestmark = pytest.mark.docker

GUIDE = Path(__file__).parents[2] / "CONTRIBUTING.md"
PACKAGE = "agentcompass.adapters.environments"


@pytest.fixture
def podman() -> ModuleType:
    """The module of the guide, as if it lay in the package."""
    source, _ = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    module = ModuleType(f"{PACKAGE}.podman")
    module.__package__ = PACKAGE
    exec(compile(source, "podman.py", "exec"), module.__dict__)
    return module


def test_it_implements_the_port(podman: ModuleType) -> None:
    lacking = [name for name in required(Kind.ENVIRONMENTS) if not hasattr(podman.PodmanEnvironment, name)]

    assert (podman.PodmanEnvironment.name, lacking) == ("podman", [])


async def test_it_runs_a_command_in_a_sandbox(podman: ModuleType, busybox_image: str) -> None:
    engine = resolve_endpoint(None, None, os.environ)
    environment: Environment = podman.PodmanEnvironment(podman.PodmanParameters(host=engine.url))
    async with environment.open(SandboxSpec(image=busybox_image, timeout=300), an_owner()) as sandbox:
        result = await sandbox.exec(Command(script="echo hello from $(hostname)", timeout_s=60))
    await environment.close()

    assert (result.exit_code, result.stdout.startswith("hello from ")) == (0, True)
