"""What goes wrong at Modal, injected at the local server: what is told, how often it is tried, what is left."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from agentcompass.adapters.environments.modal.environment import ModalEnvironment
from agentcompass.adapters.environments.modal.parameters import ModalParameters
from agentcompass.adapters.support.tarballs import pack_bytes
from agentcompass.domain.errors import (
    AgentCompassError,
    ConfigError,
    SandboxBusy,
    SandboxFailed,
    SandboxLost,
    SandboxStartFailed,
)
from agentcompass.domain.sandbox import Command, ImageBuild, Network, SandboxSpec
from agentcompass.testing.environment import an_owner, sh
from modal_server_client import TOKEN, ModalServer
from structlog.testing import capture_logs

pytest_plugins = ("modal_fixtures",)
pytestmark = pytest.mark.docker

CREATE = "SandboxCreateV2"


@pytest.fixture
async def modal(modal_server: ModalServer) -> AsyncIterator[ModalEnvironment]:
    """Paced fast enough for tests."""
    environment = ModalEnvironment(ModalParameters(create_rate=50, start_tries=3), modal_server.variables)
    yield environment
    await environment.close()


@pytest.fixture
def spec(debian_image: str) -> SandboxSpec:
    return SandboxSpec(image=debian_image, timeout=600)


async def opened(environment: ModalEnvironment, spec: SandboxSpec, script: str = "echo here") -> str:
    """What a script prints in a new sandbox, which is gone when this returns."""
    async with environment.open(spec, an_owner()) as sandbox:
        return (await sandbox.exec(sh(script))).stdout


@pytest.mark.parametrize(
    "fault",
    [
        {"status": "RESOURCE_EXHAUSTED", "message": "Sandbox creation rate limit (5/s) exceeded"},
        {"status": "RESOURCE_EXHAUSTED", "message": "slow down", "retry_after_s": 0.1},
        {"status": "UNAVAILABLE", "times": 6},
        {"status": "INTERNAL", "times": 4},
        {"status": "ABORTED"},
        {"drop": True, "times": 5},
        {"status": "UNAVAILABLE", "after": True, "times": 4},
        {"drop": True, "after": True, "times": 4},
    ],
    ids=str,
)
async def test_a_passing_failure_of_creation_is_tried_again_and_makes_one_sandbox(
    modal: ModalEnvironment, spec: SandboxSpec, modal_server: ModalServer, fault: dict[str, Any]
) -> None:
    modal_server.fault(CREATE, **fault)
    printed = await opened(modal, spec)
    state = modal_server.state()

    assert printed == "here\n"
    assert (state["created"], state["running"]) == (1, 0)


@pytest.mark.parametrize(
    ("method", "fault", "kind", "says", "tries"),
    [
        (CREATE, {"status": "INVALID_ARGUMENT", "message": "no such region"}, SandboxStartFailed, "no such region", 1),
        (CREATE, {"status": "RESOURCE_EXHAUSTED", "message": "spend limit"}, SandboxStartFailed, "billing", 1),
        (CREATE, {"status": "PERMISSION_DENIED", "message": "read only"}, SandboxStartFailed, "role", 1),
        (CREATE, {"status": "UNAUTHENTICATED", "message": "expired"}, ConfigError, "modal token info", 1),
        (CREATE, {"status": "RESOURCE_EXHAUSTED", "message": "busy", "times": 0}, SandboxBusy, "busy", 3),
        ("AppGetOrCreate", {"status": "PERMISSION_DENIED", "message": "no"}, SandboxStartFailed, "role", 1),
        ("ImageGetOrCreate", {"status": "INVALID_ARGUMENT", "message": "bad"}, SandboxStartFailed, "bad", 1),
    ],
    ids=str,
)
async def test_a_failure_for_good_is_told_with_its_next_step(
    modal: ModalEnvironment,
    spec: SandboxSpec,
    modal_server: ModalServer,
    method: str,
    fault: dict[str, Any],
    kind: type[AgentCompassError],
    says: str,
    tries: int,
) -> None:
    modal_server.fault(method, **{"times": 0, **fault})
    with pytest.raises(kind) as raised:
        await opened(modal, spec)

    assert says in str(raised.value)
    assert len(modal_server.calls(method)) == tries
    assert modal_server.state()["running"] == 0


async def test_a_first_call_that_is_dropped_is_made_again(
    modal: ModalEnvironment, spec: SandboxSpec, modal_server: ModalServer
) -> None:
    modal_server.fault("TaskExecStart", status="INTERNAL", message="request cancelled", times=12)

    assert await opened(modal, spec) == "here\n"
    assert modal_server.state()["created"] == 1


async def test_connections_that_break_under_a_command_lose_nothing(
    modal: ModalEnvironment, spec: SandboxSpec, modal_server: ModalServer
) -> None:
    async with modal.open(spec, an_owner()) as sandbox:
        call = asyncio.create_task(sandbox.exec(sh("for i in 1 2 3 4 5; do echo $i; sleep 0.5; done")))
        await asyncio.sleep(1)
        modal_server.cut_connections()
        result = await call

    assert (result.exit_code, result.stdout) == (0, "1\n2\n3\n4\n5\n")


async def test_a_network_failure_is_no_lost_sandbox(
    modal: ModalEnvironment, spec: SandboxSpec, modal_server: ModalServer
) -> None:
    async with modal.open(spec, an_owner()) as sandbox:
        modal_server.fault("TaskExecStart", status="UNAVAILABLE", times=11)
        with pytest.raises(SandboxFailed):
            await sandbox.exec(sh("true"))
        again = await sandbox.exec(sh("true"))

    assert again.ok


@pytest.mark.parametrize(
    ("status", "exit_code", "says"),
    [("TIMEOUT", 0, "lifetime"), ("TERMINATED", 137, "out of memory"), ("INTERNAL_FAILURE", 1, "exit code 1")],
)
async def test_a_lost_sandbox_says_why(
    modal: ModalEnvironment, spec: SandboxSpec, modal_server: ModalServer, status: str, exit_code: int, says: str
) -> None:
    async with modal.open(spec, an_owner()) as sandbox:
        modal_server.end(sandbox.id, status, exit_code)
        with pytest.raises(SandboxLost, match=says):
            await sandbox.exec(sh("true"))


@pytest.mark.parametrize("code", [-1, 137])
@pytest.mark.parametrize("kills", ["tree", "leader"])
async def test_a_limit_that_modal_reaches_first_is_a_timeout(
    modal: ModalEnvironment, spec: SandboxSpec, modal_server: ModalServer, code: int, kills: str
) -> None:
    modal_server.set(exec_timeout_code=code, exec_timeout_kills=kills)
    async with modal.open(spec, an_owner()) as sandbox:
        result = await sandbox.exec(sh("echo out; (sleep 5; echo late > /tmp/late) & sleep 60", timeout_s=2))
        await asyncio.sleep(5)
        late = await sandbox.exec(sh("test -e /tmp/late"))

    assert (result.timed_out, result.exit_code, result.stdout) == (True, None, "out\n")
    assert not late.ok


async def test_an_exit_code_of_137_before_the_limit_is_an_exit_code(modal: ModalEnvironment, spec: SandboxSpec) -> None:
    async with modal.open(spec, an_owner()) as sandbox:
        result = await sandbox.exec(sh("kill -9 $PPID; kill -9 $$", timeout_s=30))

    assert (result.timed_out, result.exit_code) == (False, 137)


async def test_a_supervisor_that_was_killed_does_not_hold_the_call(modal: ModalEnvironment, spec: SandboxSpec) -> None:
    async with modal.open(spec, an_owner()) as sandbox:
        begun = time.monotonic()
        result = await sandbox.exec(sh("echo out; kill -9 $PPID; sleep 100", timeout_s=90))

    assert (result.exit_code, result.stdout) == (137, "out\n")
    assert time.monotonic() - begun < 80


async def test_one_image_is_built_once_for_all(
    modal: ModalEnvironment, spec: SandboxSpec, modal_server: ModalServer
) -> None:
    await asyncio.gather(*(opened(modal, spec) for _ in range(6)))

    assert len(modal_server.calls("ImageGetOrCreate")) == 1
    assert "ENTRYPOINT []" in str(modal_server.calls("ImageGetOrCreate")[0])


async def test_a_build_that_fails_shows_the_end_of_its_log_and_is_not_tried_again(
    modal: ModalEnvironment, spec: SandboxSpec, modal_server: ModalServer
) -> None:
    log = [*(f"line {number}\n" for number in range(100)), "E: no package nosuch\n"]
    modal_server.set(builds=[{"match": "FROM", "status": "failure", "log": log, "times": 0}])
    for _ in range(2):
        with pytest.raises(SandboxStartFailed, match="E: no package nosuch"):
            await opened(modal, spec)

    assert len(modal_server.calls("ImageGetOrCreate")) == 1


async def test_a_build_that_modal_shut_down_is_tried_again(
    modal: ModalEnvironment, spec: SandboxSpec, modal_server: ModalServer
) -> None:
    modal_server.set(builds=[{"match": "FROM", "status": "terminated", "log": [], "times": 1}])

    assert await opened(modal, spec) == "here\n"


async def test_an_image_that_is_not_there_is_told(modal: ModalEnvironment, modal_server: ModalServer) -> None:
    with pytest.raises(SandboxStartFailed, match="no/such:image"):
        await opened(modal, SandboxSpec(image="no/such:image"))


async def test_an_image_without_a_shell_is_told(
    modal: ModalEnvironment, modal_server: ModalServer, docker_client: Any
) -> None:
    archive = pack_bytes({PurePosixPath("/bin/nothing"): (b"x", 0o755)})
    docker_client.import_image_from_data(archive, repository="agentcompass-test/no-shell", tag="latest")
    with pytest.raises(SandboxStartFailed, match="/bin/sh"):
        await opened(modal, SandboxSpec(image="agentcompass-test/no-shell:latest"))

    assert modal_server.state()["running"] == 0


async def test_a_folder_with_a_dockerfile_is_built(modal: ModalEnvironment, debian_image: str, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(
        f'FROM {debian_image}\nCOPY note /note\nENV KEY=value\nWORKDIR /opt\nENTRYPOINT ["/bin/false"]\n'
    )
    (tmp_path / "note").write_text("from the context")
    os.utime(tmp_path / "note", (1, 1))
    spec = SandboxSpec(build=ImageBuild(context=tmp_path), timeout=600)

    assert await opened(modal, spec, "cat /note; echo; echo $KEY; pwd") == "from the context\nvalue\n/opt\n"


async def test_a_named_image_is_used(modal: ModalEnvironment, debian_image: str, modal_server: ModalServer) -> None:
    modal_server.set(named_images={"tools:v1": debian_image})

    assert await opened(modal, SandboxSpec(named_image="tools:v1")) == "here\n"
    with pytest.raises(SandboxStartFailed, match="named_image"):
        await opened(modal, SandboxSpec(named_image="other:v1"))


async def test_a_private_image_needs_the_credentials_that_are_given(
    modal_server: ModalServer, debian_image: str
) -> None:
    wanted = {"REGISTRY_USERNAME": "me", "REGISTRY_PASSWORD": "pw"}
    modal_server.set(private_images={"agentcompass-test/": wanted})
    parameters = ModalParameters.model_validate({"registry_username": "me", "registry_password": "pw"})
    spec = SandboxSpec(image=debian_image)
    with_them = ModalEnvironment(parameters, modal_server.variables)
    without = ModalEnvironment(ModalParameters(), modal_server.variables)
    with pytest.raises(SandboxStartFailed, match="registry credentials"):
        await opened(without, spec)
    printed = await opened(with_them, spec)
    await with_them.close()
    await without.close()

    assert printed == "here\n"


async def test_the_create_call_says_everything(modal_server: ModalServer, debian_image: str) -> None:
    modal_server.set(named_secrets={"hf": {"HF_TOKEN": "x"}})
    parameters = ModalParameters.model_validate(
        {"app_name": "my-app", "secrets": ["hf"], "outbound_cidr_allowlist": ["10.0.0.0/8"], "create_rate": 50}
    )
    modal = ModalEnvironment(parameters, modal_server.variables)
    spec = SandboxSpec(
        image=debian_image,
        timeout=599.5,
        idle_timeout=60,
        cpu=0.5,
        memory=256,
        region="us-east,eu",
        env_variables={"A": "b", "odd-name": "c"},
    )
    printed = await opened(modal, spec, "echo $A $HF_TOKEN; env | grep odd-name")
    await modal.close()
    call = str(modal_server.calls(CREATE)[0]["request"])

    assert printed == "b x\nodd-name=c\n"
    for said in ("600", "60", "500", "256", "us-east", "eu", "10.0.0.0/8", "agentcompass-run", "ac-contract-task-1"):
        assert said in call


async def test_images_are_built_by_the_version_asked_for_whatever_the_workspace_has(
    modal_server: ModalServer, debian_image: str
) -> None:
    modal_server.set(image_builder_version="2024.10")  # which would install Python packages into the image
    modal = ModalEnvironment(ModalParameters(create_rate=50, image_builder_version="2025.06"), modal_server.variables)
    printed = await opened(modal, SandboxSpec(image=debian_image))
    await modal.close()

    assert printed == "here\n"
    assert "2025.06" in str(modal_server.calls("ImageGetOrCreate")[0]["request"])


async def test_a_task_without_network_gets_none(
    modal: ModalEnvironment, spec: SandboxSpec, modal_server: ModalServer
) -> None:
    await opened(modal, spec.model_copy(update={"network": Network.NONE}))

    assert "BLOCKED" in str(modal_server.calls(CREATE)[0]["request"])


async def test_a_task_without_network_gets_none_whatever_others_may_reach(
    modal_server: ModalServer, debian_image: str
) -> None:
    modal = ModalEnvironment(ModalParameters(outbound_cidr_allowlist=("10.0.0.0/8",)), modal_server.variables)
    await opened(modal, SandboxSpec(image=debian_image, network=Network.NONE))
    await modal.close()

    assert "BLOCKED" in str(modal_server.calls(CREATE)[0]["request"])


async def test_a_gpu_goes_to_the_first_backend(
    modal: ModalEnvironment, spec: SandboxSpec, modal_server: ModalServer
) -> None:
    printed = await opened(modal, spec.model_copy(update={"gpu": "T4"}))

    assert printed == "here\n"
    assert (len(modal_server.calls("SandboxCreate")), len(modal_server.calls(CREATE))) == (1, 0)


async def test_creation_is_never_faster_than_told(modal_server: ModalServer, spec: SandboxSpec) -> None:
    modal = ModalEnvironment(ModalParameters(create_rate=4), modal_server.variables)
    await asyncio.gather(*(opened(modal, spec) for _ in range(9)))
    await modal.close()
    times = modal_server.state()["creation_times"]

    assert len(times) == 9
    assert max(times) - min(times) >= 8 / 4 - 0.3


@pytest.mark.parametrize("first", ["SandboxCreateV2", "SandboxCreate"])
async def test_a_cancelled_creation_that_went_through_leaves_nothing(
    modal: ModalEnvironment,
    spec: SandboxSpec,
    modal_server: ModalServer,
    monkeypatch: pytest.MonkeyPatch,
    first: str,
) -> None:
    if first == "SandboxCreate":
        monkeypatch.setenv("MODAL_SANDBOX_V2", "0")
    await opened(modal, spec)
    modal_server.set(create_delay_s=2)
    call = asyncio.create_task(opened(modal, spec))
    while modal_server.state()["created"] < 2:
        await asyncio.sleep(0.05)
    call.cancel()
    await asyncio.wait({call})

    assert call.cancelled()
    assert (modal_server.state()["created"], modal_server.state()["running"]) == (2, 0)


async def test_a_termination_is_tried_again(
    modal: ModalEnvironment, spec: SandboxSpec, modal_server: ModalServer
) -> None:
    modal_server.fault("SandboxTerminateV2", status="UNAVAILABLE", times=6)
    await opened(modal, spec)

    assert modal_server.state()["running"] == 0


async def test_a_sandbox_that_cannot_be_ended_is_an_error_event(
    modal: ModalEnvironment, spec: SandboxSpec, modal_server: ModalServer
) -> None:
    modal_server.fault("SandboxTerminateV2", status="INVALID_ARGUMENT", message="never", times=0)
    with capture_logs() as events:
        printed = await opened(modal, spec)

    assert printed == "here\n"
    assert [event["log_level"] for event in events if event["event"] == "sandbox.leaked"] == ["error"]


async def test_two_accounts_share_a_process(modal_server: ModalServer, spec: SandboxSpec) -> None:
    modal_server.set(tokens={TOKEN[0]: TOKEN[1], "ak-other": "as-other"}, workspaces={"ak-other": "other"})
    other = {"MODAL_SERVER_URL": modal_server.url, "MODAL_TOKEN_ID": "ak-other", "MODAL_TOKEN_SECRET": "as-other"}
    both = [ModalEnvironment(ModalParameters(create_rate=50), each) for each in (modal_server.variables, other)]
    before = dict(os.environ)
    await asyncio.gather(*(opened(each, spec) for each in both))
    workspaces = [next(check for check in await each.check() if check.name == "workspace").detail for each in both]
    for each in both:
        await each.close()

    assert ["test-workspace" in workspaces[0], "other" in workspaces[1]] == [True, True]
    assert dict(os.environ) == before


async def test_nothing_of_the_runner_is_in_the_sandbox(
    modal: ModalEnvironment, spec: SandboxSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-runner")
    printed = await opened(modal, spec, "cat /proc/[0-9]*/environ | tr '\\0' '\\n'")

    assert [secret for secret in ("sk-runner", *TOKEN) if secret in printed] == []


@pytest.mark.parametrize("variables", [{"MODAL_TOKEN_SECRET": "wrong"}, {"MODAL_ENVIRONMENT": "nope"}])
async def test_doctor_names_what_is_wrong(modal_server: ModalServer, variables: dict[str, str]) -> None:
    modal = ModalEnvironment(ModalParameters(), {**modal_server.variables, **variables})
    checks = {check.name: check for check in await modal.check()}
    await modal.close()
    wrong = [check for check in checks.values() if not check.ok]

    assert len(wrong) == 1
    assert "modal" in wrong[0].hint


async def test_doctor_does_not_wait_for_a_server_that_is_not_there(modal_server: ModalServer) -> None:
    modal = ModalEnvironment(ModalParameters(), {**modal_server.variables, "MODAL_SERVER_URL": "http://127.0.0.1:9"})
    checks = {check.name: check for check in await modal.check()}
    await modal.close()

    assert not checks["workspace"].ok
    assert "http://127.0.0.1:9" in checks["workspace"].detail


async def test_files_go_in_and_out_where_there_is_no_tar(
    modal: ModalEnvironment, spec: SandboxSpec, tmp_path: Path
) -> None:
    (tmp_path / "tree" / "sub" / "empty").mkdir(parents=True)
    (tmp_path / "tree" / "sub" / "run me").write_bytes(b"#!/bin/sh\necho ran\n")
    (tmp_path / "tree" / "sub" / "run me").chmod(0o755)
    (tmp_path / "tree" / "link").symlink_to("sub/run me")
    target = PurePosixPath("/srv/a tree")
    async with modal.open(spec, an_owner()) as sandbox:
        sandbox._files._has_tar = False
        await sandbox.upload(tmp_path / "tree", target)
        ran = await sandbox.exec(Command(argv=("/srv/a tree/link",), stdin=b"x", timeout_s=30))
        await sandbox.download(target, tmp_path / "back")
        with pytest.raises(FileNotFoundError):
            await sandbox.download(target / "missing", tmp_path / "none")

    back = tmp_path / "back"

    assert ran.stdout == "ran\n"
    assert (back / "sub" / "run me").stat().st_mode & 0o777 == 0o755
    assert str((back / "link").readlink()) == "sub/run me"
    assert (back / "sub" / "empty").is_dir()
