"""What Docker's sandboxes are made of, how few calls they cost, and what is said when one is lost."""

import asyncio
import re
import signal
import tracemalloc
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path, PurePosixPath

import images
import pytest
import pytest_asyncio
import requests
from agentcompass.adapters.environments.docker.environment import DockerEnvironment, DockerParameters
from agentcompass.domain.errors import ConfigError, SandboxFailed, SandboxLost, SandboxStartFailed
from agentcompass.domain.ports import Sandbox
from agentcompass.domain.sandbox import Command, Network, SandboxSpec
from agentcompass.testing.environment import an_owner, sh
from agentcompass.testing.environment.setting import argv
from docker import APIClient

pytestmark = pytest.mark.docker


@pytest.fixture
def spec(busybox_image: str) -> SandboxSpec:
    return SandboxSpec(image=busybox_image, timeout=300)


@pytest_asyncio.fixture
async def sandbox(environment: DockerEnvironment, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
    async with environment.open(spec, an_owner()) as sandbox:
        yield sandbox


@pytest.fixture
def odd_image(docker_client: APIClient, busybox_image: str) -> Iterator[str]:
    """One whose entry point swallows commands, with a health check, a volume, a user and a variable no shell takes."""
    tag = f"agentcompass-test/odd:{uuid.uuid4().hex[:12]}"
    dockerfile = f"FROM {busybox_image}\n" + "\n".join(
        [
            'ENTRYPOINT ["/bin/false"]',
            'CMD ["swallowed"]',
            "HEALTHCHECK --interval=1s CMD touch /checked",
            "STOPSIGNAL SIGQUIT",
            "WORKDIR /odd/place",
            "VOLUME /kept",
            "ENV odd.name=value",
            "USER 65534",
        ]
    )
    images.build(docker_client, tag, dockerfile)
    yield tag
    docker_client.remove_image(tag, force=True)


async def test_an_images_entry_point_and_health_check_do_not_run(
    environment: DockerEnvironment, odd_image: str
) -> None:
    async with environment.open(SandboxSpec(image=odd_image), an_owner()) as sandbox:
        result = await sandbox.exec(sh("pwd; id -u; sleep 2; test -e /checked || echo unchecked"))

    assert result.stdout.split() == ["/odd/place", "65534", "unchecked"]


async def test_volumes_go_with_their_sandbox(
    environment: DockerEnvironment, odd_image: str, docker_client: APIClient
) -> None:
    async with environment.open(SandboxSpec(image=odd_image), an_owner()) as sandbox:
        mounts = docker_client.inspect_container(sandbox.id)["Mounts"]
    left = {volume["Name"] for volume in docker_client.volumes()["Volumes"] or []}

    assert mounts
    assert not left & {mount["Name"] for mount in mounts}


async def test_an_images_odd_variables_reach_a_program(environment: DockerEnvironment, odd_image: str) -> None:
    async with environment.open(SandboxSpec(image=odd_image), an_owner()) as sandbox:
        result = await sandbox.exec(argv("env"))

    assert "odd.name=value\n" in result.stdout


@pytest.mark.parametrize("form", [sh("env"), argv("env"), sh("env # " + "x" * 150_000)], ids=["script", "argv", "long"])
async def test_variables_that_sh_does_not_pass_on_arrive(
    environment: DockerEnvironment, debian_image: str, form: Command
) -> None:
    command = form.model_copy(update={"env": {"a.b-c": "it's\n$x", "PLAIN": "1"}})
    async with environment.open(SandboxSpec(image=debian_image), an_owner()) as sandbox:
        result = await sandbox.exec(command)

    assert "a.b-c=it's\n$x\n" in result.stdout
    assert "PLAIN=1\n" in result.stdout


async def test_without_a_network_there_is_only_the_loopback(environment: DockerEnvironment, spec: SandboxSpec) -> None:
    async with environment.open(spec.model_copy(update={"network": Network.NONE}), an_owner()) as sandbox:
        result = await sandbox.exec(sh("ls /sys/class/net"))

    assert result.stdout.split() == ["lo"]


async def test_cpu_and_memory_are_limited(
    environment: DockerEnvironment, spec: SandboxSpec, docker_client: APIClient
) -> None:
    limited = spec.model_copy(update={"cpu": 0.5, "memory": 64})
    async with environment.open(limited, an_owner()) as sandbox:
        host = docker_client.inspect_container(sandbox.id)["HostConfig"]

    assert (host["NanoCpus"], host["Memory"], host["MemorySwap"]) == (500_000_000, 64 << 20, 64 << 20)


async def test_more_cores_than_there_are_is_refused_for_good(environment: DockerEnvironment, spec: SandboxSpec) -> None:
    with pytest.raises(SandboxStartFailed, match="lower `cpu`"):
        async with environment.open(spec.model_copy(update={"cpu": 10_000}), an_owner()):
            pass


async def test_a_type_of_gpu_is_refused(environment: DockerEnvironment, spec: SandboxSpec) -> None:
    with pytest.raises(ConfigError, match="A100:2"):
        async with environment.open(spec.model_copy(update={"gpu": "A100:2"}), an_owner()):
            pass


async def test_an_unknown_user_is_told_by_name(environment: DockerEnvironment, spec: SandboxSpec) -> None:
    async with environment.open(spec.model_copy(update={"user": "nobody-here"}), an_owner()) as sandbox:
        with pytest.raises(SandboxStartFailed, match="nobody-here"):
            await sandbox.exec(sh("true"))


async def test_a_command_out_of_memory_is_an_ordinary_failure(
    environment: DockerEnvironment, spec: SandboxSpec
) -> None:
    async with environment.open(spec.model_copy(update={"memory": 32}), an_owner()) as sandbox:
        result = await sandbox.exec(sh("x=$(cat /dev/zero | tr '\\0' x); echo never", timeout_s=60))
        after = await sandbox.exec(sh("echo alive"))

    assert not result.ok
    assert "never" not in result.stdout
    assert after.stdout == "alive\n"


async def test_a_sandbox_costs_as_few_calls_as_can_be(
    environment: DockerEnvironment, spec: SandboxSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with environment.open(spec, an_owner()):
        pass
    (tmp_path / "file").write_text("x")
    calls = _recorded_calls(monkeypatch)
    directories = (PurePosixPath("/logs/agent"),)
    async with environment.open(spec.model_copy(update={"directories": directories}), an_owner()) as sandbox:
        await sandbox.exec(sh("exit 3"))
        await sandbox.upload(tmp_path / "file", PurePosixPath("/new/file"))
        await sandbox.exec(argv("true"))
        await sandbox.read_bytes(PurePosixPath("/new/file"), 10)
        await sandbox.download(PurePosixPath("/new"), tmp_path / "back")

    assert calls == [
        "POST /containers/create",
        "POST /containers/ID/start",
        *("POST /containers/ID/exec", "POST /exec/ID/start"),
        "PUT /containers/ID/archive",
        *("POST /containers/ID/exec", "POST /exec/ID/start"),
        *["GET /containers/ID/archive"] * 2,
        "DELETE /containers/ID",
    ]


def _recorded_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    calls: list[str] = []
    real = requests.Session.send

    def recording(session: requests.Session, request: requests.PreparedRequest, **options: object) -> requests.Response:
        path = re.sub(r"^/v[\d.]+", "", request.path_url.partition("?")[0])
        calls.append(f"{request.method} {re.sub('[0-9a-f]{64}', 'ID', path)}")
        return real(session, request, **options)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(requests.Session, "send", recording)
    return calls


async def test_a_command_may_be_silent_for_longer_than_a_call_may_take(spec: SandboxSpec) -> None:
    environment = DockerEnvironment(DockerParameters(pull_policy="never", call_timeout_s=5))
    async with environment.open(spec, an_owner()) as sandbox:
        result = await sandbox.exec(sh("sleep 8; echo done"))
    await environment.close()

    assert (result.exit_code, result.stdout) == (0, "done\n")


async def test_a_gigabyte_of_output_leaves_memory_bounded(sandbox: Sandbox) -> None:
    tracemalloc.start()
    result = await sandbox.exec(sh("dd if=/dev/zero bs=1M count=1024 2>/dev/null; printf end", timeout_s=300))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert (result.stdout_bytes, result.truncated) == ((1 << 30) + 3, True)
    assert result.stdout.endswith("\0end")
    assert peak < 32 << 20


async def test_a_daemon_goes_on_and_prints_into_the_void(sandbox: Sandbox) -> None:
    script = "(n=0; while n=$((n + 1)) && echo $n > next && mv next count; do echo noise; sleep 0.1; done) & echo done"
    result = await sandbox.exec(sh(script))
    await asyncio.sleep(1)
    first = await sandbox.exec(sh("cat count"))
    await asyncio.sleep(1)
    second = await sandbox.exec(sh("cat count"))

    assert "done\n" in result.stdout
    assert int(second.stdout) > int(first.stdout) > 0


@pytest.mark.parametrize("image", ["busybox_image", "debian_image"])
@pytest.mark.parametrize(
    "escape",
    [
        "setsid sh -c 'LATE' &",
        "(setsid sh -c '(LATE) &' &)",
        "env -i PATH=$PATH setsid sh -c '(LATE) &' &",
        "(trap '' TERM INT HUP; (LATE) &)",
        "su -s /bin/sh nobody -c '(LATE) &' || exit",
        "su -s /bin/sh - nobody -c '(LATE) &' || exit",
    ],
    ids=["session", "orphaned session", "bare session", "deaf", "other user", "other user's login"],
)
async def test_no_child_escapes_a_timeout(
    environment: DockerEnvironment, request: pytest.FixtureRequest, image: str, escape: str
) -> None:
    async with environment.open(SandboxSpec(image=request.getfixturevalue(image)), an_owner()) as sandbox:
        result = await sandbox.exec(sh(f"{escape.replace('LATE', 'sleep 4242; true')}\nsleep 4242", timeout_s=2))
        left = await sandbox.exec(sh("cat /proc/[0-9]*/cmdline | tr '\\0' '\\n'"))

    assert result.timed_out
    assert "4242" not in left.stdout.split()


async def test_a_timeout_spares_services_that_lost_their_marks(
    environment: DockerEnvironment, debian_image: str
) -> None:
    async with environment.open(SandboxSpec(image=debian_image), an_owner()) as sandbox:
        await sandbox.exec(sh("su -s /bin/sh - nobody -c 'echo $$ > /tmp/pid; exec sleep 300' & sleep 1"))
        cut = await sandbox.exec(sh("sleep 60", timeout_s=1))
        alive = await sandbox.exec(sh("kill -0 $(cat /tmp/pid)"))

    assert cut.timed_out
    assert alive.ok


async def test_a_timeout_as_another_user_kills_too(sandbox: Sandbox) -> None:
    result = await sandbox.exec(sh("(setsid sleep 4242 &) ; sleep 4242", user="nobody", timeout_s=2))
    left = await sandbox.exec(sh("cat /proc/[0-9]*/cmdline | tr '\\0' '\\n'"))

    assert result.timed_out
    assert "4242" not in left.stdout.split()


@pytest.mark.parametrize("user", ["0", "nobody"])
@pytest.mark.parametrize("script", ["cat", "cat; sleep 60"], ids=["ended", "killed"])
async def test_input_files_are_gone_after_their_command(sandbox: Sandbox, user: str, script: str) -> None:
    limit_s = 2 if "sleep" in script else 30
    result = await sandbox.exec(sh(f"{script} #{'x' * 150_000}", user=user, stdin=b"in", timeout_s=limit_s))
    left = await sandbox.exec(sh("ls -A /tmp"))

    assert result.stdout == "in"
    assert left.stdout == ""


async def test_orphans_are_reaped(sandbox: Sandbox) -> None:
    await sandbox.exec(sh("n=0; while [ $n -lt 20 ]; do (sleep 0.1 &); n=$((n + 1)); done"))
    await asyncio.sleep(1)
    result = await sandbox.exec(sh("cat /proc/[0-9]*/stat"))

    assert " Z " not in result.stdout


async def test_signals_to_everything_leave_the_sandbox_alive(sandbox: Sandbox) -> None:
    for signals in ("kill -9 -1", "kill -15 -1; kill 1; pkill -f sleep"):
        await sandbox.exec(sh(signals))
    result = await sandbox.exec(sh("echo alive"))

    assert result.stdout == "alive\n"


async def test_a_stop_from_outside_is_obeyed_at_once(sandbox: Sandbox, docker_client: APIClient) -> None:
    await sandbox.exec(sh("true"))
    waiting = asyncio.create_task(asyncio.to_thread(docker_client.wait, sandbox.id))
    await asyncio.sleep(0.5)
    await asyncio.to_thread(docker_client.stop, sandbox.id, timeout=30)
    ended = await waiting

    assert ended["StatusCode"] == 0


async def test_a_killed_container_says_that_it_was_killed(sandbox: Sandbox, docker_client: APIClient) -> None:
    docker_client.kill(sandbox.id, signal.SIGKILL)

    with pytest.raises(SandboxLost, match="killed or removed from outside"):
        await sandbox.exec(sh("true"))


async def test_an_ended_lifetime_says_so(environment: DockerEnvironment, spec: SandboxSpec) -> None:
    async with environment.open(spec.model_copy(update={"timeout": 3}), an_owner()) as sandbox:
        with pytest.raises(SandboxLost, match=r"lifetime \(timeout\) of 3 s is over"):
            await sandbox.exec(sh("sleep 60"))


async def test_a_folder_is_never_replaced_by_a_file(sandbox: Sandbox) -> None:
    await sandbox.write_bytes(PurePosixPath("/folder/file"), b"kept")
    with pytest.raises(SandboxFailed):
        await sandbox.write_bytes(PurePosixPath("/folder"), b"x")
    kept = await sandbox.read_bytes(PurePosixPath("/folder/file"), 10)

    assert kept == b"kept"


async def test_copying_in_leaves_the_modes_of_folders_that_are_there(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    await sandbox.write_bytes(PurePosixPath("/tmp/a"), b"x")
    await sandbox.upload(tmp_path / "empty", PurePosixPath("/tmp"))
    result = await sandbox.exec(sh("stat -c %a /tmp"))

    assert result.stdout == "1777\n"


async def test_a_made_workspace_can_be_written_by_the_specs_user(
    environment: DockerEnvironment, spec: SandboxSpec
) -> None:
    wanted = spec.model_copy(update={"user": "nobody", "workspace_root": PurePosixPath("/made/here")})
    async with environment.open(wanted, an_owner()) as sandbox:
        result = await sandbox.exec(sh("echo x > file && pwd && echo $HOME"))

    assert result.stdout == "/made/here\n/\n"


async def test_a_deleted_working_directory_does_not_stop_other_commands(
    environment: DockerEnvironment, spec: SandboxSpec
) -> None:
    async with environment.open(spec.model_copy(update={"workspace_root": PurePosixPath("/work")}), an_owner()) as one:
        await one.exec(sh("rm -rf /work"))
        gone = await one.exec(sh("echo never"))
        elsewhere = await one.exec(sh("echo here", cwd=PurePosixPath("/")))

    assert not gone.ok
    assert elsewhere.stdout == "here\n"
