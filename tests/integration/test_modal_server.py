"""The local Modal server carries the real SDK through the life of a sandbox, on both generations."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import modal
import pytest
from modal_server_client import Account, ModalServer, containers, ended, gone, run

pytest_plugins = ("modal_fixtures",)
pytestmark = pytest.mark.docker


async def test_a_sandbox_lives_and_ends(generation: Account, modal_server: ModalServer) -> None:
    sandbox = await generation.sandbox(env={"FROM_CREATE": "1"}, workdir="/tmp")
    printed = await run(
        sandbox, "sh", "-c", "echo $FROM_CREATE $FROM_EXEC; pwd; echo no >&2; exit 3", env={"FROM_EXEC": "2"}
    )
    elsewhere = await run(sandbox, "pwd", workdir="/usr")
    was_there = f"modal-{sandbox.object_id}" in containers()
    still_alive = await sandbox.poll.aio()
    await sandbox.terminate.aio()
    await gone(sandbox)

    assert was_there
    assert printed == (b"1 2\n/tmp\n", b"no\n", 3)
    assert elsewhere == (b"/usr\n", b"", 0)
    assert still_alive is None
    assert await sandbox.poll.aio() == 137
    with pytest.raises(modal.exception.NotFoundError):
        await sandbox.exec.aio("true")
    assert modal_server.state()["running"] == 0
    assert modal_server.sandboxes()[0]["v2"] is (os.environ.get("MODAL_SANDBOX_V2") != "0")
    await sandbox.detach.aio()


async def test_a_gpu_makes_a_sandbox_of_the_first_generation(account: Account, modal_server: ModalServer) -> None:
    sandbox = await account.sandbox(gpu="A100:2")

    assert await run(sandbox, "echo", "hi") == (b"hi\n", b"", 0)
    assert modal_server.sandboxes()[0]["v2"] is False
    assert modal_server.calls("SandboxCreate")[0]["request"]["definition"]["resources"]["gpu_config"]["count"] == 2


async def test_a_command_reads_its_input(generation: Account) -> None:
    sandbox = await generation.sandbox()
    process = await sandbox.exec.aio("sh", "-c", "cat; echo end", text=False)
    for _ in range(3):
        process.stdin.write(b"x" * 300_000)
        await process.stdin.drain.aio()
    process.stdin.write_eof()
    await process.stdin.drain.aio()

    assert await process.stdout.read.aio() == b"x" * 900_000 + b"end\n"


async def test_files_go_in_and_out(generation: Account, tmp_path: Path) -> None:
    sandbox = await generation.sandbox()
    files = sandbox.filesystem
    data = os.urandom(3_000_000)
    (tmp_path / "up").write_bytes(data)
    await files.copy_from_local.aio(tmp_path / "up", "/made for it/up")
    await files.copy_to_local.aio("/made for it/up", tmp_path / "down")
    await files.make_directory.aio("/a/b")
    await files.write_text.aio("text", "/a/file")
    listed = {entry.name: (entry.type.value, entry.size) for entry in await files.list_files.aio("/a")}
    await files.remove.aio("/a", recursive=True)

    assert (tmp_path / "down").read_bytes() == data
    assert listed["file"] == ("file", 4)
    assert listed["b"][0] == "directory"
    assert (await files.stat.aio("/made for it")).permissions == "rwxr-xr-x"
    with pytest.raises(modal.exception.SandboxFilesystemNotFoundError):
        await files.list_files.aio("/a")


@pytest.mark.parametrize(
    ("operation", "arguments", "error"),
    [
        ("read_bytes", ("/none",), modal.exception.SandboxFilesystemNotFoundError),
        ("read_bytes", ("/etc",), modal.exception.SandboxFilesystemIsADirectoryError),
        ("read_bytes", ("/etc/passwd/x",), modal.exception.SandboxFilesystemError),
        ("write_bytes", (b"", "/etc"), modal.exception.SandboxFilesystemIsADirectoryError),
        ("write_bytes", (b"x" * 1_000_000, "/etc/passwd/x"), modal.exception.SandboxFilesystemNotADirectoryError),
        ("list_files", ("/etc/passwd",), modal.exception.SandboxFilesystemNotADirectoryError),
        ("remove", ("/etc",), modal.exception.SandboxFilesystemDirectoryNotEmptyError),
        ("remove", ("/none",), modal.exception.SandboxFilesystemNotFoundError),
        ("stat", ("/none",), modal.exception.SandboxFilesystemNotFoundError),
    ],
)
async def test_the_file_tool_says_what_is_wrong(
    account: Account, operation: str, arguments: tuple[Any, ...], error: type[Exception]
) -> None:
    sandbox = await account.sandbox()
    files = sandbox.filesystem

    with pytest.raises(error):
        await getattr(files, operation).aio(*arguments)


async def test_files_belong_to_the_images_user(account: Account, debian_image: str) -> None:
    lines = ["USER nobody"]
    image = await modal.Image.from_registry(debian_image, setup_dockerfile_commands=lines).build.aio(account.app)
    sandbox = await account.sandbox(image=image)
    await sandbox.filesystem.write_text.aio("mine", "/tmp/mine")
    who = await run(sandbox, "sh", "-c", "id -un; echo $HOME")

    assert (await sandbox.filesystem.stat.aio("/tmp/mine")).owner == "nobody"
    assert who[0] == b"nobody\n/nonexistent\n"
    with pytest.raises(modal.exception.SandboxFilesystemPermissionError):
        await sandbox.filesystem.write_text.aio("", "/etc/passwd")


async def test_a_command_over_its_limit_dies_with_its_children(generation: Account) -> None:
    sandbox = await generation.sandbox()
    script = "echo early; (sleep 3; echo late > /tmp/late) & sleep 100"
    result = await run(sandbox, "sh", "-c", script, timeout=1)
    await asyncio.sleep(3)

    assert result == (b"early\n", b"", -1)
    assert (await run(sandbox, "ls", "/tmp"))[0] == b""


async def test_a_command_over_its_limit_may_look_killed(account: Account, modal_server: ModalServer) -> None:
    modal_server.set(exec_timeout_code=137)
    sandbox = await account.sandbox()

    assert await run(sandbox, "sh", "-c", "echo early; sleep 100", timeout=1) == (b"early\n", b"", 137)


async def test_a_child_left_behind_holds_the_output_but_not_the_end(account: Account) -> None:
    sandbox = await account.sandbox()
    process = await sandbox.exec.aio("sh", "-c", "(sleep 2; echo child) & echo parent")
    code = await process.wait.aio()
    at_end = time.monotonic()

    assert code == 0
    assert await process.stdout.read.aio() == "parent\nchild\n"
    assert time.monotonic() - at_end > 1


async def test_tags_and_names_find_a_sandbox(generation: Account, modal_server: ModalServer) -> None:
    modal_server.set(list_page=2)
    mine = [await generation.sandbox(name=f"box-{number}", tags={"run": "a", "n": str(number)}) for number in range(3)]
    await generation.sandbox(tags={"run": "b"})
    app_id = generation.app.app_id
    client = generation.client
    found = [box.object_id async for box in modal.Sandbox.list.aio(app_id=app_id, tags={"run": "a"}, client=client)]

    assert set(found) == {box.object_id for box in mine}
    assert await mine[1].get_tags.aio() == {"run": "a", "n": "1"}
    assert (await modal.Sandbox.from_name.aio("app", "box-1", client=client)).object_id == mine[1].object_id
    with pytest.raises(modal.exception.AlreadyExistsError):
        await generation.sandbox(name="box-1")
    await mine[1].terminate.aio()
    await generation.sandbox(name="box-1")


async def test_a_sandbox_ends_after_its_lifetime_or_when_idle(generation: Account) -> None:
    short = await generation.sandbox(timeout=1)
    idle = await generation.sandbox(idle_timeout=1)
    busy = await generation.sandbox(idle_timeout=1)
    work = await busy.exec.aio("sleep", "3")

    assert await ended(short) == 124
    assert await ended(idle) == 137
    assert await work.wait.aio() == 0


async def test_the_main_command_may_end_the_sandbox(generation: Account) -> None:
    assert await ended(await generation.sandbox("sh", "-c", "exit 5")) == 5
    assert await ended(await generation.sandbox("no-such-program")) == 127


async def test_secrets_reach_sandboxes_and_commands(generation: Account, modal_server: ModalServer) -> None:
    modal_server.set(named_secrets={"stored": {"STORED": "1"}})
    secrets = [modal.Secret.from_name("stored", client=generation.client), modal.Secret.from_dict({"INLINE": "2"})]
    sandbox = await generation.sandbox(secrets=secrets)
    late = [modal.Secret.from_dict({"LATE": "3"})]

    assert (await run(sandbox, "sh", "-c", "echo $STORED $INLINE $LATE", secrets=late))[0] == b"1 2 3\n"
    with pytest.raises(modal.exception.NotFoundError):
        await generation.sandbox(secrets=[modal.Secret.from_name("none", client=generation.client)])


async def test_a_volume_outlives_a_sandbox(account: Account) -> None:
    volume = modal.Volume.from_name("data", create_if_missing=True, client=account.client)
    first = await account.sandbox(volumes={"/data": volume})
    await run(first, "sh", "-c", "echo kept > /data/file")
    await first.terminate.aio()

    second = await account.sandbox(volumes={"/data": volume})
    assert (await run(second, "cat", "/data/file"))[0] == b"kept\n"


async def test_a_blocked_sandbox_has_no_network(generation: Account) -> None:
    blocked, usual = await generation.sandbox(block_network=True), await generation.sandbox()
    links = "cat /proc/net/dev"

    assert b"eth0" not in (await run(blocked, "sh", "-c", links))[0]
    assert b"eth0" in (await run(usual, "sh", "-c", links))[0]


async def test_sixty_four_light_sandboxes_keep_their_files_apart(light_modal_server: ModalServer) -> None:
    async with light_modal_server.client() as client:
        app = await modal.App.lookup.aio("app", client=client, create_if_missing=True)
        image = await modal.Image.from_registry("any/image").build.aio(app)

        async def one(number: int) -> bytes:
            sandbox = await modal.Sandbox.create.aio("sleep", "infinity", app=app, image=image, workdir="/space")
            printed, _, _ = await run(sandbox, "sh", "-c", f"echo {number} >> /app.txt; cat /app.txt; pwd")
            await sandbox.terminate.aio()
            await sandbox.detach.aio()
            return printed

        printed = await asyncio.gather(*(one(number) for number in range(64)))

    assert printed == [f"{number}\n/space\n".encode() for number in range(64)]
    state = light_modal_server.state()
    assert (state["created"], state["running"]) == (64, 0)
