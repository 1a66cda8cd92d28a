"""The environment `host_process`: the contract suite, and what is its own."""

import asyncio
import errno
import itertools
import os
import resource
import shutil
import signal
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import pytest_asyncio
from agentcompass.adapters.environments.host_process import sandbox as sandbox_module
from agentcompass.adapters.environments.host_process.environment import HostProcessEnvironment, HostProcessParameters
from agentcompass.adapters.environments.host_process.folder import SandboxFolder
from agentcompass.adapters.environments.host_process.processes import Mark, kill_marked, marked
from agentcompass.adapters.environments.host_process.running import Blocking
from agentcompass.adapters.environments.host_process.sandbox import HostSandbox
from agentcompass.adapters.support.liveness import this_host
from agentcompass.domain.errors import ConfigError, SandboxFailed, SandboxLost, SandboxStartFailed
from agentcompass.domain.ports import Environment, Sandbox
from agentcompass.domain.sandbox import SandboxOwner, SandboxSpec, SweepSelector
from agentcompass.testing.environment import ContractSetting, EnvironmentContract, LifetimeContract, an_owner, sh
from cancelling import cancelled
from structlog.testing import capture_logs

APP = PurePosixPath("/app")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tmp_path / "sandboxes"


@pytest.fixture
def environment(base: Path) -> HostProcessEnvironment:
    return HostProcessEnvironment(HostProcessParameters(root_folder=base))


@pytest.fixture
async def sandbox(environment: HostProcessEnvironment):
    async with environment.open(SandboxSpec(), an_owner()) as sandbox:
        yield sandbox
    await environment.close()


@pytest_asyncio.fixture
async def held_copies(
    sandbox: HostSandbox, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Begins more reads of files than there are threads for; they last until the test's end."""
    let_go, reads = threading.Event(), []
    monkeypatch.setattr(SandboxFolder, "read", lambda *_: let_go.wait(30) and b"")

    async def hold() -> None:
        reads.extend(asyncio.create_task(sandbox.read_bytes(APP / "file", 1)) for _ in range(20))
        await asyncio.sleep(0.05)

    yield hold
    let_go.set()
    await asyncio.gather(*reads)


class TestHostProcess(EnvironmentContract):
    @pytest.fixture
    def environment(self, base: Path) -> Environment:
        return HostProcessEnvironment(HostProcessParameters(root_folder=base))


class TestHostProcessWhoseFolderIsDeleted(ContractSetting):
    """The promises about lost sandboxes hold when somebody deletes the folder, too."""

    test_calls = LifetimeContract.test_every_call_on_a_destroyed_sandbox_says_that_it_is_lost
    test_commands = LifetimeContract.test_a_command_whose_sandbox_is_destroyed_says_that_it_is_lost
    test_end = LifetimeContract.test_a_destroyed_sandbox_is_left_without_an_error

    @pytest.fixture
    def environment(self, base: Path) -> Environment:
        self.base = base
        return HostProcessEnvironment(HostProcessParameters(root_folder=base))

    async def destroy(self, environment: Environment, sandbox: Sandbox, owner: SandboxOwner) -> None:
        kill_marked(Mark(f"AGENTCOMPASS_SANDBOX={sandbox.id}"), 10)
        shutil.rmtree(self.base / sandbox.id)


async def test_paths_of_the_sandbox_begin_at_its_root(sandbox: HostSandbox) -> None:
    await sandbox.exec(
        sh('mkdir -p "${AGENTCOMPASS_ROOT:-}/logs/verifier"; cd "$AGENTCOMPASS_ROOT/logs"; echo 1 > verifier/reward')
    )
    told = await sandbox.exec(sh('printf "%s\n" "$PWD" "$HOME" "$TMPDIR" "$AGENTCOMPASS_ROOT"'))
    workspace, home, temporary, root = told.stdout.splitlines()

    assert await sandbox.read_bytes(PurePosixPath("/logs/verifier/reward"), 10) == b"1\n"
    assert (workspace, home, temporary) == (f"{root}/app", f"{root}/home", f"{root}/tmp")


async def test_a_path_that_a_command_told_may_be_given_back(sandbox: HostSandbox) -> None:
    told = await sandbox.exec(sh("mkdir made; cd made; pwd; echo x > file"))
    folder = PurePosixPath(told.stdout.strip())
    again = await sandbox.exec(sh("cat file", cwd=folder))

    assert again.stdout == "x\n"
    assert await sandbox.read_bytes(folder / "file", 10) == b"x\n"


async def test_dots_do_not_lead_out_of_the_root(sandbox: HostSandbox, base: Path) -> None:
    await sandbox.write_bytes(PurePosixPath("/../../../outside"), b"x")

    assert await sandbox.read_bytes(PurePosixPath("/outside"), 10) == b"x"
    assert not os.path.lexists(base / "outside")
    assert os.path.lexists(base / sandbox.id / "root" / "outside")


async def test_in_a_working_directory_that_cannot_be_nothing_runs(sandbox: HostSandbox) -> None:
    result = await sandbox.exec(sh("echo ran", cwd=APP / ("long" * 100)))

    assert (result.exit_code, result.stdout) == (1, "")


async def test_files_behind_a_link_that_leads_out_are_refused(sandbox: HostSandbox, tmp_path: Path) -> None:
    secret = _text_file(tmp_path / "secret")
    await sandbox.exec(sh(f"ln -s {tmp_path}/secret secret; ln -s {tmp_path} folder"))
    with pytest.raises(SandboxFailed, match="outside"):
        await sandbox.read_bytes(APP / "secret", 100)
    with pytest.raises(SandboxFailed, match="outside"):
        await sandbox.write_bytes(APP / "folder" / "secret", b"theirs")
    with pytest.raises(SandboxFailed, match="outside"):
        await sandbox.upload(tmp_path / "secret", APP / "folder" / "copy")
    with pytest.raises(SandboxFailed, match="outside"):
        await sandbox.download(APP / "secret", tmp_path / "stolen")
    with pytest.raises(SandboxFailed, match="outside"):
        await sandbox.upload(tmp_path, APP / "folder")

    assert secret() == "mine"
    assert not os.path.lexists(tmp_path / "stolen")


async def test_a_written_file_replaces_a_link_instead_of_following_it(sandbox: HostSandbox, tmp_path: Path) -> None:
    victim = _text_file(tmp_path / "victim")
    await sandbox.exec(sh(f"ln -s {tmp_path}/victim link"))
    await sandbox.write_bytes(APP / "link", b"written")

    assert victim() == "mine"
    assert await sandbox.read_bytes(APP / "link", 100) == b"written"


async def test_reading_a_pipe_is_refused_and_does_not_hang(sandbox: HostSandbox) -> None:
    await sandbox.exec(sh("mkfifo pipe"))

    with pytest.raises(ValueError, match="no regular file"):
        await sandbox.read_bytes(APP / "pipe", 100)


async def test_commands_see_only_the_listed_variables(sandbox: HostSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    result = await sandbox.exec(sh("env"))
    names = {line.partition("=")[0] for line in result.stdout.splitlines()}

    assert "OPENAI_API_KEY" not in names
    assert {"PATH", "LC_ALL", "HOME", "TMPDIR", "AGENTCOMPASS_ROOT"} <= names


async def test_the_folder_is_private(sandbox: HostSandbox, base: Path) -> None:
    assert os.stat(base / sandbox.id).st_mode & 0o777 == 0o700


async def test_a_sandbox_whose_folder_may_not_be_entered_is_lost(
    sandbox: HostSandbox, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = os.stat

    def closed(path: Any, **how: Any) -> os.stat_result:
        if base / sandbox.id in Path(os.fsdecode(path)).parents:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return look(path, **how)

    monkeypatch.setattr(os, "stat", closed)
    with pytest.raises(SandboxLost, match="removed or closed"):
        await sandbox.exec(sh("true"))
    monkeypatch.undo()


async def test_nothing_is_left_of_a_sandbox_with_read_only_folders(
    environment: HostProcessEnvironment, base: Path
) -> None:
    async with environment.open(SandboxSpec(), an_owner()) as sandbox:
        await sandbox.exec(sh("mkdir -p a/b && echo x > a/b/c && chmod 000 a/b && chmod 500 a"))

    assert os.listdir(base) == []


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found through /proc")
async def test_a_process_without_our_mark_is_found_by_its_directory(
    environment: HostProcessEnvironment,
) -> None:
    async with environment.open(SandboxSpec(), an_owner()) as sandbox:
        script = "( (exec env -i setsid sh -c 'echo $$ > pid; exec sleep 300') & )"
        started = f"{script}; while ! test -s pid; do :; done; cat pid"
        pid = int((await sandbox.exec(sh(started))).stdout)
        alive = _alive(pid)

    assert alive
    assert not _alive(pid)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found through /proc")
async def test_who_came_into_the_folder_to_look_does_not_lose_the_session(
    environment: HostProcessEnvironment, base: Path, tmp_path: Path
) -> None:
    async with environment.open(SandboxSpec(), an_owner()) as sandbox:
        script = f"cd /; sleep 300 & echo $! > {tmp_path}/job; cd {base}/{sandbox.id}; sleep 300 & cd /; wait"
        terminal = await asyncio.create_subprocess_exec("sh", "-c", script, start_new_session=True)
        job = int(await _line_of(tmp_path, "job"))
        while not marked(Mark("NO=SUCH", folder=base / sandbox.id)):
            await asyncio.sleep(0.01)
    left = marked(Mark("NO=SUCH", folder=base))
    spared = [_alive(terminal.pid), _alive(job)]
    os.killpg(terminal.pid, signal.SIGKILL)
    await terminal.wait()

    assert spared == [True, True]
    assert left == set()


async def test_a_service_may_go_on_printing_after_its_command(sandbox: HostSandbox) -> None:
    await sandbox.exec(sh("(sleep 1; echo late; echo late >&2; echo survived > survived; sleep 300) & true"))
    await sandbox.exec(sh("while ! test -e survived; do sleep 1; done"))

    assert await sandbox.read_bytes(APP / "survived", 100) == b"survived\n"


async def test_open_files_do_not_grow_with_the_number_of_commands(sandbox: HostSandbox) -> None:
    await sandbox.exec(sh("true"))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        await sandbox.exec(sh("cat", stdin=b"x"))
        await sandbox.exec(sh("no-such-program"))

    assert len(os.listdir("/proc/self/fd")) <= before + 4


async def test_a_lack_of_file_descriptors_is_the_providers_failure_and_leaks_none(sandbox: HostSandbox) -> None:
    await sandbox.exec(sh("true"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = {int(number) for number in os.listdir("/proc/self/fd")}
    before, free = len(taken), (number for number in itertools.count() if number not in taken)
    third_free = next(itertools.islice(free, 2, None))  # the limit is one of numbers, and there may be gaps
    resource.setrlimit(resource.RLIMIT_NOFILE, (third_free, hard))
    try:
        with pytest.raises(SandboxFailed, match="ulimit"):
            await sandbox.exec(sh("true"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert len(os.listdir("/proc/self/fd")) == before
    assert (await sandbox.exec(sh("true"))).ok


async def test_it_warns_once_that_nothing_is_isolated(environment: HostProcessEnvironment) -> None:
    with capture_logs() as logs:
        for _ in range(2):
            async with environment.open(SandboxSpec(), an_owner()):
                pass

    assert [entry["event"] for entry in logs] == ["environment.unisolated"]


async def test_another_user_is_refused_by_name(sandbox: HostSandbox) -> None:
    with pytest.raises(ConfigError, match="'somebody'"):
        await sandbox.exec(sh("true", user="somebody"))


async def test_a_folder_that_cannot_be_made_fails_the_start(tmp_path: Path) -> None:
    _text_file(tmp_path / "file")
    environment = HostProcessEnvironment(HostProcessParameters(root_folder=tmp_path / "file"))
    checks = await environment.check()
    with pytest.raises(SandboxStartFailed, match="root_folder"):
        async with environment.open(SandboxSpec(), an_owner()):
            pass

    assert [(check.name, check.only_starting) for check in checks if not check.ok] == [("folder", False)]


async def test_a_full_disk_and_a_missing_shell_matter_only_to_what_starts(
    environment: HostProcessEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    monkeypatch.setenv("PATH", "")
    wrong = [check for check in await environment.check() if not check.ok]

    assert [(check.name, check.only_starting) for check in wrong] == [("folder", True), ("shell", True)]


async def test_the_end_of_the_lifetime_is_named(environment: HostProcessEnvironment) -> None:
    async with environment.open(SandboxSpec(timeout=0.5), an_owner()) as sandbox:
        with pytest.raises(SandboxLost, match="lifetime of 0.5 s"):
            await sandbox.exec(sh("sleep 60"))


async def test_a_sweep_cleans_up_after_a_runner_that_was_killed(
    environment: HostProcessEnvironment, base: Path
) -> None:
    runner = textwrap.dedent(f"""
        import asyncio
        from pathlib import Path
        from agentcompass.adapters.environments.host_process import environment as host_process
        from agentcompass.domain.sandbox import Command, SandboxSpec
        from agentcompass.testing.environment import an_owner
        async def main():
            parameters = host_process.HostProcessParameters(root_folder=Path({str(base)!r}))
            environment = host_process.HostProcessEnvironment(parameters)
            async with environment.open(SandboxSpec(), an_owner(run_id="killed")) as sandbox:
                await sandbox.exec(Command(script="setsid sleep 300 & echo $! > pid; sleep 300", timeout_s=300))
        asyncio.run(main())
    """)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", runner, stderr=asyncio.subprocess.DEVNULL)
    try:
        pid = int(await _line_of(base, "ac-*/root/app/pid"))
    finally:
        process.kill()
        await process.wait()
    alive = _alive(pid)
    selector = SweepSelector(run_id="killed", host=this_host(), now=datetime.now(UTC))
    swept = await environment.sweep(selector)

    assert alive
    assert [(one.run_id, one.error) for one in swept] == [("killed", "")]
    assert not _alive(pid)
    assert os.listdir(base) == []


async def test_a_sweep_removes_old_folders_without_a_label_and_spares_what_is_not_ours(
    environment: HostProcessEnvironment, base: Path
) -> None:
    for name in (".ac-old.removing", ".ac-new.starting", "somebody-elses"):
        os.makedirs(base / name)
    long_ago = time.time() - 100_000
    os.utime(base / ".ac-old.removing", (long_ago, long_ago))
    os.utime(base / "somebody-elses", (long_ago, long_ago))
    swept = await environment.sweep(SweepSelector(host=this_host(), now=datetime.now(UTC)))

    assert swept == []
    assert sorted(os.listdir(base)) == [".ac-new.starting", "somebody-elses"]


async def test_a_command_is_killed_at_once_while_copies_hold_their_threads(
    sandbox: HostSandbox, held_copies: Callable[[], Awaitable[None]], base: Path
) -> None:
    running = asyncio.create_task(sandbox.exec(sh("echo $$ > pid; sleep 300", timeout_s=300)))
    pid = int(await _line_of(base, "ac-*/root/app/pid"))
    await held_copies()

    assert await cancelled(running)
    assert not _alive(pid)


async def test_a_sandbox_is_removed_while_copies_of_another_hold_their_threads(
    environment: HostProcessEnvironment, sandbox: HostSandbox, held_copies: Callable[[], Awaitable[None]], base: Path
) -> None:
    async with asyncio.timeout(10), environment.open(SandboxSpec(), an_owner(attempt=2)):
        await held_copies()

    assert os.listdir(base) == [sandbox.id]


async def test_a_kill_that_takes_too_long_does_not_hide_the_cancellation(
    sandbox: HostSandbox, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = asyncio.create_task(sandbox.exec(sh("echo $$ > pid; sleep 300", timeout_s=300)))
    await _line_of(base, "ac-*/root/app/pid")
    let_go = threading.Event()
    monkeypatch.setattr(sandbox_module, "KILL_LIMIT_S", 0.05)
    monkeypatch.setattr(sandbox_module, "kill_marked", lambda *_: let_go.wait(30) and set())
    ended = await cancelled(running)
    let_go.set()
    monkeypatch.undo()

    assert ended


async def test_a_kill_that_takes_too_long_is_told_with_its_limit(
    sandbox: HostSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go = threading.Event()
    monkeypatch.setattr(sandbox_module, "QUEUE_LIMIT_S", 0.1)
    monkeypatch.setattr(sandbox_module, "kill_marked", lambda *_: let_go.wait(30) and set())
    with pytest.raises(SandboxFailed, match=r"the kill of a command .* not finished within 0\.1 s"):
        await sandbox.exec(sh("sleep 60", timeout_s=0.1))
    let_go.set()
    monkeypatch.undo()


async def test_the_limit_of_a_blocking_call_begins_when_a_thread_takes_it_up() -> None:
    blocking, let_go = Blocking(), threading.Event()
    before = [asyncio.ensure_future(blocking(let_go.wait, 30)) for _ in range(8)]
    queued = asyncio.create_task(blocking.within(0.2, lambda: "done"))
    await asyncio.sleep(0.3)
    let_go.set()
    await asyncio.gather(*before)

    assert await queued == "done"
    with pytest.raises(TimeoutError, match=r"0\.01 s"):
        await blocking.within(0.01, lambda: time.sleep(0.1))
    blocking.close()


async def test_fifty_sandboxes_at_once_leave_nothing(environment: HostProcessEnvironment, base: Path) -> None:
    async def used(number: int) -> str:
        async with environment.open(SandboxSpec(), an_owner(attempt=number)) as sandbox:
            await sandbox.write_bytes(APP / "number", str(number).encode())
            return (await sandbox.exec(sh("cat number; sleep 300 & true"))).stdout

    outputs = await asyncio.gather(*map(used, range(1, 51)))

    assert outputs == [str(number) for number in range(1, 51)]
    assert os.listdir(base) == []
    assert marked(Mark("NO=SUCH", folder=base)) == set()


def _text_file(path: Path) -> Callable[[], str]:
    path.write_text("mine")
    return path.read_text


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


async def _line_of(base: Path, pattern: str) -> str:
    for _ in range(600):
        lines = _lines(base, pattern)
        if lines:
            return lines[0]
        await asyncio.sleep(0.1)
    raise AssertionError(f"no {pattern} in {base}")


def _lines(base: Path, pattern: str) -> list[str]:
    return [line for path in base.glob(pattern) for line in path.read_text().splitlines()]
