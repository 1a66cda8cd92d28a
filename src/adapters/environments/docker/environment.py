"""Sandboxes that are containers of a Docker engine, local or remote."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import structlog
from docker import APIClient
from docker.errors import ImageNotFound
from pydantic import Field, field_validator

from ....domain.errors import AgentCompassError, SandboxBusy, SandboxFailed
from ....domain.resolving import refuse_unsupported
from ....domain.sandbox import (
    LONGEST_TIMEOUT_S,
    AbsolutePath,
    Capabilities,
    Check,
    Gpu,
    ImageBuild,
    ImageName,
    Network,
    SandboxOwner,
    SandboxSpec,
    SweepSelector,
    SweptSandbox,
    Variables,
)
from ....domain.value import Parameters as AdapterParameters
from ...support.cleanup import finished_despite_cancel, stop_shielded
from ...support.liveness import dead_runs, selects
from ...support.retrying import retrying
from .container import SANDBOX_LABEL, DockerContainer, expiry_of, gpu_requests, is_gpu_count, label_of, remove_container
from .endpoint import Endpoint
from .engine import DockerEngine, connect
from .errors import FAILURES, explanation, start_error
from .images import DockerImage, DockerImages, ImagePolicy, PullPolicy
from .sandbox import DockerSandbox

log = structlog.get_logger()

_REMOVE_LIMIT_S = 90
_CHECK_LIMIT_S = 9
_CHECK_CALL_LIMIT_S = 4
_LITTLE_DISK = 5 * 10**9


class DockerParameters(AdapterParameters):
    """Containers of a Docker engine: local, remote, Docker Desktop, colima, rootless or podman's."""

    image: ImageName | None = None
    """Image to use in place of the one that the recipe chooses."""
    build: ImageBuild | None = None
    """Image to be built (`{"context": FOLDER, "dockerfile": NAME, "timeout_s": N}`) where none is named."""
    workspace_root: AbsolutePath | None = None
    """Absolute working directory of commands, made if missing; None is the image's own."""
    env_variables: Variables = Field(default_factory=dict)
    """Set for every command. No secrets."""
    user: str | None = None
    """User of commands that name none; None is the image's own."""
    cpu: float | None = Field(default=None, gt=0)
    """Cores that a container may use at most; None is all."""
    memory: int | None = Field(default=None, gt=0)
    """MiB that a container may use at most, without swap; None is all."""
    gpu: Gpu | None = None
    """Number of GPUs, or `all`."""
    platform: str | None = None
    """As in `linux/amd64`; None is the engine's own."""
    network: Network = Network.PUBLIC
    """`public`, or `none` for no network at all."""
    timeout: float | None = Field(default=None, gt=0, le=LONGEST_TIMEOUT_S)
    """Lifetime of a container in seconds, after which it ends by itself; None is what the task's budgets need."""
    pull_policy: PullPolicy = "missing"
    """`missing` pulls an image that is not there, `always` pulls each image once a run, `never` pulls none."""
    host: str | None = Field(default=None, json_schema_extra={"identity": False})
    """Where the engine listens, as in `unix:///run/user/1000/docker.sock`; None is DOCKER_HOST or the context's."""
    context: str | None = Field(default=None, json_schema_extra={"identity": False})
    """A docker context; None is DOCKER_CONTEXT or the current one."""
    remove_images: bool = Field(default=False, json_schema_extra={"identity": False})
    """Remove images that this run pulled when no sandbox uses them: the oldest but 8, and all at the end."""
    pull_timeout_s: float = Field(default=1800, gt=0, le=LONGEST_TIMEOUT_S, json_schema_extra={"identity": False})
    """Limit of one pull."""
    start_timeout_s: float = Field(default=300, gt=0, le=LONGEST_TIMEOUT_S, json_schema_extra={"identity": False})
    """Limit of creating and starting one container, without pulls and builds."""
    start_tries: int = Field(default=4, ge=1, json_schema_extra={"identity": False})
    """Tries of a pull, of a build and of a start that failed for a passing reason."""
    call_timeout_s: float = Field(default=120, gt=0, le=LONGEST_TIMEOUT_S, json_schema_extra={"identity": False})
    """How long the engine may take to answer one call. Commands, pulls and builds have limits of their own."""

    @field_validator("gpu")
    @classmethod
    def _countable(cls, value: str | None) -> str | None:
        if value is not None and not is_gpu_count(value):
            raise ValueError(f"{value!r} is neither a count of GPUs nor `all`")
        return value


class DockerEnvironment:
    """Containers of a Docker engine, local or remote.

    One container a sandbox. Its first process ends it at the end of its lifetime, whatever becomes of the runner.
    """

    name: ClassVar[str] = "docker"
    capabilities: ClassVar[Capabilities] = Capabilities(
        images=True,
        builds=True,
        users=True,
        networks=frozenset({Network.PUBLIC, Network.NONE}),
        resources=frozenset({"cpu", "memory", "gpu", "platform"}),
    )
    Parameters: ClassVar[type[AdapterParameters]] = DockerParameters

    def __init__(self, parameters: DockerParameters) -> None:
        self._parameters = parameters
        self._engine = DockerEngine(parameters.host, parameters.context, parameters.call_timeout_s)
        policy = ImagePolicy(
            pull=parameters.pull_policy,
            pull_timeout_s=parameters.pull_timeout_s,
            tries=parameters.start_tries,
            remove_pulled=parameters.remove_images,
        )
        self._images = DockerImages(self._engine, policy)
        self._platform: str | None = None
        self._foreign: set[str] = set()

    @asynccontextmanager
    async def open(self, spec: SandboxSpec, owner: SandboxOwner) -> AsyncIterator[DockerSandbox]:
        """Two calls to the engine, create and start, and one to remove; the image costs its calls once a process."""
        refuse_unsupported(self.name, spec, self.capabilities)
        gpu_requests(spec.gpu)
        container = DockerContainer(spec, owner)
        async with AsyncExitStack() as stack:
            stack.enter_context(self._images.held(spec))
            remove = partial(self._remove, container)
            stack.push_async_callback(stop_shielded, remove, limit_s=_REMOVE_LIMIT_S, what=container.name)
            await self._images.have(spec)  # before the clock of the start begins
            parameters = self._parameters
            start = retrying("docker.start", tries=parameters.start_tries, total_s=parameters.start_timeout_s)
            sandbox: DockerSandbox = await start(self._start, container, spec)
            yield sandbox

    def secrets(self) -> Collection[str]:
        """None."""
        return ()

    async def check(self) -> list[Check]:
        """The engine and why this one, its platform, its disk, and what dead runs left there."""
        try:
            endpoint = self._engine.endpoint()
            async with asyncio.timeout(_CHECK_LIMIT_S):
                return await asyncio.to_thread(_checks, endpoint, self._parameters.cpu)
        except AgentCompassError as exc:
            return [Check(name="engine", ok=False, detail=exc.message, hint=exc.hint or "see `docker context ls`")]
        except (TimeoutError, *FAILURES) as exc:
            detail = f"no answer from {endpoint.url!r} ({endpoint.origin}): {explanation(exc)}"
            return [Check(name="engine", ok=False, detail=detail, hint="restart Docker")]

    async def sweep(self, selector: SweepSelector) -> list[SweptSandbox]:
        """Remove containers with this tool's label that `selector` selects."""
        doing = "listing containers"
        try:
            found = await self._engine.call(_labelled)
        except FAILURES as exc:
            raise start_error(exc, doing) from exc
        chosen = [one for one in found if _selected(one["Labels"], selector)]
        return list(await asyncio.gather(*(self._swept(one) for one in chosen)))

    async def close(self) -> None:
        """Let connections go, and remove the images that this run pulled where `remove_images` says so."""
        await self._images.close()
        await self._engine.close()

    async def _start(self, container: DockerContainer, spec: SandboxSpec) -> DockerSandbox:
        image = await self._images.have(spec)
        await self._note_platform(image)
        work = self._engine.call(partial(container.start, image=image))
        doing = f"start of a container of {image.name!r}"
        try:
            container_id = await finished_despite_cancel(work, self._parameters.start_timeout_s)
        except ImageNotFound as exc:
            self._images.forget(image)
            raise SandboxBusy(f"{doing}: {explanation(exc)}") from exc
        except TimeoutError as exc:
            limit_s = self._parameters.start_timeout_s
            message = f"{doing}: not done within start_timeout_s of {limit_s:g} s"
            raise SandboxFailed(message, hint="raise start_timeout_s, or lower the concurrency") from exc
        except FAILURES as exc:
            raise start_error(exc, doing + self._platforms(image)) from exc
        return DockerSandbox(self._engine, container, container_id, image, spec)

    async def _remove(self, container: DockerContainer) -> None:
        async def once() -> None:
            try:
                await self._engine.call(container.remove)
            except FAILURES as exc:
                raise SandboxBusy(f"removal of {container.name!r}: {explanation(exc)}") from exc

        if container.begun:
            await retrying("docker.remove", tries=4, total_s=_REMOVE_LIMIT_S - 20)(once)

    async def _note_platform(self, image: DockerImage) -> None:
        if self._platform is None:
            try:
                version: dict[str, Any] = await self._engine.call(APIClient.version)
            except FAILURES as exc:
                raise start_error(exc, "asking for the engine's version") from exc
            self._platform = f"{version.get('Os')}/{version.get('Arch')}"
        if image.platform != self._platform and image.name not in self._foreign:
            self._foreign.add(image.name)
            log.warning("image.emulated", image=image.name, platform=image.platform, engine_platform=self._platform)

    def _platforms(self, image: DockerImage) -> str:
        return "" if image.platform == self._platform else f" (for {image.platform}, on {self._platform})"

    async def _swept(self, found: dict[str, Any]) -> SweptSandbox:
        error = ""
        try:
            await self._engine.call(partial(remove_container, container=found["Id"]))
        except (AgentCompassError, *FAILURES) as exc:
            error = explanation(exc)
        labels = found["Labels"]
        run_id, task_id = label_of(labels, "run_id"), label_of(labels, "task_id")
        return SweptSandbox(environment=self.name, id=found["Id"], run_id=run_id, task_id=task_id, error=error)


def _labelled(client: APIClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.containers(all=True, filters={"label": SANDBOX_LABEL})
    return found


def _selected(labels: dict[str, str], selector: SweepSelector) -> bool:
    try:
        expires = expiry_of(labels)
    except ValueError:
        return False
    run_id, host, process = (label_of(labels, field) for field in ("run_id", "host", "process"))
    return selects(selector, run_id=run_id, host=host, process=process, expires=expires)


def _checks(endpoint: Endpoint, wanted_cores: float | None) -> list[Check]:
    client = connect(endpoint, _CHECK_CALL_LIMIT_S)
    try:
        version, info = client.version(), client.info()
        left = [one for one in _labelled(client) if _selected(one["Labels"], dead_runs())]
    finally:
        client.close()
    engine = f"Docker {version.get('Version')} (API {version.get('ApiVersion')}) at {endpoint.url}, {endpoint.origin}"
    cores = info.get("NCPU")
    platform = f"{version.get('Os')}/{version.get('Arch')}, {cores} cores, {info.get('MemTotal', 0) >> 20} MiB"
    too_many = bool(cores and wanted_cores and wanted_cores > cores)
    return [
        Check(name="engine", ok=True, detail=engine),
        Check(
            name="platform",
            ok=not too_many,
            detail=f"{platform}; cpu={wanted_cores:g} is wanted" if too_many else platform,
            hint="lower environments.docker.cpu" if too_many else "",
            only_starting=True,
        ),
        _disk(Path(str(info.get("DockerRootDir") or "/")), local=endpoint.socket is not None),
        Check(
            name="leftovers",
            ok=not left,
            detail=f"{len(left)} containers left by dead runs",
            hint="agentcompass cleanup --env docker" if left else "",
            is_advice=True,
        ),
    ]


def _disk(root: Path, *, local: bool) -> Check:
    if not local or not os.path.isdir(root):
        return Check(name="disk", ok=True, detail=f"{root} cannot be seen from here")
    free = shutil.disk_usage(root).free
    hint = "" if free >= _LITTLE_DISK else "free some: `docker system df`, `docker image prune`; or set remove_images"
    detail = f"{free / 1e9:.1f} GB free at {root}"
    return Check(name="disk", ok=free >= _LITTLE_DISK, detail=detail, hint=hint, is_advice=True)
