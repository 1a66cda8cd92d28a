"""`sandbox`, one of host_process: a test module gets it by `pytest_plugins = ("host_process_fixtures",)`.

This module itself is never imported.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from agentcompass.adapters.environments.host_process.environment import HostProcessEnvironment, HostProcessParameters
from agentcompass.domain.ports import Sandbox
from agentcompass.domain.sandbox import SandboxSpec
from agentcompass.testing.environment import an_owner


@pytest_asyncio.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    environment = HostProcessEnvironment(HostProcessParameters(root_folder=tmp_path / "sandboxes"))
    async with environment.open(SandboxSpec(), an_owner()) as sandbox:
        yield sandbox
    await environment.close()
