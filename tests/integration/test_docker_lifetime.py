"""Nothing that Docker was asked for is left behind, and nobody else's container is touched."""

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from agentcompass.adapters.environments.docker.container import DockerContainer, owner_labels
from agentcompass.adapters.environments.docker.environment import DockerEnvironment, DockerParameters
from agentcompass.adapters.environments.docker.images import DockerImage
from agentcompass.adapters.support.liveness import this_host
from agentcompass.domain.errors import SandboxStartFailed
from agentcompass.domain.naming import sandbox_name
from agentcompass.domain.sandbox import SandboxOwner, SandboxSpec, SweepSelector
from agentcompass.testing.environment import an_owner, sh
from docker import APIClient
from docker.errors import NotFound
from structlog.testing import capture_logs

pytestmark = pytest.mark.docker

DEAD = "999999999-1"


@pytest.fixture
def spec(busybox_image: str) -> SandboxSpec:
    return SandboxSpec(image=busybox_image, timeout=120)


@pytest.fixture
def owner() -> SandboxOwner:
    return an_owner()


@pytest.fixture
def strangers(docker_client: APIClient, busybox_image: str) -> Iterator["Strangers"]:
    strangers = Strangers(docker_client, busybox_image)
    yield strangers
    for container in strangers.made:
        with suppress(NotFound):
            docker_client.remove_container(container, force=True)


class Strangers:
    """Containers that a test makes by itself."""

    def __init__(self, client: APIClient, image: str) -> None:
        self._client, self._image = client, image
        self.made: list[str] = []

    def container(self, name: str, labels: dict[str, str]) -> str:
        config = {"entrypoint": ["/bin/sleep", "600"], "name": name, "labels": labels}
        self.made.append(self._client.create_container(self._image, **config)["Id"])
        return self.made[-1]


def _there(client: APIClient, container: str) -> bool:
    try:
        client.inspect_container(container)
    except NotFound:
        return False
    return True


def _labels(owner: SandboxOwner, expires: datetime | str) -> dict[str, str]:
    stamp = expires if isinstance(expires, str) else expires.isoformat()
    return {"agentcompass.sandbox": "1", **owner_labels(owner), "agentcompass.expires": stamp}


async def test_a_container_carries_its_owner_and_its_expiry(
    environment: DockerEnvironment, spec: SandboxSpec, owner: SandboxOwner, docker_client: APIClient
) -> None:
    async with environment.open(spec, owner) as sandbox:
        found = docker_client.inspect_container(sandbox.id)
    labels = found["Config"]["Labels"]
    expires = datetime.fromisoformat(labels["agentcompass.expires"])

    assert found["Name"] == f"/{sandbox_name(owner)}"
    assert labels.items() >= owner_labels(owner).items()
    assert timedelta(seconds=100) < expires - datetime.now(UTC) < timedelta(seconds=200)


async def test_what_an_interrupted_start_of_the_same_owner_left_makes_room(
    environment: DockerEnvironment, spec: SandboxSpec, owner: SandboxOwner, strangers: Strangers
) -> None:
    left = strangers.container(sandbox_name(owner), owner_labels(owner))
    async with environment.open(spec, owner) as sandbox:
        result = await sandbox.exec(sh("echo mine"))

    assert result.stdout == "mine\n"
    assert sandbox.id != left


async def test_a_strangers_container_of_that_name_is_not_touched(
    environment: DockerEnvironment,
    spec: SandboxSpec,
    owner: SandboxOwner,
    strangers: Strangers,
    docker_client: APIClient,
) -> None:
    other = strangers.container(sandbox_name(owner), {})
    with pytest.raises(SandboxStartFailed, match=sandbox_name(owner)):
        async with environment.open(spec, owner):
            pass

    assert _there(docker_client, other)


async def test_a_failed_start_leaves_nothing(
    environment: DockerEnvironment, spec: SandboxSpec, owner: SandboxOwner, docker_client: APIClient
) -> None:
    with pytest.raises(SandboxStartFailed):
        async with environment.open(spec.model_copy(update={"gpu": "1"}), owner):
            pass

    assert not _there(docker_client, sandbox_name(owner))


@pytest.mark.parametrize("delay_s", [0.005, 0.02, 0.05, 0.1, 0.2, 0.4])
async def test_a_cancelled_start_leaves_nothing(
    environment: DockerEnvironment, spec: SandboxSpec, owner: SandboxOwner, docker_client: APIClient, delay_s: float
) -> None:
    await environment.check()

    async def use() -> None:
        async with environment.open(spec, owner):
            await asyncio.sleep(60)

    task = asyncio.create_task(use())
    await asyncio.sleep(delay_s)
    task.cancel()
    await asyncio.wait({task})

    assert task.cancelled()
    assert not _there(docker_client, sandbox_name(owner))


def test_a_container_that_appears_after_its_removal_removes_itself(
    docker_client: APIClient, spec: SandboxSpec, owner: SandboxOwner
) -> None:
    container = DockerContainer(spec, owner)
    image = DockerImage.inspected(str(spec.image), docker_client.inspect_image(spec.image))
    container.remove(docker_client)
    container.start(docker_client, image)

    assert not _there(docker_client, sandbox_name(owner))


async def test_a_container_that_its_removal_did_not_find_by_id_is_found_by_name(
    docker_client: APIClient, spec: SandboxSpec, owner: SandboxOwner
) -> None:
    container = DockerContainer(spec, owner)
    image = DockerImage.inspected(str(spec.image), docker_client.inspect_image(spec.image))
    container.start(docker_client, image)
    container.id = None
    container.remove(docker_client)

    assert not _there(docker_client, sandbox_name(owner))


async def test_an_engine_that_is_not_there_is_named_with_the_next_step(spec: SandboxSpec, tmp_path: Path) -> None:
    environment = DockerEnvironment(DockerParameters(host=f"unix://{tmp_path}/no.sock"))
    with pytest.raises(SandboxStartFailed, match=r"no\.sock.*parameter host.*DOCKER_HOST"):
        async with environment.open(spec, an_owner()):
            pass
    checks = await environment.check()
    await environment.close()

    assert [check.ok for check in checks] == [False]
    assert "no.sock" in checks[0].detail


async def test_a_failed_removal_is_an_event_and_no_exception(
    environment: DockerEnvironment,
    spec: SandboxSpec,
    owner: SandboxOwner,
    docker_client: APIClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("not today")

    with capture_logs() as events:
        async with environment.open(spec, owner) as sandbox:
            monkeypatch.setattr(APIClient, "remove_container", refuse)
        monkeypatch.undo()
    docker_client.remove_container(sandbox.id, force=True)

    assert [event["event"] for event in events if event["log_level"] == "error"] == ["sandbox.leaked"]


async def test_a_sweep_takes_the_dead_and_the_expired_only(
    environment: DockerEnvironment, strangers: Strangers, docker_client: APIClient
) -> None:
    run, soon, past = uuid.uuid4().hex, datetime.now(UTC) + timedelta(hours=1), datetime.now(UTC) - timedelta(hours=1)
    kept = [
        strangers.container(f"ac-test-live-{run}", _labels(an_owner(run_id=run), soon)),
        strangers.container(f"ac-test-away-{run}", _labels(an_owner(run_id=run, host="away", process=DEAD), soon)),
        strangers.container(f"ac-test-junk-{run}", _labels(an_owner(run_id=run, process=DEAD), "junk")),
        strangers.container(f"ac-test-none-{run}", owner_labels(an_owner(run_id=run, process=DEAD))),
    ]
    taken = [
        strangers.container(f"ac-test-dead-{run}", _labels(an_owner(run_id=run, process=DEAD), soon)),
        strangers.container(f"ac-test-past-{run}", _labels(an_owner(run_id=run, host="away"), past)),
    ]
    swept = await environment.sweep(SweepSelector(run_id=run, host=this_host(), now=datetime.now(UTC)))

    assert {one.id for one in swept} == set(taken)
    assert all(_there(docker_client, container) for container in kept)
    assert not any(_there(docker_client, container) for container in taken)


async def test_one_failure_does_not_end_a_sweep(
    environment: DockerEnvironment, strangers: Strangers, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, soon = uuid.uuid4().hex, datetime.now(UTC) + timedelta(hours=1)
    stuck, other = (
        strangers.container(f"ac-test-{name}-{run}", _labels(an_owner(run_id=run, process=DEAD), soon))
        for name in ("stuck", "other")
    )
    real = APIClient.remove_container

    def refuse(client: APIClient, container: str, **options: object) -> None:
        if container == stuck:
            raise ConnectionError("device or resource busy")
        real(client, container, **options)

    monkeypatch.setattr(APIClient, "remove_container", refuse)
    swept = await environment.sweep(SweepSelector(run_id=run, host=this_host(), now=datetime.now(UTC)))
    monkeypatch.undo()

    assert {one.id: one.error for one in swept} == {stuck: "device or resource busy", other: ""}


async def test_the_check_counts_what_dead_runs_left(environment: DockerEnvironment, strangers: Strangers) -> None:
    run, soon = uuid.uuid4().hex, datetime.now(UTC) + timedelta(hours=1)
    strangers.container(f"ac-test-left-{run}", _labels(an_owner(run_id=run, process=DEAD), soon))
    checks = {check.name: check for check in await environment.check()}

    assert not checks["leftovers"].ok
    assert checks["leftovers"].is_advice
    assert "cleanup" in checks["leftovers"].hint
    assert "default socket" in checks["engine"].detail or "DOCKER" in checks["engine"].detail
    assert "GB free" in checks["disk"].detail or "cannot be seen" in checks["disk"].detail
