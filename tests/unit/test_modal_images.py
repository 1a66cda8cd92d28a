"""Images at Modal: whoever waits for another's build, and folders that cannot be read."""

import asyncio
import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agentcompass.adapters.environments.modal.images import ModalImages
from agentcompass.adapters.environments.modal.parameters import ModalParameters
from agentcompass.adapters.support.stage_clock import stage_clock
from agentcompass.domain.errors import AgentCompassError, SandboxBusy, SandboxStartFailed
from agentcompass.domain.sandbox import ImageBuild, SandboxSpec


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


class Connection:
    """To nowhere; an image's own calls are a test's."""

    environment_name = None

    async def app(self) -> None:
        """None."""

    async def client(self) -> None:
        """None."""


async def failed(context: Path) -> tuple[type[AgentCompassError], str]:
    """How the build of this folder fails."""
    images = ModalImages(Connection(), ModalParameters(start_tries=1))  # type: ignore[arg-type]  # all that is asked for
    with pytest.raises(AgentCompassError) as caught:
        await images.have(SandboxSpec(build=ImageBuild(context=context)))
    return type(caught.value), caught.value.message


def denied(path: Path) -> PermissionError:
    return PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


async def test_a_build_context_that_may_not_be_entered_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(path: Path) -> bool:
        raise denied(path)

    monkeypatch.setattr(Path, "is_file", closed)
    kind, message = await failed(tmp_path)

    assert kind is SandboxStartFailed
    assert message.startswith(f"build context '{tmp_path}' cannot be read: ")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (denied(Path("/context/key")), SandboxStartFailed),
        (ConnectionResetError(errno.ECONNRESET, "reset", "peer"), SandboxBusy),
        (OSError(errno.ENETUNREACH, "no network"), SandboxBusy),
    ],
)
async def test_a_file_of_a_build_context_that_cannot_be_read_is_no_outage_of_modal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, kind: type[AgentCompassError]
) -> None:
    async def build(*_: object) -> None:
        raise error

    described = SimpleNamespace(build=SimpleNamespace(aio=build))
    monkeypatch.setattr(ModalImages, "_described", lambda *_: described)

    assert (await failed(tmp_path))[0] is kind


async def test_a_build_over_its_limit_names_it_and_may_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = 0

    async def build(*_: object) -> None:
        nonlocal begun
        begun += 1
        await asyncio.Event().wait()

    described = SimpleNamespace(build=SimpleNamespace(aio=build))
    monkeypatch.setattr(ModalImages, "_described", lambda *_: described)
    images = ModalImages(Connection(), ModalParameters())  # type: ignore[arg-type]  # all that is asked for
    slow = SandboxSpec(build=ImageBuild(context=tmp_path, timeout_s=0.05, limit="the.users_limit"))
    for _ in range(2):
        with pytest.raises(SandboxBusy, match=r"not done within the\.users_limit of 0\.05 s"):
            await images.have(slow)

    assert begun == 2
