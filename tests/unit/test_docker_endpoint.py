"""The engine is found as the docker command finds it: parameters, variables, contexts, the default socket."""

import errno
import hashlib
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agentcompass.adapters.environments.docker import endpoint as endpoint_module
from agentcompass.adapters.environments.docker import engine as engine_module
from agentcompass.adapters.environments.docker import environment as environment_module
from agentcompass.adapters.environments.docker.endpoint import Endpoint, resolve_endpoint
from agentcompass.adapters.environments.docker.engine import connect
from agentcompass.adapters.environments.docker.environment import DockerEnvironment, DockerParameters
from agentcompass.domain.errors import ConfigError
from docker_fakes import CORES, FakeEngine

pytest_plugins = ("docker_fixtures",)

DEFAULT = "unix:///var/run/docker.sock"


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path)}


def _context(home: dict[str, str], name: str, host: str, *, tls: bool = False) -> None:
    key = hashlib.sha256(name.encode()).hexdigest()
    contexts = Path(home["HOME"], ".docker", "contexts")
    meta = contexts / "meta" / key / "meta.json"
    meta.parent.mkdir(parents=True)
    endpoint = {"Host": host, "SkipTLSVerify": False}
    meta.write_text(json.dumps({"Name": name, "Metadata": {}, "Endpoints": {"docker": endpoint}}))
    if tls:
        folder = contexts / "tls" / key / "docker"
        folder.mkdir(parents=True)
        for file in ("ca.pem", "cert.pem", "key.pem"):
            (folder / file).write_text("")


def _current(home: dict[str, str], name: str) -> None:
    config = Path(home["HOME"], ".docker", "config.json")
    config.parent.mkdir(exist_ok=True)
    config.write_text(json.dumps({"currentContext": name}))


def test_without_any_word_it_is_the_default_socket(home: dict[str, str]) -> None:
    assert resolve_endpoint(None, None, home) == Endpoint(DEFAULT, "the default socket")


def test_the_current_context_is_used(home: dict[str, str]) -> None:
    _context(home, "colima", "unix:///colima.sock")
    _current(home, "colima")
    found = resolve_endpoint(None, None, home)

    assert found.url == "unix:///colima.sock"
    assert "colima" in found.origin
    assert "config.json" in found.origin


def test_the_variable_names_a_context_also_where_there_is_no_configuration_file(home: dict[str, str]) -> None:
    _context(home, "rootless", "unix:///run/user/1000/docker.sock")
    found = resolve_endpoint(None, None, {**home, "DOCKER_CONTEXT": "rootless"})

    assert found.url == "unix:///run/user/1000/docker.sock"
    assert found.socket == Path("/run/user/1000/docker.sock")


def test_the_host_variable_wins_over_contexts(home: dict[str, str]) -> None:
    _context(home, "colima", "unix:///colima.sock")
    found = resolve_endpoint(None, None, {**home, "DOCKER_HOST": "unix:///mine.sock", "DOCKER_CONTEXT": "colima"})

    assert found == Endpoint("unix:///mine.sock", "DOCKER_HOST")


def test_parameters_win_over_variables(home: dict[str, str]) -> None:
    _context(home, "colima", "unix:///colima.sock")
    environ = {**home, "DOCKER_HOST": "unix:///mine.sock"}

    assert resolve_endpoint("unix:///given.sock", None, environ).url == "unix:///given.sock"
    assert resolve_endpoint(None, "colima", environ).url == "unix:///colima.sock"


def test_the_context_named_default_is_the_default_socket(home: dict[str, str]) -> None:
    assert resolve_endpoint(None, "default", home).url == DEFAULT


def test_the_configuration_folder_may_be_elsewhere(home: dict[str, str], tmp_path: Path) -> None:
    _context(home, "there", "unix:///there.sock")
    _current(home, "there")
    environ = {"HOME": "/nowhere", "DOCKER_CONFIG": str(tmp_path / ".docker")}

    assert resolve_endpoint(None, None, environ).url == "unix:///there.sock"


def test_an_unknown_context_is_refused_with_those_there_are(home: dict[str, str]) -> None:
    _context(home, "colima", "unix:///colima.sock")

    with pytest.raises(ConfigError, match=r"'colimo' \(DOCKER_CONTEXT\).*known contexts: colima"):
        resolve_endpoint(None, None, {**home, "DOCKER_CONTEXT": "colimo"})


def test_a_broken_configuration_file_is_named(home: dict[str, str]) -> None:
    _current(home, "x")
    Path(home["HOME"], ".docker", "config.json").write_text("{")

    with pytest.raises(ConfigError, match=r"config\.json"):
        resolve_endpoint(None, None, home)


def test_a_contexts_certificates_are_used(home: dict[str, str]) -> None:
    _context(home, "remote", "tcp://engine:2376", tls=True)
    found = resolve_endpoint(None, "remote", home)

    assert found.tls
    assert found.socket is None


def test_an_ssh_engine_is_passed_on_as_it_is(home: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "find_spec", lambda name: name)

    assert resolve_endpoint("ssh://user@engine", None, home).url == "ssh://user@engine"


def test_an_ssh_engine_is_refused_where_what_it_needs_is_missing(
    home: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint_module, "find_spec", lambda name: None)
    _context(home, "far", "ssh://user@engine")

    for host, context in (("ssh://user@engine", None), (None, "far")):
        with pytest.raises(ConfigError, match="paramiko is missing") as caught:
            resolve_endpoint(host, context, home)
        assert caught.value.hint == "pip install 'docker[ssh]'"


def test_missing_key_files_of_the_variables_are_a_fault_of_the_configuration(home: dict[str, str]) -> None:
    environ = {**home, "DOCKER_HOST": "tcp://engine:2376", "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": "/nowhere"}

    with pytest.raises(ConfigError, match="DOCKER_HOST"):
        resolve_endpoint(None, None, environ)


def test_a_missing_key_file_of_a_context_is_a_fault_of_the_configuration(home: dict[str, str]) -> None:
    _context(home, "remote", "tcp://engine:2376", tls=True)
    next(Path(home["HOME"]).rglob("key.pem")).unlink()

    with pytest.raises(ConfigError, match="'remote'"):
        resolve_endpoint(None, "remote", home)


def test_key_files_of_a_context_that_may_not_be_seen_are_a_fault_of_the_configuration(
    home: dict[str, str], close: Callable[[Path], None]
) -> None:
    _context(home, "remote", "tcp://engine:2376", tls=True)
    close(next(Path(home["HOME"]).rglob("key.pem")).parent)

    with pytest.raises(ConfigError, match="'remote'.*Permission denied"):
        resolve_endpoint(None, "remote", home)


@pytest.fixture
def close(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """From now on nobody, not even root, may look into this folder."""

    def close(folder: Path) -> None:
        look = os.stat

        def stat(path: Any, **how: Any) -> os.stat_result:
            if not isinstance(path, int) and folder in Path(os.fsdecode(path)).parents:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return look(path, **how)

        monkeypatch.setattr(os, "stat", stat)

    return close


async def test_the_check_tells_of_a_socket_in_a_folder_that_one_may_not_enter(
    tmp_path: Path, close: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(engine_module, "_knock", refused)
    close(tmp_path)
    checks = await DockerEnvironment(DockerParameters(host=f"unix://{tmp_path}/docker.sock")).check()

    assert [(check.name, check.ok) for check in checks] == [("engine", False)]
    assert checks[0].hint.startswith(f"you may not use '{tmp_path}/docker.sock'")


async def test_the_check_of_the_disk_leaves_out_a_folder_that_one_may_not_enter(
    tmp_path: Path, fake: FakeEngine, close: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Endpoint(fake.url, "the fake")
    monkeypatch.setattr(environment_module, "connect", lambda _, timeout_s: connect(found, timeout_s))
    fake.on("GET /info", lambda request: request.say({"DockerRootDir": f"{tmp_path}/data"}))
    fake.on("GET /containers/json", lambda request: request.say([]))
    close(tmp_path)
    checks = await DockerEnvironment(DockerParameters(host="unix:///var/run/docker.sock")).check()

    assert [check.detail for check in checks if check.name == "disk"] == [f"{tmp_path}/data cannot be seen from here"]


async def test_an_engine_that_refuses_is_told_in_a_few_words() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    checks = await DockerEnvironment(DockerParameters(host=f"tcp://127.0.0.1:{port}")).check()

    assert checks[0].detail == (
        f"no Docker engine answers at 'tcp://127.0.0.1:{port}' (parameter host): Connection refused"
    )


async def test_the_check_tells_of_missing_key_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    monkeypatch.setenv("DOCKER_CERT_PATH", "/nowhere")
    checks = await DockerEnvironment(DockerParameters(host="tcp://engine:2376")).check()

    assert [(check.name, check.ok) for check in checks] == [("engine", False)]
    assert "DOCKER_CERT_PATH" in checks[0].hint


async def test_more_cores_than_the_engine_has_matter_only_to_what_starts(fake: FakeEngine) -> None:
    fake.on("GET /containers/json", lambda request: request.say([]))
    checks = await DockerEnvironment(DockerParameters(host=fake.url, cpu=CORES + 1)).check()
    wrong = [check for check in checks if not (check.ok or check.is_advice)]

    assert [(check.name, check.only_starting) for check in wrong] == [("platform", True)]
