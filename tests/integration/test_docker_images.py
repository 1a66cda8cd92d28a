"""Images are pulled and built once each; what cannot be had says why, and whether trying again may help."""

import asyncio
import io
import tarfile
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from agentcompass.adapters.environments.docker.environment import DockerEnvironment, DockerParameters
from agentcompass.domain.errors import SandboxBusy, SandboxStartFailed
from agentcompass.domain.sandbox import ImageBuild, SandboxSpec
from agentcompass.testing.environment import an_owner, sh
from docker import APIClient
from docker.errors import ImageNotFound
from fake_registry import FakeRegistry, serving, write_credentials

pytestmark = pytest.mark.docker


@pytest.fixture(scope="session")
def busybox_program(docker_client: APIClient, busybox_image: str) -> bytes:
    container = docker_client.create_container(busybox_image, ["true"])["Id"]
    try:
        content, _ = docker_client.get_archive(container, "/bin/busybox")
        with tarfile.open(fileobj=io.BytesIO(b"".join(content))) as tar:
            file = tar.extractfile("busybox")
            assert file is not None
            return file.read()
    finally:
        docker_client.remove_container(container)


@pytest.fixture
def registry(busybox_program: bytes, docker_client: APIClient) -> Iterator[FakeRegistry]:
    with serving(busybox_program) as registry:
        yield registry
        for image in docker_client.images():
            for tag in image["RepoTags"] or []:
                if tag.startswith(f"127.0.0.1:{registry.port}/"):
                    docker_client.remove_image(tag, force=True)


@pytest_asyncio.fixture
async def environment(docker_client: APIClient) -> AsyncIterator[DockerEnvironment]:
    environment = DockerEnvironment(DockerParameters())
    yield environment
    await environment.close()


@pytest.fixture
def folder(tmp_path: Path, busybox_image: str, docker_client: APIClient) -> Iterator[Path]:
    (tmp_path / "Dockerfile").write_text(f"FROM {busybox_image}\nCOPY . /copied/\n")
    (tmp_path / "content").write_text(uuid.uuid4().hex)
    before = _built(docker_client)
    yield tmp_path
    for tag in _built(docker_client) - before:
        docker_client.remove_image(tag, force=True)


def _built(client: APIClient) -> set[str]:
    return {tag for image in client.images("agentcompass/build") for tag in image["RepoTags"] or []}


async def _no_container_runs(client: APIClient, command: str) -> None:
    for _ in range(60):
        if not any(command in container["Command"] for container in client.containers()):
            return
        await asyncio.sleep(0.5)
    pytest.fail(f"a container still runs {command!r}")


async def _open_and_close(environment: DockerEnvironment, spec: SandboxSpec) -> str | None:
    async with environment.open(spec, an_owner()) as sandbox:
        assert (await sandbox.exec(sh("true"))).ok
        return sandbox.image_digest


async def test_many_sandboxes_pull_their_image_once(registry: FakeRegistry, environment: DockerEnvironment) -> None:
    spec = SandboxSpec(image=registry.name())
    digests = await asyncio.gather(*(_open_and_close(environment, spec) for _ in range(5)))

    assert registry.manifest_requests == 1
    assert len(set(digests)) == 1
    assert str(digests[0]).startswith("sha256:")


async def test_an_image_that_is_there_is_not_pulled(registry: FakeRegistry, environment: DockerEnvironment) -> None:
    await _open_and_close(environment, SandboxSpec(image=registry.name()))
    await environment.close()
    await _open_and_close(environment, SandboxSpec(image=registry.name()))

    assert registry.manifest_requests == 1


async def test_the_policy_always_pulls_once_a_run(registry: FakeRegistry) -> None:
    for _ in range(2):
        environment = DockerEnvironment(DockerParameters(pull_policy="always"))
        for _ in range(2):
            await _open_and_close(environment, SandboxSpec(image=registry.name()))
        await environment.close()

    assert registry.manifest_requests >= 2
    assert registry.manifest_requests % 2 == 0


async def test_the_policy_never_pulls_nothing(registry: FakeRegistry) -> None:
    environment = DockerEnvironment(DockerParameters(pull_policy="never"))
    with pytest.raises(SandboxStartFailed, match="pull_policy"):
        await _open_and_close(environment, SandboxSpec(image=registry.name()))
    await environment.close()

    assert registry.manifest_requests == 0


async def test_a_private_image_without_credentials_fails_for_good(
    registry: FakeRegistry, environment: DockerEnvironment
) -> None:
    registry.wants_credentials = True

    with pytest.raises(SandboxStartFailed, match=r"tool:latest.*docker login") as caught:
        await _open_and_close(environment, SandboxSpec(image=registry.name()))
    assert not caught.value.transient


async def test_the_users_docker_credentials_open_a_private_registry(
    registry: FakeRegistry, environment: DockerEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.wants_credentials = True
    write_credentials(tmp_path, registry)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    digest = await _open_and_close(environment, SandboxSpec(image=registry.name()))

    assert digest


async def test_an_unknown_tag_fails_for_good(registry: FakeRegistry, environment: DockerEnvironment) -> None:
    registry.refusals = [(404, "MANIFEST_UNKNOWN")] * 9

    with pytest.raises(SandboxStartFailed, match="check the image"):
        await _open_and_close(environment, SandboxSpec(image=registry.name()))


async def test_a_rate_limit_is_waited_out(registry: FakeRegistry, environment: DockerEnvironment) -> None:
    registry.refusals = [(429, "TOOMANYREQUESTS")]
    digest = await _open_and_close(environment, SandboxSpec(image=registry.name()))

    assert digest
    assert registry.manifest_requests >= 2


async def test_a_registry_out_of_reach_is_busy(docker_client: APIClient) -> None:
    environment = DockerEnvironment(DockerParameters(start_tries=1))
    with pytest.raises(SandboxBusy, match="127.0.0.1:1/image"):
        await _open_and_close(environment, SandboxSpec(image="127.0.0.1:1/image:tag"))
    await environment.close()


async def test_images_that_this_run_pulled_are_removed_and_no_others(
    registry: FakeRegistry, docker_client: APIClient, busybox_image: str
) -> None:
    environment = DockerEnvironment(DockerParameters(remove_images=True))
    await _open_and_close(environment, SandboxSpec(image=registry.name()))
    await _open_and_close(environment, SandboxSpec(image=busybox_image))
    await environment.close()

    with pytest.raises(ImageNotFound):
        docker_client.inspect_image(registry.name())
    assert docker_client.inspect_image(busybox_image)


async def test_an_image_that_vanished_during_the_run_is_pulled_again(
    registry: FakeRegistry, environment: DockerEnvironment, docker_client: APIClient
) -> None:
    await _open_and_close(environment, SandboxSpec(image=registry.name()))
    docker_client.remove_image(registry.name(), force=True)
    await _open_and_close(environment, SandboxSpec(image=registry.name()))

    assert registry.manifest_requests == 2


async def test_an_image_for_another_platform_is_refused_by_name(busybox_image: str) -> None:
    environment = DockerEnvironment(DockerParameters(pull_policy="never"))
    with pytest.raises(SandboxStartFailed, match=r"is for linux/amd64, not linux/s390x"):
        await _open_and_close(environment, SandboxSpec(image=busybox_image, platform="linux/s390x"))
    await environment.close()


async def test_a_spec_without_an_image_says_what_to_give(environment: DockerEnvironment) -> None:
    with pytest.raises(SandboxStartFailed, match="no image is given"):
        await _open_and_close(environment, SandboxSpec())


async def test_many_sandboxes_build_their_image_once(
    folder: Path, environment: DockerEnvironment, docker_client: APIClient
) -> None:
    (folder / "Dockerfile").write_text(
        f"{(folder / 'Dockerfile').read_text()}RUN cat /proc/sys/kernel/random/uuid > /id\n"
    )

    async def built_id() -> str:
        async with environment.open(SandboxSpec(build=ImageBuild(context=folder)), an_owner()) as sandbox:
            return (await sandbox.exec(sh("cat /id"))).stdout

    ids = await asyncio.gather(*(built_id() for _ in range(4)))
    await environment.close()
    ids.append(await built_id())

    assert len(set(ids)) == 1
    assert len(ids[0]) == 37


async def test_another_content_is_another_image(folder: Path, environment: DockerEnvironment) -> None:
    spec = SandboxSpec(build=ImageBuild(context=folder))
    async with environment.open(spec, an_owner()) as sandbox:
        first = sandbox.image
    await environment.close()
    (folder / "content").write_text("other")
    async with environment.open(spec, an_owner()) as sandbox:
        content = await sandbox.exec(sh("cat /copied/content"))
        second = sandbox.image

    assert content.stdout == "other"
    assert first != second


async def test_ignored_files_are_neither_copied_nor_part_of_the_identity(
    folder: Path, environment: DockerEnvironment
) -> None:
    (folder / ".dockerignore").write_text("# comment\nlogs\n*.tmp\n!kept.tmp\n")
    for name in ("logs/a", "x.tmp", "kept.tmp"):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    spec = SandboxSpec(build=ImageBuild(context=folder))
    async with environment.open(spec, an_owner()) as sandbox:
        listed = await sandbox.exec(sh("ls /copied"))
        first = sandbox.image
    await environment.close()
    (folder / "x.tmp").write_text("y")
    async with environment.open(spec, an_owner()) as sandbox:
        second = sandbox.image

    assert listed.stdout.split() == ["Dockerfile", "content", "kept.tmp"]
    assert first == second


async def test_a_failed_build_fails_for_good_with_the_end_of_its_log(
    folder: Path, environment: DockerEnvironment
) -> None:
    (folder / "Dockerfile").write_text(f"{(folder / 'Dockerfile').read_text()}RUN echo told-by-the-step; exit 3\n")

    with pytest.raises(SandboxStartFailed, match=r"(?s)Dockerfile.*told-by-the-step"):
        await _open_and_close(environment, SandboxSpec(build=ImageBuild(context=folder)))


async def test_a_build_over_its_limit_is_stopped_and_names_the_limit(
    folder: Path, environment: DockerEnvironment, docker_client: APIClient
) -> None:
    (folder / "Dockerfile").write_text(f"{(folder / 'Dockerfile').read_text()}RUN sleep 7731\n")
    build = ImageBuild(context=folder, timeout_s=3)

    with pytest.raises(SandboxBusy, match=r"build\.timeout_s of 3 s"):
        await _open_and_close(environment, SandboxSpec(build=build))
    await _no_container_runs(docker_client, "sleep 7731")


async def test_a_folder_without_a_dockerfile_is_named(environment: DockerEnvironment, tmp_path: Path) -> None:
    with pytest.raises(SandboxStartFailed, match="there is no.*Dockerfile"):
        await _open_and_close(environment, SandboxSpec(build=ImageBuild(context=tmp_path)))
