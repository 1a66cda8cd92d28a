"""The connection to Modal while nobody answers."""

import asyncio
from types import SimpleNamespace
from typing import Any

import modal
import pytest
from agentcompass.adapters.environments.modal import check
from agentcompass.adapters.environments.modal.connection import ModalConnection
from agentcompass.adapters.environments.modal.credentials import Credentials
from agentcompass.domain.errors import SandboxBusy

Failure = type[Exception] | None


class Client:
    """Fails to connect, or never does where there is no failure."""

    def __init__(self, failure: Failure) -> None:
        self.closed = 0
        self.close = SimpleNamespace(aio=self._close)
        self._failure = failure

    async def __aenter__(self) -> None:
        if self._failure is not None:
            raise self._failure("nobody there")
        await asyncio.Event().wait()

    async def _close(self) -> None:
        self.closed += 1


def connecting(monkeypatch: pytest.MonkeyPatch, failure: Failure) -> tuple[Client, ModalConnection]:
    client = Client(failure)

    def made(*_: Any) -> Client:
        return client

    monkeypatch.setattr(modal, "Client", made)
    credentials = Credentials(token_id="ak-1", token_secret="as-1", origin="a test")
    return client, ModalConnection(credentials, "app", None)


async def test_a_client_that_was_given_up_connects_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    client, connection = connecting(monkeypatch, None)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await connection.client()

    assert client.closed == 1


async def test_a_client_that_cannot_connect_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    client, connection = connecting(monkeypatch, modal.exception.ConnectionError)
    with pytest.raises(SandboxBusy, match="nobody there"):
        await connection.client()

    assert client.closed == 1


@pytest.mark.parametrize("failure", [None, modal.exception.ConnectionError])
async def test_doctor_speaks_of_the_network_and_of_no_run(monkeypatch: pytest.MonkeyPatch, failure: Failure) -> None:
    monkeypatch.setattr(check, "_LIMIT_S", 0.05)
    _, connection = connecting(monkeypatch, failure)
    (found,) = await check.account_checks(connection)

    assert (found.name, found.ok, found.only_starting) == ("workspace", False, False)
    assert found.hint == "is the network up, and MODAL_SERVER_URL right?"
