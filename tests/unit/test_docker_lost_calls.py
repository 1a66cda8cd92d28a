"""A container's commands and files while an engine is slow, torn or full."""

import asyncio
import base64
import json
import threading
import time
from pathlib import Path, PurePosixPath

import pytest
from agentcompass.adapters.environments.docker import engine as engine_module
from agentcompass.adapters.environments.docker import sandbox as sandbox_module
from agentcompass.adapters.environments.docker.container import DockerContainer
from agentcompass.adapters.environments.docker.engine import DockerEngine
from agentcompass.adapters.environments.docker.images import DockerImage
from agentcompass.adapters.environments.docker.sandbox import DockerSandbox
from agentcompass.adapters.support import supervised_commands
from agentcompass.domain.errors import SandboxFailed, SandboxLost
from agentcompass.domain.sandbox import ExecResult, SandboxSpec
from agentcompass.testing.environment import an_owner, sh
from cancelling import cancelled
from docker_fakes import FakeEngine, Ran, Request

pytest_plugins = ("docker_fixtures",)

ARCHIVE = "/containers/[^/]+/archive"
STAT = base64.b64encode(json.dumps({"mode": 0o644, "size": 1 << 20}).encode()).decode()
FILE = PurePosixPath("/file")
ALIVE = Ran(marked=False, printed=b"alive\n")
SPEC = SandboxSpec(image="image", timeout=600)


@pytest.fixture
def container() -> DockerContainer:
    container = DockerContainer(SPEC, an_owner())
    container.started_at = time.monotonic()
    return container


@pytest.fixture
def sandbox(engine: DockerEngine, container: DockerContainer) -> DockerSandbox:
    image = DockerImage("image", "sha256:1", "sha256:1", "linux/amd64", "/", "nobody", ())
    return DockerSandbox(engine, container, "id", image, SPEC)


class Held:
    """Transfers that begin and do not end; each is told of when its caller lets go."""

    def __init__(self) -> None:
        self.begun, self.let_go, self.over = threading.Event(), threading.Event(), threading.Event()

    def download(self, request: Request) -> None:
        request.begin(X_Docker_Container_Path_Stat=STAT)
        request.wfile.flush()
        self.begun.set()
        if request.wait_for_close(20):
            self.let_go.set()

    def start(self, request: Request) -> None:
        request.body()
        request.begin()
        self.upload(request)

    def upload(self, request: Request) -> None:
        self.begun.set()
        if request.wait_for_close(20):
            self.let_go.set()

    def wait(self, request: Request) -> None:
        self.begun.set()
        self.over.wait(20)
        request.say({"message": "no such file"}, 404)


async def _begun(held: Held) -> None:
    assert await asyncio.to_thread(held.begun.wait, 10)


def was_killed(fake: FakeEngine) -> bool:
    """Whether a later command looked for the processes of the first one."""
    return any("AGENTCOMPASS_EXEC=" in word for words in fake.executed[1:] for word in words)


async def test_a_cancelled_download_has_ended(fake: FakeEngine, sandbox: DockerSandbox, tmp_path: Path) -> None:
    held = Held()
    fake.on(f"GET {ARCHIVE}", held.download)
    copying = asyncio.create_task(sandbox.download(FILE, tmp_path / "file"))
    await _begun(held)

    assert await cancelled(copying)
    assert held.let_go.wait(1)


async def test_a_cancelled_upload_has_ended(fake: FakeEngine, sandbox: DockerSandbox, tmp_path: Path) -> None:
    held = Held()
    fake.on(f"PUT {ARCHIVE}", held.upload)
    with open(tmp_path / "file", "wb") as file:
        file.truncate(1 << 26)
    copying = asyncio.create_task(sandbox.upload(tmp_path / "file", FILE))
    await _begun(held)

    assert await cancelled(copying)
    assert held.let_go.wait(1)


async def test_transfers_hold_no_thread_that_starts_and_removals_need(
    fake: FakeEngine, engine: DockerEngine, sandbox: DockerSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "_SHORT_CALLS", 4)
    held = Held()
    fake.on(f"GET {ARCHIVE}", held.wait)
    reads = [asyncio.create_task(sandbox.read_bytes(FILE, 1)) for _ in range(8)]
    await _begun(held)
    try:
        async with asyncio.timeout(5):
            assert await engine.call(lambda client: client.version())
    finally:
        held.over.set()
        await asyncio.gather(*reads, return_exceptions=True)


async def test_a_file_in_place_of_a_parent_folder_is_no_file(fake: FakeEngine, sandbox: DockerSandbox) -> None:
    said = "lstat /var/lib/docker/overlay2/1/merged/file/a: not a directory"
    fake.on(f"GET {ARCHIVE}", lambda request: request.say({"message": said}, 500))

    with pytest.raises(FileNotFoundError, match="/file/a"):
        await sandbox.read_bytes(PurePosixPath("/file/a"), 10)


async def test_an_error_of_this_machines_files_is_the_providers_failure(
    sandbox: DockerSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sandbox_module, "put_path", full)

    with pytest.raises(SandboxFailed, match="No space left on device"):
        await sandbox.upload(tmp_path, FILE)
    monkeypatch.undo()
    with pytest.raises(FileNotFoundError):
        await sandbox.upload(tmp_path / "missing", FILE)


async def test_a_kill_that_takes_too_long_does_not_hide_the_cancellation(
    fake: FakeEngine, sandbox: DockerSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = threading.Event()
    fake.commands = lambda _: Ran(hold=hold)
    monkeypatch.setattr(supervised_commands, "KILL_LIMIT_S", 0.05)
    running = asyncio.create_task(sandbox.exec(sh("sleep 60")))
    while not any(call.endswith("/start") for call in fake.calls):
        await asyncio.sleep(0.01)
    ended = await cancelled(running)
    hold.set()

    assert ended


async def test_input_that_cannot_be_removed_does_not_spoil_a_good_command(
    fake: FakeEngine, sandbox: DockerSandbox
) -> None:
    fake.on(f"PUT {ARCHIVE}", lambda request: (request.body(), request.say({})))
    fake.commands = lambda words: Ran(refused=words[2].startswith("rm -rf"))
    result = await sandbox.exec(sh("cat", stdin=b"in"))

    assert result.ok
    assert len(fake.executed) == 2


@pytest.mark.parametrize(
    "ended", [Ran(marked=False, running=True, code=None), Ran(marked=False), Ran(marked=False, code=1)]
)
async def test_a_command_whose_stream_was_lost_is_killed(fake: FakeEngine, sandbox: DockerSandbox, ended: Ran) -> None:
    def ran(words: list[str]) -> Ran:
        if words[2] == "echo alive":
            return ALIVE
        return ended if "echo lost" in words else Ran(marked=False)

    fake.commands = ran
    with pytest.raises(SandboxFailed, match="stream"):
        await sandbox.exec(sh("echo lost"))

    assert was_killed(fake)


async def _silent(fake: FakeEngine, sandbox: DockerSandbox, monkeypatch: pytest.MonkeyPatch, ended: Ran) -> ExecResult:
    for module in (sandbox_module, supervised_commands):
        monkeypatch.setattr(module, "AFTER_KILL_S", (0.5, 0.1))
    ended.hold = threading.Event()
    fake.commands = lambda words: ended if "be silent" in words else ALIVE
    try:
        return await sandbox.exec(sh("be silent", timeout_s=0.5))
    finally:
        ended.hold.set()


async def test_a_silent_command_that_the_engine_says_is_running_is_over_its_limit(
    fake: FakeEngine, sandbox: DockerSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = await _silent(fake, sandbox, monkeypatch, Ran(marked=False, running=True))

    assert result.timed_out
    assert was_killed(fake)


async def test_a_command_whose_end_only_the_engine_saw_is_no_time_out(
    fake: FakeEngine, sandbox: DockerSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SandboxFailed, match="streams"):
        await _silent(fake, sandbox, monkeypatch, Ran(marked=False, code=0))

    assert was_killed(fake)


async def test_a_command_that_only_the_engine_saw_killed_has_its_exit_code(
    fake: FakeEngine, sandbox: DockerSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = await _silent(fake, sandbox, monkeypatch, Ran(marked=False, code=137))

    assert (result.exit_code, result.timed_out) == (137, False)


async def test_a_command_that_was_killed_in_a_container_that_is_ending_has_no_exit_code(
    fake: FakeEngine, sandbox: DockerSandbox
) -> None:
    fake.commands = lambda _: Ran(marked=False, code=137)

    with pytest.raises(SandboxLost, match="ending"):
        await sandbox.exec(sh("true"))


async def test_a_folder_that_cannot_be_made_is_told(fake: FakeEngine, sandbox: DockerSandbox, tmp_path: Path) -> None:
    fake.commands = lambda _: Ran(marked=False, code=1)

    with pytest.raises(SandboxFailed, match="upload to '/file'"):
        await sandbox.upload(tmp_path, FILE)


async def test_a_container_that_is_just_ending_names_the_lifetime_that_is_over(
    fake: FakeEngine, sandbox: DockerSandbox, container: DockerContainer
) -> None:
    container.started_at -= 600
    said = {"message": "Container id is not running"}
    fake.on("POST /containers/id/exec", lambda request: (request.body(), request.say(said, 409)))

    with pytest.raises(SandboxLost, match=r"lifetime \(timeout\) of 600 s is over"):
        await sandbox.exec(sh("true"))


async def test_a_cancelled_helper_lets_its_connection_go(fake: FakeEngine, sandbox: DockerSandbox) -> None:
    held = Held()
    fake.on("POST /exec/.*/start", held.start)
    killing = asyncio.create_task(sandbox.kill_processes())
    await _begun(held)

    assert await cancelled(killing)
    assert await asyncio.to_thread(held.let_go.wait, 2)


async def test_a_command_whose_lost_stream_is_being_explained_is_killed_by_a_cancellation(
    fake: FakeEngine, sandbox: DockerSandbox
) -> None:
    asking, hold = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def ran(words: list[str]) -> Ran:
        if words[2] == "echo alive":
            loop.call_soon_threadsafe(asking.set)
            return Ran(hold=hold)
        return Ran(marked=False, running="echo lost" in words, code=None if "echo lost" in words else 0)

    fake.commands = ran
    running = asyncio.create_task(sandbox.exec(sh("echo lost")))
    await asyncio.wait_for(asking.wait(), 10)
    ended = await cancelled(running)
    hold.set()

    assert ended
    assert was_killed(fake)
