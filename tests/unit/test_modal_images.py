"""Images at Modal: whoever waits for another's build."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from agentcompass.adapters.environments.modal.images import ModalImages
from agentcompass.adapters.support.stage_clock import stage_clock
from agentcompass.domain.sandbox import SandboxSpec


async def test_who_joins_a_build_of_another_is_not_held_to_a_limit_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async def build(*_: object) -> Any:
        await asyncio.sleep(0.3)
        return SimpleNamespace(object_id="im-1")

    monkeypatch.setattr(ModalImages, "_build", build)
    images = ModalImages(None, None)  # type: ignore[arg-type]  # not asked for
    spec = SandboxSpec(image="one")
    first = asyncio.create_task(images.have(spec))
    await asyncio.sleep(0)
    async with stage_clock(0.1):
        joined = await images.have(spec)

    assert joined is await first
