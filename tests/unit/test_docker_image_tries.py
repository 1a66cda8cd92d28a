"""Images while registries are slow or busy and removals fail."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from agentcompass.adapters.environments.docker import images as images_module
from agentcompass.adapters.environments.docker.engine import DockerEngine
from agentcompass.adapters.environments.docker.environment import DockerEnvironment, DockerParameters
from agentcompass.adapters.environments.docker.images import DockerImages, ImagePolicy
from agentcompass.domain.errors import SandboxBusy, SandboxStartFailed
from agentcompass.domain.sandbox import ImageBuild, SandboxSpec
from agentcompass.testing.environment import an_owner
from docker_fakes import FakeEngine, Request, serving

FOUND = {"Id": "sha256:1", "Os": "linux", "Architecture": "amd64", "Config": {}}


@pytest.fixture
def fake() -> Iterator[FakeEngine]:
    with serving() as fake:
        yield fake


@pytest_asyncio.fixture
async def engine(fake: FakeEngine) -> AsyncIterator[DockerEngine]:
    engine = DockerEngine(fake.url, None, timeout_s=20)
    yield engine
    await engine.close()


def _images(engine: DockerEngine, *, pull_timeout_s: float = 20, tries: int = 1) -> DockerImages:
    return DockerImages(engine, ImagePolicy("missing", pull_timeout_s=pull_timeout_s, tries=tries, remove_pulled=True))


class Registry:
    """Pulls and builds that last as long as they are held; what was pulled is there."""

    def __init__(self, fake: FakeEngine) -> None:
        self.over, self.begun, self.at_once, self._lock = threading.Event(), 0, 0, threading.Lock()
        self.there: set[str] = set()
        self.said: list[str] = []
        """Errors of the first pulls or builds."""
        fake.on("GET /images/.*/json", self._inspect)
        fake.on("POST /images/create|POST /build", self._make)

    def _inspect(self, request: Request) -> None:
        known = any(f"/images/{name}" in request.path for name in self.there)
        request.say(FOUND if known else {"message": "No such image"}, 200 if known else 404)

    def _make(self, request: Request) -> None:
        request.body() if request.headers.get("Content-Length") else request.wait_for_close(0.2)
        with self._lock:
            self.begun += 1
            self.at_once += 1
        request.begin()
        request.wfile.flush()
        self.over.wait(10)
        with self._lock:
            self.at_once -= 1
            said = self.said.pop(0) if self.said else None
        if said is None:
            self.there.update(("one", "two", "three", "agentcompass"))
        request.wfile.write(json.dumps({"error": said} if said else {"status": "done"}).encode() + b"\n")


async def test_pulls_wait_for_each_other_and_their_limit_does_not_count_it(
    fake: FakeEngine, engine: DockerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images_module, "_PULLS_AT_ONCE", 1)
    registry, images = Registry(fake), _images(engine, pull_timeout_s=1)
    pulls = [asyncio.create_task(images.have(SandboxSpec(image=name))) for name in ("one", "two", "three")]
    await asyncio.sleep(0.6)
    begun = registry.begun
    registry.over.set()

    assert [pulled.name for pulled in await asyncio.gather(*pulls)] == ["one", "two", "three"]
    assert begun == 1


async def test_a_pull_over_its_limit_may_be_tried_again(fake: FakeEngine, engine: DockerEngine) -> None:
    registry = Registry(fake)

    with pytest.raises(SandboxBusy, match=r"pull_timeout_s of 0\.3 s"):
        await _images(engine, pull_timeout_s=0.3, tries=3).have(SandboxSpec(image="one"))
    assert registry.begun == 1
    registry.over.set()


@pytest.fixture
def build(tmp_path: Path) -> SandboxSpec:
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    return SandboxSpec(build=ImageBuild(context=tmp_path))


@pytest.mark.parametrize(
    "said", ["toomanyrequests: slow down", "Get https://registry: net/http: TLS handshake timeout"]
)
async def test_a_build_that_met_a_busy_registry_is_tried_again(
    fake: FakeEngine, engine: DockerEngine, build: SandboxSpec, said: str
) -> None:
    registry = Registry(fake)
    registry.over.set()
    registry.said = [said]
    image = await _images(engine, tries=2).have(build)

    assert image.name.startswith("agentcompass/build:")
    assert registry.begun == 2


@pytest.mark.parametrize(
    "said",
    ["COPY failed: no source files", "The command '/bin/sh -c echo too many requests' returned a non-zero code: 3"],
)
async def test_a_build_that_failed_by_itself_is_not(
    fake: FakeEngine, engine: DockerEngine, build: SandboxSpec, said: str
) -> None:
    registry = Registry(fake)
    registry.over.set()
    registry.said = [said]

    with pytest.raises(SandboxStartFailed):
        await _images(engine, tries=2).have(build)
    assert registry.begun == 1


async def test_an_image_that_could_not_be_removed_is_tried_again_at_the_end(
    fake: FakeEngine, engine: DockerEngine
) -> None:
    registry, images = Registry(fake), _images(engine)
    registry.over.set()
    refusals = [{"message": "in use"}]
    fake.on("DELETE /images/one", lambda request: request.say(*((refusals.pop(), 409) if refusals else ([], 200))))
    await images.have(SandboxSpec(image="one"))
    await images.close()
    await images.close()

    assert fake.calls.count("DELETE /images/one") == 2


async def test_the_limit_of_a_start_does_not_count_its_pull(fake: FakeEngine) -> None:
    registry, failures = Registry(fake), [{"message": "try again"}]
    fake.on("POST /containers/create", lambda request: (request.body(), request.say({"Id": "id"}, 201)))
    fake.on(
        "POST /containers/id/start",
        lambda request: request.say(*((failures.pop(), 500) if failures else (None, 200))),
    )
    fake.on("DELETE /containers/.*", lambda request: request.say(None))
    environment = DockerEnvironment(DockerParameters(host=fake.url, start_timeout_s=0.8))
    threading.Timer(1, registry.over.set).start()
    began = time.monotonic()
    async with environment.open(SandboxSpec(image="one"), an_owner()) as sandbox:
        opened_s = time.monotonic() - began
    await environment.close()

    assert sandbox.id == "id"
    assert opened_s > 0.9
    assert failures == []
