"""What `doctor` says of Modal: whose token, valid or not, and what is there already."""

import asyncio

import modal

from ....domain.errors import AgentCompassError
from ....domain.sandbox import Check
from .connection import ModalConnection
from .errors import FAILURES, explanation

_LIMIT_S = 6.0
_OUT_OF_REACH = "is the network up, and MODAL_SERVER_URL right?"
_ASK_MODAL = "`modal token info` tells more"


async def account_checks(connection: ModalConnection) -> list[Check]:
    """The server, the workspace, the environment and the App, each as soon as the one before is there."""
    checks: list[Check] = []
    begun = "workspace"
    try:
        async with asyncio.timeout(_LIMIT_S):
            client = await connection.client()
            checks.append(await _workspace(connection, client))
            begun = "environment"
            checks.append(await _environment(connection, client))
            begun = "app"
            checks.append(await _app(connection))
    except modal.exception.AuthError as exc:
        checks.append(_refused(connection, explanation(exc)))
    except TimeoutError:
        detail = f"no answer from {connection.server_url!r} within {_LIMIT_S:g} s"
        checks.append(Check(name=begun, ok=False, detail=detail, hint=_OUT_OF_REACH))
    except AgentCompassError as exc:
        hint = _OUT_OF_REACH if exc.retryable else exc.hint or _ASK_MODAL
        checks.append(Check(name=begun, ok=False, detail=exc.message, hint=hint))
    except FAILURES as exc:
        checks.append(Check(name=begun, ok=False, detail=explanation(exc), hint=_ASK_MODAL))
    return checks


async def _workspace(connection: ModalConnection, client: modal.Client) -> Check:
    await client.hello.aio()  # type: ignore[no-untyped-call]  # the SDK's stubs leave it out
    workspace = modal.Workspace.from_context(client=client)
    await workspace.hydrate.aio()
    detail = f"{workspace.name!r} at {connection.server_url}; the token is valid"
    return Check(name="workspace", ok=True, detail=detail)


async def _environment(connection: ModalConnection, client: modal.Client) -> Check:
    name = connection.environment_name
    if name is None:
        return Check(name="environment", ok=True, detail="the workspace's default")
    try:
        await modal.Environment.from_name(name, client=client).hydrate.aio()
    except (modal.exception.NotFoundError, modal.exception.InvalidError) as exc:
        hint = f"`modal environment list`; `modal environment create {name}`, or set environment_name"
        return Check(name="environment", ok=False, detail=f"{name!r}: {explanation(exc)}", hint=hint)
    return Check(name="environment", ok=True, detail=repr(name))


async def _app(connection: ModalConnection) -> Check:
    found = await connection.existing_app()
    detail = f"{connection.app_name!r}" + ("" if found else " is not there yet: the first sandbox makes it")
    return Check(name="app", ok=True, detail=detail)


def _refused(connection: ModalConnection, said: str) -> Check:
    detail = f"the token of {connection.credentials.origin} is refused: {said}"
    return Check(name="workspace", ok=False, detail=detail, hint="`modal token info`; `modal setup` makes a new one")
