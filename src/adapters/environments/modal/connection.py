"""The connection to one Modal account: its client, and the App that holds the sandboxes."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import modal
import modal.config
from modal_proto import api_pb2

from .credentials import Credentials
from .errors import FAILURES, start_error

T = TypeVar("T")

_CONNECT_LIMIT_S = 75
_CALL_LIMIT_S = 90
_CLOSE_LIMIT_S = 10


class ModalConnection:
    """Connects at the first call. The client is explicit everywhere, so that accounts can share a process."""

    def __init__(self, credentials: Credentials, app_name: str, environment_name: str | None) -> None:
        self.credentials = credentials
        self.app_name = app_name
        self.environment_name = environment_name or credentials.environment
        self._client: modal.Client | None = None
        self._app: modal.App | None = None
        self._connecting = asyncio.Lock()

    @property
    def server_url(self) -> str:
        """Where Modal is."""
        return self.credentials.server_url or modal.config.DEFAULT_SERVER_URL

    async def client(self) -> modal.Client:
        """The account's client, open.

        Raises:
            SandboxBusy: no server answers.
        """
        async with self._connecting:
            return await self._opened_client()

    async def app(self) -> modal.App:
        """The App, made if missing.

        Raises:
            ConfigError: the token is refused.
            SandboxStartFailed, SandboxBusy: it could not be had.
        """
        async with self._connecting:
            if self._app is None:
                client = await self._opened_client()
                self._app = await called(lambda: self._lookup(client, create=True), f"Modal App {self.app_name!r}")
            return self._app

    async def existing_app(self) -> modal.App | None:
        """The App, None where there is none. Raises as `app`."""
        client = await self.client()

        async def look() -> modal.App | None:
            try:
                return await self._lookup(client, create=False)
            except modal.exception.NotFoundError:
                return None

        return self._app or await called(look, f"Modal App {self.app_name!r}")

    async def close(self) -> None:
        """Let the client go; the next call connects anew."""
        client, self._client, self._app = self._client, None, None
        if client is not None:
            await _close(client)

    async def _opened_client(self) -> modal.Client:
        if self._client is None:
            doing = f"connecting to Modal at {self.server_url!r}"
            self._client = await called(self._open, doing, _CONNECT_LIMIT_S)
        return self._client

    async def _open(self) -> modal.Client:
        # Client.from_credentials would refuse a user's file with several profiles, though none of them is used.
        pair = (self.credentials.token_id, self.credentials.token_secret)
        client = modal.Client(self.server_url, api_pb2.CLIENT_TYPE_CLIENT, pair)
        try:
            await client.__aenter__()  # type: ignore[no-untyped-call]  # the SDK's stubs leave it out
        except BaseException:
            # The SDK goes on connecting for nobody, and would complain that nobody heard of the failure.
            await _close(client)
            raise
        return client

    async def _lookup(self, client: modal.Client, *, create: bool) -> modal.App:
        return await modal.App.lookup.aio(
            self.app_name, client=client, environment_name=self.environment_name, create_if_missing=create
        )


async def _close(client: modal.Client) -> None:
    with suppress(*FAILURES):
        async with asyncio.timeout(_CLOSE_LIMIT_S):
            await client.close.aio()


async def called(call: Callable[[], Awaitable[T]], doing: str, limit_s: float = _CALL_LIMIT_S) -> T:
    """The call's result within `limit_s`. Raises what `errors.start_error` makes of its failure."""
    try:
        async with asyncio.timeout(limit_s):
            return await call()
    except TimeoutError as exc:
        raise start_error(TimeoutError(f"no answer within {limit_s:g} s"), doing) from exc
    except FAILURES as exc:
        raise start_error(exc, doing) from exc
