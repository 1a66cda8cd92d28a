"""The environment that the contributor guide adds works as it is shown, on whatever speaks Docker's API."""

import os
import re
import subprocess
import sys
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
SOURCE, SUITE = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
AS_IF_IN_THE_PACKAGE = f"""
import importlib.util
import sys

spec = importlib.util.spec_from_file_location("{PACKAGE}.podman", "podman.py")
sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules[spec.name])
"""


@pytest.fixture
def podman() -> ModuleType:
    """The module of the guide, as if it lay in the package."""
    module = ModuleType(f"{PACKAGE}.podman")
    module.__package__ = PACKAGE
    exec(compile(SOURCE, "podman.py", "exec"), module.__dict__)
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


def test_its_suite_runs_as_it_is_shown(tmp_path: Path, busybox_image: str) -> None:
    engine = resolve_endpoint(None, None, os.environ)
    suite = SUITE.replace("debian:bookworm-slim", busybox_image)
    suite = suite.replace("PodmanEnvironment.Parameters()", f"PodmanEnvironment.Parameters(host={engine.url!r})")
    files = {"podman.py": SOURCE, "test_podman.py": suite, "conftest.py": AS_IF_IN_THE_PACKAGE}
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    some = "test_check_answers_in_readable_lines or test_exit_codes_are_told_as_they_are"
    options = ("-q", "-o", "asyncio_mode=auto", "--rootdir", str(tmp_path), "-p", "no:cacheprovider", "-k", some)
    done = subprocess.run([sys.executable, "-m", "pytest", *options], cwd=tmp_path, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout
    assert re.search(r"^\d+ passed, \d+ deselected", done.stdout, re.MULTILINE)
