"""Images at the engine: found, pulled or built once each, and removed where this run pulled them."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

import structlog
from docker import APIClient
from docker.errors import APIError, ImageNotFound

from ....domain.errors import AgentCompassError, SandboxBusy, SandboxFailed, SandboxStartFailed
from ....domain.sandbox import ImageBuild, SandboxSpec
from ...support.build_logs import LINES_TOLD, end_of_log
from ...support.cleanup import exception_seen
from ...support.retrying import retrying
from ...support.stage_clock import turn_of, waiting_for_turn
from .build import BuildContext, built_lines, read_context
from .engine import CutableStream, DockerEngine, responses_to
from .errors import FAILURES, ErrorKind, explanation, said_error, start_error, status_of

log = structlog.get_logger()

T = TypeVar("T")
PullPolicy = Literal["missing", "always", "never"]

_IDLE_IMAGES_KEPT = 8
_PULLS_AT_ONCE = 8


@dataclass(frozen=True)
class DockerImage:
    """What the engine knows of an image."""

    name: str
    id: str
    digest: str
    """Of the registry's manifest where it came from one, else the image's own id."""
    platform: str
    working_dir: str
    user: str
    env: tuple[str, ...]

    @classmethod
    def inspected(cls, name: str, found: dict[str, Any]) -> "DockerImage":
        """From the engine's answer."""
        config = found.get("Config") or {}
        digests = found.get("RepoDigests") or []
        return cls(
            name=name,
            id=found["Id"],
            digest=digests[0].rpartition("@")[2] if digests else found["Id"],
            platform=f"{found.get('Os') or 'linux'}/{found.get('Architecture') or ''}",
            working_dir=config.get("WorkingDir") or "/",
            user=config.get("User") or "0",
            env=tuple(config.get("Env") or ()),
        )


@dataclass(frozen=True)
class ImagePolicy:
    """How images are had."""

    pull: PullPolicy
    pull_timeout_s: float
    tries: int
    remove_pulled: bool


class DockerImages:
    """The images that this process uses. Each is looked up once, and pulled or built once at most."""

    def __init__(self, engine: DockerEngine, policy: ImagePolicy) -> None:
        self._engine, self._policy = engine, policy
        self._flights: dict[tuple[str, str | None], asyncio.Future[DockerImage]] = {}
        self._users: Counter[str] = Counter()
        self._pulling = asyncio.Semaphore(_PULLS_AT_ONCE)
        self._building: asyncio.Semaphore | None = None
        self._counting_cores = asyncio.Lock()
        self._pulled: OrderedDict[str, None] = OrderedDict()

    @contextmanager
    def held(self, spec: SandboxSpec) -> Iterator[None]:
        """While this is open, the image that `spec` names is not removed."""
        name = spec.image or ""
        self._users[name] += 1
        try:
            yield
        finally:
            self._users[name] -= 1

    async def have(self, spec: SandboxSpec) -> DockerImage:
        """The image that `spec` names or has built.

        Raises:
            SandboxStartFailed: there is no such image, or its build failed.
            SandboxBusy: it could not be had now.
        """
        if spec.image is not None:
            find = self._find_or_pull(spec.image, spec.platform)
            return await self._once((spec.image, spec.platform), find)
        if spec.build is None:
            raise SandboxStartFailed("no image is given", hint="give `image`, or `build`, or use a benchmark's recipe")
        key = f"build {spec.build.context}/{spec.build.dockerfile}"
        return await self._once((key, spec.platform), self._find_or_build(spec.build, spec.platform))

    def forget(self, image: DockerImage) -> None:
        """It is no longer at the engine: the next use looks again."""
        self._forget(image.name)

    async def close(self) -> None:
        """Stop pulls and builds, and remove what this run pulled, where that is wanted."""
        tasks = [task for task in self._flights.values() if not task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._flights.clear()
        if self._policy.remove_pulled:
            await self._remove_idle(keep=0)

    async def _once(self, key: tuple[str, str | None], have: Coroutine[Any, Any, DockerImage]) -> DockerImage:
        flight = self._flights.get(key)
        if flight is None or (flight.done() and (flight.cancelled() or flight.exception())):
            flight = self._flights[key] = asyncio.ensure_future(have)
            flight.add_done_callback(exception_seen)
            return await asyncio.shield(flight)
        have.close()
        with waiting_for_turn():
            return await asyncio.shield(flight)

    async def _find_or_pull(self, name: str, platform: str | None) -> DockerImage:
        found = await self._inspect(name)
        fits = found is not None and _fits(found.platform, platform)
        if found is not None and self._policy.pull != "always" and (fits or self._policy.pull == "never"):
            return _refuse_other_platform(found, platform)
        if self._policy.pull == "never":
            hint = f"`docker pull {name}`, or set pull_policy to missing"
            raise SandboxStartFailed(f"image {name!r} is not at the engine, and pull_policy is never", hint=hint)
        await self._pull(name, platform)
        if found is None:
            self._pulled[name] = None
        pulled = await self._inspect(name)
        if pulled is None:
            raise SandboxBusy(f"image {name!r} is gone right after its pull")
        return pulled

    async def _find_or_build(self, build: ImageBuild, platform: str | None) -> DockerImage:
        context = await _read_patiently(build, platform)
        found = await self._inspect(context.tag)
        if found is None:
            await self._build(context, platform)
            found = await self._inspect(context.tag)
        if found is None:
            raise SandboxBusy(f"image {context.tag!r} is gone right after its build")
        return found

    async def _inspect(self, name: str) -> DockerImage | None:
        found = await self._asked(partial(_inspect_image, name=name), f"image {name!r}")
        return DockerImage.inspected(name, found) if found is not None else None

    async def _asked(self, question: Callable[[APIClient], T], doing: str) -> T:
        async def once() -> T:
            try:
                return await self._called(question)
            except FAILURES as exc:
                raise start_error(exc, doing) from exc

        policy = self._policy
        answer: T = await retrying("docker.ask", tries=policy.tries, total_s=policy.pull_timeout_s)(once)
        return answer

    async def _called(self, function: Callable[[APIClient], T]) -> T:
        # Others wait for the answer with their clocks stopped, and over ssh the client itself waits for ever.
        limit_s = self._policy.pull_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                return await self._engine.call(function)
        except TimeoutError as exc:
            raise TimeoutError(f"no answer within pull_timeout_s of {limit_s:g} s") from exc

    async def _build_slots(self) -> asyncio.Semaphore:
        async with self._counting_cores:
            if self._building is None:
                info = await self._asked(_info, "asking for the engine's cores")
                self._building = asyncio.Semaphore(info.get("NCPU") or 1)
        return self._building

    async def _pull(self, name: str, platform: str | None) -> None:
        if self._policy.remove_pulled:
            await self._remove_idle(keep=_IDLE_IMAGES_KEPT)
        async with turn_of(self._pulling):
            log.info("image.pull_started", image=name)
            try:
                await self._pull_patiently(name, platform)
            except SandboxStartFailed as exc:
                full = "no space left" in exc.message and self._policy.remove_pulled
                if not full or not await self._remove_idle(keep=0):
                    raise
                await self._pull_patiently(name, platform)
        log.info("image.pulled", image=name)

    async def _pull_patiently(self, name: str, platform: str | None) -> None:
        policy = self._policy
        await retrying("docker.pull", tries=policy.tries, total_s=policy.pull_timeout_s)(
            self._pull_once, name, platform
        )

    async def _pull_once(self, name: str, platform: str | None) -> None:
        repository, tag = _split(name)

        def lines(client: APIClient) -> Iterator[dict[str, Any]]:
            progress: Iterator[dict[str, Any]] = client.pull(
                repository, tag=tag, stream=True, decode=True, platform=platform
            )
            return progress

        doing = f"pull of image {name!r}" + (f" for {platform}" if platform else "")
        limit = _Limit("pull_timeout_s", self._policy.pull_timeout_s)
        await self._followed(lines, doing, limit, otherwise=SandboxBusy)

    async def _build(self, context: BuildContext, platform: str | None) -> None:
        build = context.build
        doing = f"build of {str(build.context / build.dockerfile)!r}"
        lines = partial(built_lines, context=context, platform=platform)
        limit = _Limit(build.limit, build.timeout_s)
        async with turn_of(await self._build_slots()):
            log.info("image.build_started", image=context.tag, context=str(build.context))
            patiently = retrying("docker.build", tries=self._policy.tries, total_s=build.timeout_s)
            await patiently(self._followed, lines, doing, limit, otherwise=SandboxStartFailed)
        log.info("image.built", image=context.tag)

    async def _followed(
        self,
        lines: Callable[[APIClient], Iterator[dict[str, Any]]],
        doing: str,
        limit: "_Limit",
        *,
        otherwise: ErrorKind,
    ) -> None:
        """`otherwise` is what comes of words of the engine that nobody knows."""
        following = _Following(lines)
        with self._engine.watched(following.stream):
            work = self._engine.long_call(following.run)
            try:
                async with asyncio.timeout(limit.seconds):
                    await asyncio.shield(work)
            except TimeoutError as exc:
                message = f"{doing}: not done within {limit.name} of {limit.seconds:g} s{end_of_log(following.log)}"
                raise SandboxBusy(message, hint=f"raise {limit.name}") from exc
            except APIError as exc:
                raise said_error(explanation(exc), status_of(exc), doing, otherwise=otherwise) from exc
            except FAILURES as exc:
                raise start_error(exc, doing) from exc
            finally:
                following.stream.cut()
                work.add_done_callback(exception_seen)
        if following.error:
            error = said_error(following.error, None, doing, otherwise=otherwise)
            raise type(error)(error.message + end_of_log(following.log), hint=error.hint)

    def _forget(self, name: str) -> None:
        for key, flight in tuple(self._flights.items()):
            if flight.done() and not flight.cancelled() and not flight.exception() and flight.result().name == name:
                del self._flights[key]

    async def _remove_idle(self, keep: int) -> int:
        idle = [name for name in self._pulled if not self._users[name]]
        removed = 0
        for name in idle[: max(0, len(idle) - keep)]:
            try:
                await self._called(partial(_remove_image, name=name))
            except (*FAILURES, AgentCompassError) as exc:
                log.warning("image.kept", image=name, error=explanation(exc))
                if name in self._pulled:
                    self._pulled.move_to_end(name)
                continue
            self._pulled.pop(name, None)
            self._forget(name)
            log.info("image.removed", image=name)
            removed += 1
        return removed


@dataclass(frozen=True)
class _Limit:
    name: str
    seconds: float


class _Following:
    """Reads the progress lines of a pull or a build, and keeps the last of them."""

    def __init__(self, lines: Callable[[APIClient], Iterator[dict[str, Any]]]) -> None:
        self.stream = CutableStream()
        self.error = ""
        self._lines = lines
        self.log: deque[str] = deque(maxlen=LINES_TOLD)

    def run(self, client: APIClient) -> None:
        with responses_to(self.stream):
            for line in self._lines(client):
                self._take(line)

    def _take(self, line: dict[str, Any]) -> None:
        if "error" in line:
            self.error = str((line.get("errorDetail") or {}).get("message") or line["error"])
        elif text := str(line.get("stream") or "").rstrip():
            self.log.extend(text.splitlines())


async def _read_patiently(build: ImageBuild, platform: str | None) -> BuildContext:
    name = f"build context {str(build.context)!r}"
    try:
        async with asyncio.timeout(build.timeout_s):
            try:
                return await asyncio.to_thread(read_context, build, platform)
            except OSError as exc:
                raise SandboxStartFailed(f"{name} cannot be read: {explanation(exc)}") from exc
    except TimeoutError as exc:
        message = f"{name}: not read within {build.limit} of {build.timeout_s:g} s"
        raise SandboxFailed(message, hint=f"raise {build.limit}") from exc


def _inspect_image(client: APIClient, name: str) -> dict[str, Any] | None:
    with suppress(ImageNotFound):
        found: dict[str, Any] = client.inspect_image(name)  # type: ignore[no-untyped-call]  # the stubs leave it out
        return found
    return None


def _info(client: APIClient) -> dict[str, Any]:
    return client.info()


def _remove_image(client: APIClient, name: str) -> None:
    with suppress(ImageNotFound):
        client.remove_image(name)


def _split(name: str) -> tuple[str, str | None]:
    if "@" in name:
        repository, _, digest = name.partition("@")
        return repository, digest
    head, _, last = name.rpartition("/")
    base, _, tag = last.partition(":")
    return (f"{head}/{base}" if head else base), tag or "latest"


def _fits(have: str, want: str | None) -> bool:
    if want is None:
        return True
    wanted = want.split("/")
    return have.split("/")[: len(wanted)] == wanted[:2]


def _refuse_other_platform(image: DockerImage, platform: str | None) -> DockerImage:
    if not _fits(image.platform, platform):
        message = f"image {image.name!r} is for {image.platform}, not {platform}"
        raise SandboxStartFailed(message, hint="set pull_policy to missing, so that the right one is pulled")
    return image
