"""Images while registries are slow or busy and removals fail."""

import asyncio
import json
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from agentcompass.adapters.environments.docker import images as images_module
from agentcompass.adapters.environments.docker.engine import DockerEngine
from agentcompass.adapters.environments.docker.environment import DockerEnvironment, DockerParameters
from agentcompass.adapters.environments.docker.images import DockerImages, ImagePolicy
from agentcompass.adapters.support.stage_clock import stage_clock
from agentcompass.domain.errors import SandboxBusy, SandboxFailed, SandboxStartFailed
from agentcompass.domain.sandbox import ImageBuild, SandboxSpec
from agentcompass.testing.environment import an_owner
from docker_fakes import CORES, FakeEngine, Request

pytest_plugins = ("docker_fixtures",)

FOUND = {"Id": "sha256:1", "Os": "linux", "Architecture": "amd64", "Config": {}}


def _images(engine: DockerEngine, *, pull_timeout_s: float = 20, tries: int = 1) -> DockerImages:
    return DockerImages(engine, ImagePolicy("missing", pull_timeout_s=pull_timeout_s, tries=tries, remove_pulled=True))


class Registry:
    """Pulls and builds that end in these errors, one each, and then well: what was made is there."""

    MAKING = ("POST /images/create", "POST /build")

    def __init__(self, fake: FakeEngine, *errors: str, held: bool = False) -> None:
        self.over = threading.Event()
        """Those that are held last until this is set."""
        self._fake, self._errors, self._there = fake, list(errors), set[str]()
        if not held:
            self.over.set()
        fake.on("GET /images/.*/json", self._inspect)
        fake.on("|".join(self.MAKING), self._make)

    @property
    def begun(self) -> int:
        return sum(call in self.MAKING for call in self._fake.calls)

    def _inspect(self, request: Request) -> None:
        known = any(f"/images/{name}/" in unquote(request.path) for name in self._there)
        request.say(FOUND if known else {"message": "No such image"}, 200 if known else 404)

    def _make(self, request: Request) -> None:
        request.body()
        request.begin()
        request.wfile.flush()
        self.over.wait(10)
        error = self._errors.pop(0) if self._errors else None
        if error is None:
            asked = parse_qs(urlsplit(request.path).query)
            self._there.update(asked.get("fromImage") or asked["t"])
        request.wfile.write(json.dumps({"error": error} if error else {"status": "done"}).encode() + b"\n")


async def test_pulls_wait_for_each_other_and_their_limit_does_not_count_it(
    fake: FakeEngine, engine: DockerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images_module, "_PULLS_AT_ONCE", 1)
    registry, images = Registry(fake, held=True), _images(engine, pull_timeout_s=1)
    pulls = [asyncio.create_task(images.have(SandboxSpec(image=name))) for name in ("one", "two", "three")]
    await asyncio.sleep(0.6)
    begun = registry.begun
    registry.over.set()

    assert [pulled.name for pulled in await asyncio.gather(*pulls)] == ["one", "two", "three"]
    assert begun == 1


async def test_a_pull_over_its_limit_may_be_tried_again(fake: FakeEngine, engine: DockerEngine) -> None:
    registry = Registry(fake, held=True)

    with pytest.raises(SandboxBusy, match=r"pull_timeout_s of 0\.3 s"):
        await _images(engine, pull_timeout_s=0.3, tries=3).have(SandboxSpec(image="one"))
    assert registry.begun == 1
    registry.over.set()


@pytest.fixture
def build(tmp_path: Path) -> SandboxSpec:
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    return SandboxSpec(build=ImageBuild(context=tmp_path))


async def test_a_build_context_that_is_not_read_in_time_names_the_limit(
    engine: DockerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()
    monkeypatch.setattr(images_module, "read_context", lambda *_: over.wait(10))
    hasty = ImageBuild(context=tmp_path, timeout_s=0.1)
    with pytest.raises(SandboxFailed, match=r"not read within build\.timeout_s of 0\.1 s") as caught:
        await _images(engine).have(SandboxSpec(build=hasty))
    over.set()

    assert caught.value.hint == "raise build.timeout_s"


def failed() -> AbstractContextManager[Any]:
    return pytest.raises(SandboxStartFailed)


@pytest.mark.parametrize(
    ("said", "begun", "outcome"),
    [
        ("toomanyrequests: slow down", 2, nullcontext),
        ("Get https://registry: net/http: TLS handshake timeout", 2, nullcontext),
        ("COPY failed: no source files", 1, failed),
        ("The command '/bin/sh -c echo too many requests' returned a non-zero code: 3", 1, failed),
    ],
)
async def test_a_build_is_tried_again_where_it_met_a_busy_registry(
    fake: FakeEngine,
    engine: DockerEngine,
    build: SandboxSpec,
    said: str,
    begun: int,
    outcome: Callable[[], AbstractContextManager[Any]],
) -> None:
    registry = Registry(fake, said)
    with outcome():
        image = await _images(engine, tries=2).have(build)

        assert image.name.startswith("agentcompass/build:")
    assert registry.begun == begun


async def test_an_image_that_could_not_be_removed_is_tried_again_at_the_end(
    fake: FakeEngine, engine: DockerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images_module, "_IDLE_IMAGES_KEPT", 0)
    Registry(fake)
    refusals = [{"message": "in use"}]
    fake.on("DELETE /images/.*", lambda request: request.say(*((refusals.pop(), 409) if refusals else ([], 200))))
    images = _images(engine)
    await images.have(SandboxSpec(image="one"))
    await images.have(SandboxSpec(image="two"))
    before_the_end = _removals(fake)
    await images.close()

    assert before_the_end == ["one"]
    assert _removals(fake) == ["one", "one", "two"]


def _removals(fake: FakeEngine) -> list[str]:
    return [call.removeprefix("DELETE /images/") for call in fake.calls if call.startswith("DELETE")]


def _serve_containers(fake: FakeEngine, *failures: str) -> list[str]:
    """Their starts fail so, and then well; returns the failures that are still to come."""
    left = list(failures)
    fake.on("POST /containers/create", lambda request: (request.body(), request.say({"Id": "id"}, 201)))
    fake.on(
        "POST /containers/id/start",
        lambda request: request.say(*(({"message": left.pop()}, 500) if left else (None, 200))),
    )
    fake.on("DELETE /containers/.*", lambda request: request.say(None))
    return left


async def test_the_limit_of_a_start_does_not_count_its_pull(fake: FakeEngine) -> None:
    registry, failures = Registry(fake, held=True), _serve_containers(fake, "try again")
    environment = DockerEnvironment(DockerParameters(host=fake.url, start_timeout_s=0.8))
    threading.Timer(1, registry.over.set).start()
    began = time.monotonic()
    async with environment.open(SandboxSpec(image="one"), an_owner()) as sandbox:
        opened_s = time.monotonic() - began
    await environment.close()

    assert sandbox.id == "id"
    assert opened_s > 0.9
    assert failures == []


class Builder:
    """Builds that take as long as they are told; `most` ran at the same time."""

    def __init__(self, fake: FakeEngine, each_s: float) -> None:
        self.most = self._running = 0
        self._each_s, self._lock, self._built = each_s, threading.Lock(), set[str]()
        fake.on("GET /images/.*/json", self._inspect)
        fake.on("POST /build", self._build)

    def _inspect(self, request: Request) -> None:
        known = request.path.split("/images/")[1].removesuffix("/json") in self._built
        request.say(FOUND if known else {"message": "No such image"}, 200 if known else 404)

    def _build(self, request: Request) -> None:
        request.body()
        with self._lock:
            self._running += 1
            self.most = max(self.most, self._running)
        time.sleep(self._each_s)
        with self._lock:
            self._running -= 1
        self._built.add(parse_qs(urlsplit(request.path).query)["t"][0])
        request.say({"stream": "done"})


async def test_builds_that_last_longer_together_than_a_stage_wait_for_the_engines_cores_and_none_fails(
    fake: FakeEngine, tmp_path: Path
) -> None:
    builder, limit_s = Builder(fake, each_s=0.3), 1.4
    _serve_containers(fake)
    environment = DockerEnvironment(DockerParameters(host=fake.url))

    async def started(number: int) -> float:
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "Dockerfile").write_text(f"FROM scratch\nLABEL number={number}\n")
        spec, owner = SandboxSpec(build=ImageBuild(context=folder)), an_owner(attempt=number + 1)
        async with stage_clock(limit_s) as clock, environment.open(spec, owner):
            return clock.worked_s

    began = time.monotonic()
    worked = await asyncio.gather(*map(started, range(5 * CORES)))
    lasted = time.monotonic() - began
    await environment.close()

    assert max(worked) < limit_s < lasted
    assert builder.most == CORES
    assert fake.calls.count("GET /info") == 1


async def test_who_joins_a_pull_of_another_is_not_held_to_a_limit_of_its_own(
    fake: FakeEngine, engine: DockerEngine
) -> None:
    registry, images = Registry(fake, held=True), _images(engine)
    first = asyncio.create_task(images.have(SandboxSpec(image="one")))
    await asyncio.sleep(0)
    threading.Timer(0.4, registry.over.set).start()
    async with stage_clock(0.2):
        joined = await images.have(SandboxSpec(image="one"))

    assert joined is await first
    assert registry.begun == 1


async def test_whoever_pulls_is_held_to_the_limit_of_its_stage(fake: FakeEngine, engine: DockerEngine) -> None:
    registry = Registry(fake, held=True)
    images = _images(engine)
    with pytest.raises(TimeoutError):
        async with stage_clock(0.2):
            await images.have(SandboxSpec(image="one"))
    registry.over.set()

    assert (await images.have(SandboxSpec(image="one"))).name == "one"
    assert registry.begun == 1


async def test_an_engine_that_stops_answering_holds_nobody_for_ever(fake: FakeEngine, engine: DockerEngine) -> None:
    silent = threading.Event()
    fake.on("GET /images/.*/json", lambda request: (silent.wait(10), request.say({}, 404)))
    images = _images(engine, pull_timeout_s=0.2)
    asked = [images.have(SandboxSpec(image="one")) for _ in range(2)]
    errors = await asyncio.gather(*asked, return_exceptions=True)
    silent.set()

    assert [type(error) for error in errors] == [SandboxBusy, SandboxBusy]
    assert "no answer within pull_timeout_s of 0.2 s" in str(errors[0])
