"""The local Modal server misbehaves as it is told, and keeps out whom it should."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import modal
import pytest
from modal_server_client import Account, ModalServer, containers, run, running_server

pytest_plugins = ("modal_fixtures",)
pytestmark = pytest.mark.docker


async def test_only_known_tokens_get_in(modal_server: ModalServer) -> None:
    modal_server.set(tokens={"ak-1": "as-1", "ak-2": "as-2"}, workspaces={"ak-2": "second"})
    names = []
    for token in (("ak-1", "as-1"), ("ak-2", "as-2")):
        async with modal_server.client(token) as client:
            workspace = modal.Workspace.from_context(client=client)
            await workspace.hydrate.aio()
            names.append(workspace.name)

    assert names == ["test-workspace", "second"]
    async with modal_server.client(("ak-1", "as-2")) as client:
        with pytest.raises(modal.exception.AuthError):
            await client.hello.aio()
    assert modal_server.calls("ClientHello")[-1]["headers"]["x-modal-token-id"] == "ak-1"


def test_modal_setup_stores_a_token_that_gets_in(modal_server: ModalServer, tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MODAL_")}
    env = {**kept, "HOME": str(tmp_path), "MODAL_SERVER_URL": modal_server.url, "BROWSER": "true"}
    told = [
        subprocess.run([sys.executable, "-m", "modal", *words], env=env, capture_output=True, text=True, check=False)
        for words in (["setup"], ["token", "info"])
    ]

    assert [ended.returncode for ended in told] == [0, 0], told
    assert "test-workspace" in told[1].stdout
    assert "as-test" in (tmp_path / ".modal.toml").read_text()


async def test_one_workspace_does_not_see_the_others_sandboxes(account: Account, modal_server: ModalServer) -> None:
    modal_server.set(tokens={"ak-test": "as-test", "ak-2": "as-2"}, workspaces={"ak-2": "second"})
    sandbox = await account.sandbox(tags={"run": "a"})
    async with modal_server.client(("ak-2", "as-2")) as client:
        with pytest.raises(modal.exception.NotFoundError):
            await modal.Sandbox.from_id.aio(sandbox.object_id, client=client)
        app = await modal.App.lookup.aio("app", client=client, create_if_missing=True)

        assert [box async for box in modal.Sandbox.list.aio(app_id=app.app_id, client=client)] == []


async def test_apps_and_environments_must_exist(account: Account) -> None:
    with pytest.raises(modal.exception.NotFoundError):
        await modal.App.lookup.aio("other", client=account.client)
    with pytest.raises(modal.exception.NotFoundError):
        await modal.App.lookup.aio("app", client=account.client, environment_name="dev", create_if_missing=True)


async def test_what_the_sdk_retries_is_carried_out_once(generation: Account, modal_server: ModalServer) -> None:
    modal_server.fault("SandboxCreateV2", status="UNAVAILABLE", after=True, times=2)
    modal_server.fault("SandboxCreate", status="UNAVAILABLE", after=True, times=2)
    sandbox = await generation.sandbox()
    modal_server.fault("TaskExecStart", status="INTERNAL", after=True, times=3)
    await run(sandbox, "sh", "-c", "echo once >> /tmp/times")

    assert modal_server.state()["created"] == 1
    assert (await run(sandbox, "cat", "/tmp/times"))[0] == b"once\n"
    assert [call["status"] for call in modal_server.calls("TaskExecStart")] == ["INTERNAL"] * 3 + ["OK"] * 2


async def test_a_refusal_without_a_policy_is_not_retried(account: Account, modal_server: ModalServer) -> None:
    modal_server.fault("SandboxCreateV2", status="RESOURCE_EXHAUSTED", message="spend limit reached", times=0)
    with pytest.raises(modal.exception.ResourceExhaustedError, match="spend limit"):
        await account.sandbox()

    assert len(modal_server.calls("SandboxCreateV2")) == 1
    assert modal_server.state()["created"] == 0


async def test_creation_is_limited_to_a_rate(account: Account, modal_server: ModalServer) -> None:
    modal_server.set(create_rate=2)
    refused = await asyncio.gather(*(account.sandbox() for _ in range(5)), return_exceptions=True)
    errors = [one for one in refused if isinstance(one, modal.exception.ResourceExhaustedError)]

    assert errors
    assert modal_server.state()["created"] == 5 - len(errors)
    assert "creation rate limit (2/s) exceeded" in str(errors[0])
    modal_server.set(rate_retry_after_s=0.3)
    await asyncio.gather(*(account.sandbox() for _ in range(4)))
    accepted = modal_server.state()["creation_times"]
    assert all(later - earlier >= 0.9 for earlier, later in zip(accepted, accepted[2:], strict=False))


async def test_output_survives_broken_connections(account: Account, modal_server: ModalServer) -> None:
    sandbox = await account.sandbox()
    modal_server.fault("TaskExecStdioRead", drop=True, after_messages=3)
    reading = asyncio.ensure_future(run(sandbox, "sh", "-c", "seq 200000; sleep 1; seq 200000"))
    await asyncio.sleep(0.5)
    modal_server.cut_connections()
    numbers = b"".join(b"%d\n" % number for number in range(1, 200_001))

    assert await reading == (numbers * 2, b"", 0)


async def test_a_short_lived_token_is_renewed(generation: Account, modal_server: ModalServer) -> None:
    modal_server.set(jwt_life_s=2)
    sandbox = await generation.sandbox()
    await run(sandbox, "true")
    await asyncio.sleep(2.5)

    assert (await run(sandbox, "echo", "still"))[0] == b"still\n"


async def test_a_sandbox_that_died_is_not_found(generation: Account, modal_server: ModalServer) -> None:
    sandbox = await generation.sandbox()
    process = await sandbox.exec.aio("sleep", "100")
    modal_server.end(sandbox.object_id, "KERNEL_OOM_KILL", 137)

    with pytest.raises(modal.exception.NotFoundError):
        await process.wait.aio()
    with pytest.raises(modal.exception.NotFoundError):
        await sandbox.exec.aio("true")
    with pytest.raises(modal.exception.NotFoundError):
        await sandbox.filesystem.read_bytes.aio("/etc/passwd")
    assert await sandbox.poll.aio() == 137


async def test_a_sandbox_beyond_the_capacity_waits_for_its_turn(
    account: Account, modal_server: ModalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODAL_SANDBOX_V2", "0")
    modal_server.set(capacity=1)
    first = await account.sandbox()
    second = asyncio.ensure_future(account.sandbox())
    while len(modal_server.sandboxes()) < 2:
        await asyncio.sleep(0.05)
    await asyncio.sleep(1)
    waited = not second.done()
    await first.terminate.aio()

    assert waited
    assert await run(await second, "echo", "hi") == (b"hi\n", b"", 0)


async def test_a_slow_start_holds_the_first_command_only(account: Account, modal_server: ModalServer) -> None:
    modal_server.set(start_delay_s=3)
    sandbox = await account.sandbox()
    started_at = modal_server.sandboxes()[0]["started_at"]

    assert started_at is None
    assert (await run(sandbox, "echo", "up"))[0] == b"up\n"


async def test_much_output_does_not_fill_the_servers_memory(account: Account, modal_server: ModalServer) -> None:
    sandbox = await account.sandbox()
    process = await sandbox.exec.aio("sh", "-c", "yes 0123456789abcdef | head -c 300000000", text=False)
    size = 0
    async for chunk in process.stdout:
        size += len(chunk)
    resident = Path(f"/proc/{modal_server.pid}/status").read_text().partition("VmHWM:")[2].split()[0]

    assert size == 300_000_000
    assert int(resident) < 320_000


def test_a_killed_server_leaves_nothing(modal_server_process: ModalServer, debian_image: str) -> None:
    async def start(server: ModalServer) -> str:
        async with server.client() as client:
            app = await modal.App.lookup.aio("app", client=client, create_if_missing=True)
            image = modal.Image.from_registry(debian_image, setup_dockerfile_commands=["LABEL left=over"])
            sandbox = await modal.Sandbox.create.aio("sleep", "infinity", app=app, image=image)
            await run(sandbox, "true")
            return f"modal-{sandbox.object_id}"

    with running_server() as server:
        name = asyncio.run(start(server))
        was_there = name in containers()
        os.kill(server.pid, signal.SIGKILL)
        while name in containers():
            time.sleep(0.1)

    assert was_there
