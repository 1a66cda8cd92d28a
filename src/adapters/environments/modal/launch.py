"""A Modal sandbox from its name to its end: created once, found again where an answer was lost, and terminated."""

import asyncio
import math
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import modal
import structlog

from ....domain.errors import AgentCompassError, SandboxBusy, SandboxStartFailed
from ....domain.naming import sandbox_name
from ....domain.sandbox import Network, SandboxOwner, SandboxSpec
from ...support.cleanup import exception_seen
from ...support.retrying import retrying
from ...support.shell_supervision import keep_alive_argv
from ...support.supervised_commands import SHELL_NAME
from .connection import ModalConnection, called
from .errors import FAILURES, explanation, start_error
from .exec import HELPER, NO_EXIT_CODE, Kept, ModalProcess
from .pacing import Pacing
from .parameters import ModalParameters
from .scripts import FirstAnswer, answer_argv, read_answer
from .tags import owner_tags

log = structlog.get_logger()

STOP_LIMIT_S = 120.0
_START_SLACK_S = 1800
_TERMINATE_TRIES, _TERMINATE_TOTAL_S, _TERMINATE_CALL_S = 5, 60.0, 20.0
_UNFINISHED_LIMIT_S = 25.0
_ANSWER_TRIES, _ANSWER_TRY_S, _ANSWER_BYTES = 4, 300.0, 64 * 1024
_LOOKS_AFTER_S = (0.0, 1.0)
"""Modal may see a command fail a moment before it sees the sandbox's end."""
_NO_SHELL = (126, 127)
_KILLED = 137
_NEEDS_ROOT = "the image's own user may not make the directories; root may"


class ModalLaunch:
    """One sandbox that is to be. Creation is never cut short: `stop` waits for its end, then ends the sandbox."""

    def __init__(
        self,
        connection: ModalConnection,
        pacing: Pacing,
        parameters: ModalParameters,
        spec: SandboxSpec,
        owner: SandboxOwner,
    ) -> None:
        self.name = sandbox_name(owner)
        self.sandbox: modal.Sandbox | None = None
        self.created_at = 0.0
        """By `time.monotonic`."""
        self._connection, self._pacing, self._parameters, self._spec = connection, pacing, parameters, spec
        self._owner = owner
        self._tags: dict[str, str] = {}
        self._creating: asyncio.Future[modal.Sandbox] | None = None
        self._may_exist = False

    async def start(self, image: modal.Image) -> tuple[modal.Sandbox, FirstAnswer]:
        """Create it and have its first answer. Raises SandboxStartFailed, SandboxBusy, ConfigError."""
        retry = retrying("modal.create", tries=self._parameters.start_tries, total_s=self._parameters.start_timeout_s)
        async with self._pacing.starting():
            sandbox: modal.Sandbox = await retry(self._create, image)
            try:
                async with asyncio.timeout(self._parameters.start_timeout_s):
                    return sandbox, await self._first_answer(sandbox)
            except TimeoutError as exc:
                limit_s = self._parameters.start_timeout_s
                message = f"sandbox {self.name!r}: no answer within start_timeout_s of {limit_s:g} s"
                raise SandboxBusy(message, hint="raise start_timeout_s") from exc

    async def stop(self) -> None:
        """Terminate and let go of whatever came of it; what is gone already is no error."""
        await self._end_of_creation()
        sandbox = self.sandbox
        if sandbox is None and self._may_exist:
            sandbox = await self._found()
        if sandbox is not None:
            await terminate(sandbox)

    async def _create(self, image: modal.Image) -> modal.Sandbox:
        app = await self._connection.app()
        await self._pacing.turn()
        doing = f"creation of sandbox {self.name!r}"
        self._may_exist = True
        self._creating = asyncio.ensure_future(self._created(app, image))
        self._creating.add_done_callback(exception_seen)
        try:
            self.sandbox = await asyncio.shield(self._creating)
        except modal.exception.AlreadyExistsError as exc:
            self.sandbox = await self._found()
            if self.sandbox is None:
                message = f"{doing}: a sandbox of that name is there that this run did not start"
                raise SandboxStartFailed(message, hint="is it another run's with the same id?") from exc
        except FAILURES as exc:
            raise start_error(exc, doing) from exc
        return self.sandbox

    async def _created(self, app: modal.App, image: modal.Image) -> modal.Sandbox:
        self._tags = self._tags or owner_tags(self._owner, self._expiry())
        self.created_at = time.monotonic()
        client = await self._connection.client()
        sandbox = await modal.Sandbox.create.aio(
            *keep_alive_argv(self._lifetime_s, "", ()),
            app=app,
            image=image,
            name=self.name,
            tags=self._tags,
            timeout=self._lifetime_s,
            secrets=[self._named_secret(name, client) for name in self._parameters.secrets],
            volumes=dict(self._volumes(client)),
            client=client,
            **self._options(),
        )
        self.sandbox = sandbox
        return sandbox

    def _options(self) -> dict[str, Any]:
        spec = self._spec
        variables = {name: value for name, value in spec.env_variables.items() if SHELL_NAME.fullmatch(name)}
        wanted = {
            "env": variables or None,
            "idle_timeout": math.ceil(spec.idle_timeout) if spec.idle_timeout else None,
            "cpu": spec.cpu,
            "memory": spec.memory,
            "gpu": spec.gpu,
            "region": [part.strip() for part in spec.region.split(",")] if spec.region else None,
        }
        return {name: value for name, value in wanted.items() if value is not None} | self._network()

    def _network(self) -> dict[str, Any]:
        parameters = self._parameters
        lists: dict[str, Sequence[str] | None] = {
            "outbound_cidr_allowlist": parameters.outbound_cidr_allowlist,
            "outbound_domain_allowlist": parameters.outbound_domain_allowlist,
        }
        given = {name: list(value) for name, value in lists.items() if value is not None}
        if given and self._spec.network is not Network.NONE:
            return given
        blocked = parameters.block_network
        return {"block_network": self._spec.network is Network.NONE if blocked is None else blocked}

    def _named_secret(self, name: str, client: modal.Client) -> modal.Secret:
        return modal.Secret.from_name(name, environment_name=self._connection.environment_name, client=client)

    def _volumes(self, client: modal.Client) -> Any:
        environment = self._connection.environment_name
        for path, name in self._parameters.volumes.items():
            yield path, modal.Volume.from_name(name, environment_name=environment, client=client)

    @property
    def _lifetime_s(self) -> int:
        return math.ceil(self._spec.timeout)

    def _expiry(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self._lifetime_s + _START_SLACK_S)

    async def _first_answer(self, sandbox: modal.Sandbox) -> FirstAnswer:
        retry = retrying("modal.answer", tries=_ANSWER_TRIES, total_s=self._parameters.start_timeout_s)
        answer: FirstAnswer = await retry(self._answer, sandbox)
        return answer

    async def _answer(self, sandbox: modal.Sandbox) -> FirstAnswer:
        doing = f"first answer of sandbox {self.name!r}"
        printed, errors = Kept(_ANSWER_BYTES), Kept(_ANSWER_BYTES)
        argv = answer_argv(self._spec.workspace_root, self._spec.directories)
        process = ModalProcess(argv, HELPER, _ANSWER_TRY_S, workdir=None)
        try:
            await process.read(sandbox, printed, errors)
        except FAILURES as exc:
            await self._refuse_dead(sandbox, explanation(exc))
            raise start_error(exc, doing) from exc
        if process.code:
            await self._refuse_dead(sandbox, errors.line())
            if process.code in (NO_EXIT_CODE, _KILLED):
                raise SandboxBusy(f"{doing}: none within {_ANSWER_TRY_S:g} s, or it was killed")
            hint = "the image needs a /bin/sh" if process.code in _NO_SHELL else _NEEDS_ROOT
            raise SandboxStartFailed(f"{doing}: exit code {process.code}: {errors.line()}", hint=hint)
        try:
            return read_answer(bytes(printed.data))
        except ValueError as exc:
            await self._refuse_dead(sandbox, errors.line())
            raise SandboxBusy(f"{doing}: it cannot be read: {printed.line()!r}") from exc

    async def _refuse_dead(self, sandbox: modal.Sandbox, said: str) -> None:
        for pause_s in _LOOKS_AFTER_S:
            await asyncio.sleep(pause_s)
            try:
                async with asyncio.timeout(_TERMINATE_CALL_S):
                    code = await sandbox.poll.aio()
            except FAILURES:
                return
            if code is not None:
                message = f"sandbox {self.name!r} ended as soon as it had started, exit code {code}: {said}"
                hint = "the image needs a /bin/sh, and has to be for linux/amd64"
                raise SandboxStartFailed(message, hint=hint)

    async def _end_of_creation(self) -> None:
        creating = self._creating
        if creating is None:
            return
        for limit_s in (_UNFINISHED_LIMIT_S, _TERMINATE_CALL_S):
            await asyncio.wait({creating}, timeout=limit_s)
            if creating.done():
                return
            creating.cancel()

    async def _found(self) -> modal.Sandbox | None:
        """This owner's sandbox of that name; None where there is none, or somebody else's."""
        client = await self._connection.client()

        async def look() -> modal.Sandbox | None:
            try:
                found = await modal.Sandbox.from_name.aio(
                    self._connection.app_name,
                    self.name,
                    environment_name=self._connection.environment_name,
                    client=client,
                )
                tags = await found.get_tags.aio()
            except (modal.exception.NotFoundError, modal.exception.ConflictError):
                return None
            return found if self._tags.items() <= tags.items() else None

        doing = f"looking for sandbox {self.name!r}"
        retry = retrying("modal.from_name", tries=_TERMINATE_TRIES, total_s=_TERMINATE_TOTAL_S)
        result: modal.Sandbox | None = await retry(called, look, doing, _TERMINATE_CALL_S)
        return result


async def terminate(sandbox: modal.Sandbox) -> None:
    """End it, see that Modal has heard of it, and let its connection go. Raises SandboxBusy where Modal has not."""

    async def once() -> None:
        with suppress(modal.exception.NotFoundError):
            await sandbox.terminate.aio()

    retry = retrying("modal.terminate", tries=_TERMINATE_TRIES, total_s=_TERMINATE_TOTAL_S)
    try:
        await retry(called, once, f"termination of sandbox {sandbox.object_id!r}", _TERMINATE_CALL_S)
    finally:
        await _detach(sandbox)


async def _detach(sandbox: modal.Sandbox) -> None:
    try:
        async with asyncio.timeout(_TERMINATE_CALL_S):
            await sandbox.detach.aio()  # type: ignore[no-untyped-call]  # the SDK's stubs leave it out
    except (*FAILURES, AgentCompassError) as exc:
        log.info("sandbox.not_detached", sandbox=sandbox.object_id, error=explanation(exc))
