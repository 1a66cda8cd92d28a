"""The local Modal server builds, finds and keeps images as the real SDK expects."""

import asyncio
import os
from pathlib import Path

import modal
import pytest
from modal_server_client import Account, ModalServer, run

pytest_plugins = ("modal_fixtures",)
pytestmark = pytest.mark.docker


async def test_arguments_are_appended_to_the_entrypoint(account: Account, debian_image: str, tmp_path: Path) -> None:
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text(f'FROM {debian_image}\nCOPY note /note\nRUN mkdir /made\nENTRYPOINT ["sh", "-c"]\n')
    (tmp_path / "note").write_text("from the context")
    for path in tmp_path.iterdir():
        os.utime(path, (1, 1))
    image = modal.Image.from_dockerfile(dockerfile, context_dir=tmp_path)
    cleared = image.dockerfile_commands(["ENTRYPOINT []"])
    for one in (image, cleared):
        await one.build.aio(account.app)
    appended = await account.sandbox("cat /note > /made/copy; exec sleep 100", image=image)
    replaced = await account.sandbox("sleep", "100", image=cleared)
    while b"copy" not in (await run(appended, "ls", "/made"))[0]:
        await asyncio.sleep(0.05)

    assert await run(appended, "cat", "/made/copy") == (b"from the context", b"", 0)
    assert await run(replaced, "cat", "/note") == (b"from the context", b"", 0)


async def test_a_failed_build_has_a_log(account: Account, debian_image: str) -> None:
    image = modal.Image.from_registry(debian_image, setup_dockerfile_commands=["RUN echo the cause; exit 7"])
    with pytest.raises(modal.exception.ImageBuildError, match="failed"):
        await image.build.aio(account.app)
    log = "".join([entry.message async for entry in image.logs.tail.aio()])

    assert "the cause" in log
    assert "returned a non-zero code: 7" in log


async def test_an_image_that_is_not_here_cannot_be_built(account: Account) -> None:
    image = modal.Image.from_registry("nobody/knows:1")
    with pytest.raises(modal.exception.ImageBuildError):
        await image.build.aio(account.app)

    assert "not found" in "".join([entry.message async for entry in image.logs.tail.aio()])


async def test_a_build_can_be_told_to_end_badly_once(
    account: Account, modal_server: ModalServer, debian_image: str
) -> None:
    modal_server.set(builds=[{"match": "LABEL a", "status": "terminated", "times": 1}])
    image = modal.Image.from_registry(debian_image, setup_dockerfile_commands=["LABEL a=b"])
    with pytest.raises(modal.exception.ImageBuildError, match="external shut-down"):
        await image.build.aio(account.app)

    assert (await image.build.aio(account.app)).object_id


async def test_one_image_wanted_twenty_times_is_built_once(
    account: Account, modal_server: ModalServer, debian_image: str
) -> None:
    before = modal_server.state()["images_built"]
    lines = ["RUN sleep 1"]
    images = [modal.Image.from_registry(debian_image, setup_dockerfile_commands=lines) for _ in range(20)]
    built = await asyncio.gather(*(image.build.aio(account.app) for image in images))

    assert len({image.object_id for image in built}) == 1
    assert modal_server.state()["images_built"] == before + 1


async def test_a_private_image_needs_its_secret(account: Account, modal_server: ModalServer, debian_image: str) -> None:
    right = {"REGISTRY_USERNAME": "me", "REGISTRY_PASSWORD": "pw"}
    modal_server.set(private_images={debian_image.partition("/")[0]: right})
    wrong = modal.Secret.from_dict({**right, "REGISTRY_PASSWORD": "no"})
    lines = ["LABEL private=1"]
    with pytest.raises(modal.exception.ImageBuildError):
        await modal.Image.from_registry(debian_image, secret=wrong, setup_dockerfile_commands=lines).build.aio(
            account.app
        )
    secret = modal.Secret.from_dict(right)

    assert await modal.Image.from_registry(debian_image, secret=secret, setup_dockerfile_commands=lines).build.aio(
        account.app
    )


async def test_a_published_image_is_found_by_its_name(account: Account) -> None:
    await account.image.publish.aio("tools:v1", client=account.client)
    image = modal.Image.from_name("tools:v1", client=account.client)

    assert (await run(await account.sandbox(image=image), "echo", "hi"))[0] == b"hi\n"
    with pytest.raises(modal.exception.NotFoundError):
        await account.sandbox(image=modal.Image.from_name("none", client=account.client))


async def test_a_snapshot_is_an_image(account: Account) -> None:
    sandbox = await account.sandbox()
    await sandbox.filesystem.write_text.aio("kept", "/kept")
    image = await sandbox.snapshot_filesystem.aio()

    assert (await run(await account.sandbox(image=image), "cat", "/kept"))[0] == b"kept"
