"""All that one Modal account serves: its connection, its images, its pace, and the sandboxes in its App."""

import asyncio

import modal

from ....domain.errors import AgentCompassError
from ....domain.sandbox import Check, SandboxOwner, SandboxSpec, SweepSelector, SweptSandbox
from ...support.liveness import selects
from .check import account_checks
from .connection import ModalConnection, called
from .credentials import Credentials
from .images import ModalImages, image_name
from .launch import STOP_LIMIT_S, ModalLaunch, terminate
from .pacing import Pacing
from .parameters import ModalParameters
from .sandbox import ModalSandbox
from .tags import MARK, Label, read_tags, run_tag

_LIST_LIMIT_S = 120.0
_SIDE_BY_SIDE = 16


class ModalAccount:
    """Nothing is contacted before the first call."""

    stop_limit_s = STOP_LIMIT_S

    def __init__(self, credentials: Credentials, parameters: ModalParameters) -> None:
        self._parameters = parameters
        self._connection = ModalConnection(credentials, parameters.app_name, parameters.environment_name)
        self._images = ModalImages(self._connection, parameters)
        self._pacing = Pacing(parameters.create_rate, parameters.max_starting)

    def launch(self, spec: SandboxSpec, owner: SandboxOwner) -> ModalLaunch:
        """A sandbox that is to be."""
        return ModalLaunch(self._connection, self._pacing, self._parameters, spec, owner)

    async def started(self, launch: ModalLaunch, spec: SandboxSpec) -> ModalSandbox:
        """Its image, then the sandbox. Raises as `Environment.open`."""
        image = await self._images.have(spec)
        sandbox, answer = await launch.start(image)
        return ModalSandbox(sandbox, answer, spec, (image_name(spec), str(image.object_id)), launch.created_at)

    async def checks(self) -> list[Check]:
        """What `doctor` shows of the account."""
        return await account_checks(self._connection)

    async def sweep(self, environment: str, selector: SweepSelector) -> list[SweptSandbox]:
        """Terminate what `selector` selects. Raises where Modal cannot be asked at all."""
        app = await self._connection.existing_app()
        if app is None:
            return []
        tags = MARK | (run_tag(selector.run_id) if selector.run_id else {})
        client = await self._connection.client()

        async def listed() -> list[modal.Sandbox]:
            found = modal.Sandbox.list.aio(app_id=app.app_id, tags=tags, client=client)
            return [sandbox async for sandbox in found]

        sandboxes = await called(listed, "listing sandboxes", _LIST_LIMIT_S)
        limit = asyncio.Semaphore(_SIDE_BY_SIDE)
        swept = await asyncio.gather(*(self._swept(one, environment, selector, limit) for one in sandboxes))
        return [one for one in swept if one is not None]

    async def _swept(
        self, sandbox: modal.Sandbox, environment: str, selector: SweepSelector, limit: asyncio.Semaphore
    ) -> SweptSandbox | None:
        label, error = None, ""
        async with limit:
            try:
                label = await _label(sandbox)
                if label is None or not _selected(label, selector):
                    return None
                await terminate(sandbox)
            except AgentCompassError as exc:
                error = exc.message
        run_id, task_id = (label.run_id, label.task_id) if label else ("", "")
        return SweptSandbox(
            environment=environment, id=str(sandbox.object_id), run_id=run_id, task_id=task_id, error=error
        )

    async def close(self) -> None:
        """Let the connection go."""
        await self._images.close()
        await self._connection.close()


async def _label(sandbox: modal.Sandbox) -> Label | None:
    async def tags() -> dict[str, str]:
        try:
            return await sandbox.get_tags.aio()
        except (modal.exception.NotFoundError, modal.exception.ConflictError):
            return {}

    return read_tags(await called(tags, f"tags of sandbox {sandbox.object_id!r}"))


def _selected(label: Label, selector: SweepSelector) -> bool:
    return selects(selector, run_id=label.run_id, host=label.host, process=label.process, expires=label.expires)
