"""Images at Modal: each is built once a process, its entrypoint cleared, and handed out again."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import modal
import modal.config
import structlog
from modal import _environments

from ....domain.errors import AgentCompassError, ConfigError, SandboxBusy, SandboxStartFailed
from ....domain.sandbox import ImageBuild, SandboxSpec
from ...support.build_logs import LINES_TOLD, end_of_log
from ...support.cleanup import exception_seen
from ...support.retrying import retrying
from ...support.stage_clock import waiting_for_turn
from .connection import ModalConnection
from .errors import FAILURES, explanation, start_error
from .parameters import ModalParameters, registry_variables

log = structlog.get_logger()

_BUILD_LIMIT_S = 3600.0
_LOG_LIMIT_S = 20
_NO_ENTRYPOINT = ["ENTRYPOINT []"]
"""Without it a sandbox's arguments, the keep-alive, would be handed to the image's own program."""


class ModalImages:
    """The images that this process uses. An image that cannot be built fails at once for whoever asks next."""

    def __init__(self, connection: ModalConnection, parameters: ModalParameters) -> None:
        self._connection, self._parameters = connection, parameters
        self._flights: dict[str, asyncio.Future[modal.Image]] = {}

    async def have(self, spec: SandboxSpec) -> modal.Image:
        """The image that `spec` names or has built, ready.

        Raises:
            ConfigError: none is named.
            SandboxStartFailed: there is no such image, or its build failed (with the end of its log).
            SandboxBusy: it could not be had now.
        """
        flight = self._flights.get(image_name(spec))
        if flight is None or (flight.done() and _worth_another_try(flight)):
            flight = self._flights[image_name(spec)] = asyncio.ensure_future(self._build(spec))
            flight.add_done_callback(exception_seen)
            return await asyncio.shield(flight)
        with waiting_for_turn():
            return await asyncio.shield(flight)

    async def close(self) -> None:
        """Stop waiting for builds; Modal goes on with them."""
        running = [flight for flight in self._flights.values() if not flight.done()]
        for flight in running:
            flight.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._flights.clear()

    async def _build(self, spec: SandboxSpec) -> modal.Image:
        name = image_name(spec)
        log.info("image.build_started", image=name)
        build = _wanted_build(spec)
        limit_s, limit = (build.timeout_s, build.limit) if build is not None else (_BUILD_LIMIT_S, "")
        try:
            async with asyncio.timeout(limit_s):
                tries = self._parameters.start_tries
                built: modal.Image = await retrying("modal.image", tries=tries, total_s=limit_s)(self._once, spec)
        except TimeoutError as exc:
            message = f"build of image {name!r}: not done within {limit or 'the limit'} of {limit_s:g} s"
            raise SandboxBusy(message, hint=f"raise {limit}" if limit else "") from exc
        log.info("image.built", image=name, image_id=built.object_id)
        return built

    async def _once(self, spec: SandboxSpec) -> modal.Image:
        app = await self._connection.app()
        self._choose_builder_version()
        client = await self._connection.client()
        try:
            image = self._described(spec, client)
            return await image.build.aio(app)
        except modal.exception.ImageBuildError as exc:
            error = start_error(exc, f"build of image {image_name(spec)!r}")
            raise type(error)(error.message + await _log_tail(image), hint=error.hint) from exc
        except FAILURES as exc:
            build = _wanted_build(spec)
            if build is not None and _is_of_a_file(exc):
                message = f"build context {str(build.context)!r} cannot be read: {explanation(exc)}"
                raise SandboxStartFailed(message) from exc
            raise start_error(exc, f"image {image_name(spec)!r}") from exc

    def _described(self, spec: SandboxSpec, client: modal.Client) -> modal.Image:
        environment = self._connection.environment_name
        if spec.image is not None:
            secret = self._registry_secret(client)
            return modal.Image.from_registry(spec.image, secret=secret, setup_dockerfile_commands=_NO_ENTRYPOINT)
        if spec.named_image is not None:
            return modal.Image.from_name(spec.named_image, environment_name=environment, client=client).entrypoint([])
        assert spec.build is not None
        return self._from_folder(spec.build, client)

    def _from_folder(self, build: ImageBuild, client: modal.Client) -> modal.Image:
        dockerfile = build.context / build.dockerfile
        if not dockerfile.is_file():
            raise SandboxStartFailed(f"there is no {str(dockerfile)!r} to build an image from")
        secret = self._registry_secret(client)
        described = modal.Image.from_dockerfile(dockerfile, context_dir=build.context, registry_secret=secret)
        return described.entrypoint([])

    def _registry_secret(self, client: modal.Client) -> modal.Secret | None:
        if self._parameters.registry_secret is not None:
            environment = self._connection.environment_name
            return modal.Secret.from_name(self._parameters.registry_secret, environment_name=environment, client=client)
        variables = registry_variables(self._parameters)
        return modal.Secret.from_dict(variables) if variables else None

    def _choose_builder_version(self) -> None:
        # The SDK knows it from an environment variable or the user's file, both of the whole process, or from what it
        # keeps of a Modal environment under its name: the one place that is not shared with other environments.
        version = self._parameters.image_builder_version
        if version is None:
            return
        elsewhere = modal.config.config.get("image_builder_version")
        if elsewhere not in (None, version):
            others = "MODAL_IMAGE_BUILDER_VERSION or Modal's file"
            message = f"image_builder_version is {version!r}, but {others} says {elsewhere!r}"
            raise ConfigError(message, hint="set it in one place")
        settings = _environments.EnvironmentSettings(image_builder_version=version, webhook_suffix="")
        cache = cast("dict[str, Any]", _environments.ENVIRONMENT_CACHE)
        cache[self._connection.environment_name or ""] = SimpleNamespace(_settings=settings)


def image_name(spec: SandboxSpec) -> str:
    """As a user would name it. Raises ConfigError where the spec names none."""
    if spec.image is not None:
        return spec.image
    if spec.named_image is not None:
        return spec.named_image
    if spec.build is None:
        raise ConfigError("no image is given", hint="give `image` or `named_image`, or use a benchmark's recipe")
    return str(spec.build.context / spec.build.dockerfile)


def _wanted_build(spec: SandboxSpec) -> ImageBuild | None:
    return spec.build if spec.image is None and spec.named_image is None else None


def _is_of_a_file(error: BaseException) -> bool:
    return (
        isinstance(error, OSError)
        and error.filename is not None
        and not isinstance(error, (ConnectionError, TimeoutError))
    )


async def _log_tail(image: modal.Image) -> str:
    lines: list[str] = []
    try:
        async with asyncio.timeout(_LOG_LIMIT_S):
            async for entry in image.logs.tail.aio(LINES_TOLD):
                lines += entry.message.splitlines()
    except (modal.Error, *FAILURES, AgentCompassError) as exc:
        log.info("image.log_unread", error=str(exc))
    return end_of_log(lines)


def _worth_another_try(flight: "asyncio.Future[modal.Image]") -> bool:
    return flight.cancelled() or isinstance(flight.exception(), SandboxBusy)
