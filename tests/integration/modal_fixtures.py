"""The local Modal server as pytest fixtures: a test module gets them by `pytest_plugins = ("modal_fixtures",)`.

`modal_server` is the Docker-backed one, `light_modal_server` the one for tests of scale; each runs once a session, in
a process of its own, and is reset before and after every test that asks for it. They take a Docker engine, and root.
What they give is in modal_server_client.py; this module itself is never imported, only named as a plugin.
"""

import os
from collections.abc import AsyncIterator, Iterator

import modal
import pytest
from docker import APIClient
from modal_server_client import Account, ModalServer, running_server

GENERATIONS = ("V2", "V1")


def _take_root() -> None:
    if os.geteuid():
        pytest.skip("the Modal server enters its sandboxes by nsenter, which takes root")


@pytest.fixture(scope="session")
def modal_server_process(docker_client: APIClient) -> Iterator[ModalServer]:
    _take_root()
    with running_server() as server:
        yield server


@pytest.fixture
def modal_server(modal_server_process: ModalServer) -> Iterator[ModalServer]:
    """The Docker-backed server, as new."""
    modal_server_process.reset()
    yield modal_server_process
    modal_server_process.reset()


@pytest.fixture(scope="session")
def light_modal_server_process() -> Iterator[ModalServer]:
    _take_root()
    with running_server("--backend", "light") as server:
        yield server


@pytest.fixture
def light_modal_server(light_modal_server_process: ModalServer) -> Iterator[ModalServer]:
    """The light server, as new."""
    light_modal_server_process.reset()
    yield light_modal_server_process
    light_modal_server_process.reset()


@pytest.fixture
async def account(modal_server: ModalServer, debian_image: str) -> AsyncIterator[Account]:
    async with modal_server.client() as client:
        app = await modal.App.lookup.aio("app", client=client, create_if_missing=True)
        yield Account(client, app, await modal.Image.from_registry(debian_image).build.aio(app))


@pytest.fixture(params=GENERATIONS)
def generation(request: pytest.FixtureRequest, account: Account, monkeypatch: pytest.MonkeyPatch) -> Account:
    """The account, making sandboxes of each generation in turn."""
    if request.param == "V1":
        monkeypatch.setenv("MODAL_SANDBOX_V2", "0")
    return account
