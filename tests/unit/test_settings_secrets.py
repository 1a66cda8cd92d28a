"""Secrets are SecretStr from the loader on, and no message shows one."""

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from agentcompass.app.logs import redacted_now
from agentcompass.app.settings import Flags, Settings, Used, layers
from agentcompass.domain.errors import ConfigError
from pydantic import SecretStr
from settings_fakes import settings

KEY = "sk-hush-hush"


def private(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "my.yaml"
    path.write_text(text)
    return path


def with_secrets(tmp_path: Path) -> Settings:
    path = private(tmp_path, f"environments: {{cloud-box: {{token_id: {KEY}, token_secret: {KEY}, image: i}}}}")
    environ = {"AGENTCOMPASS_ENVIRONMENTS__CLOUD_BOX__HEADERS__X_KEY": KEY}
    return settings(path, environ=environ, model_api_key=KEY)


def test_a_secret_of_any_layer_is_a_secret_str(tmp_path: Path) -> None:
    request = with_secrets(tmp_path).request()

    assert request.environment_params == {
        "token_id": SecretStr(KEY),
        "token_secret": SecretStr(KEY),
        "headers": {"X_KEY": SecretStr(KEY)},
        "image": "i",
    }
    assert request.model.api_key == SecretStr(KEY)


def test_no_form_of_settings_and_request_shows_a_secret(tmp_path: Path) -> None:
    chosen = with_secrets(tmp_path)
    request = chosen.request()

    shown = [repr(chosen), repr(request), str(request), repr(chosen.sections), request.model_dump_json()]

    assert not [text for text in shown if KEY in text]


def test_the_secrets_of_settings_in_use_are_known_to_whatever_ends_the_program(tmp_path: Path) -> None:
    found, token = "sk-of-the-model", "token-of-the-url"
    settings(
        model_api_key=found, environment_params={"env_variables": {"DATA": f"https://host/x?access_token={token}"}}
    )

    assert redacted_now(f"failed with {found} at {token}") == "failed with *** at ***"


def test_flags_do_not_show_what_they_hold() -> None:
    assert KEY not in repr(Flags(model_api_key=KEY, model_params=f'{{"x": "{KEY}"}}'))


@pytest.mark.parametrize(
    "flags",
    [
        {"environment_params": f'{{"memory": "{KEY}"}}'},
        {"environment_params": f'{{"token_id": ["{KEY}"]}}'},
        {"environment_params": f'{{"token_id": "{KEY}"}}'},
        {"environment_params": f'{{"price": "{KEY}"}}'},
        {"environment_params": f'{{"token_id": "{KEY}"'},
        {"environment_params": {"token_id": KEY, "token_secret": object()}},
    ],
)
def test_a_refusal_does_not_show_what_it_refuses(flags: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as raised:
        settings(**flags)

    causes = [raised.value, raised.value.__cause__, raised.value.__context__]
    assert not [cause for cause in causes if KEY in str(cause)]


def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> Path:
    folder = tmp_path / "config"
    folder.mkdir()
    (folder / "defaults.yaml").write_text("")
    path = folder / "mine.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("environments:\n  cloud-box:\n    token_id: a\n    token_secret: b", "environments.cloud-box.token_id"),
        ("environments:\n  cloud-box:\n    headers:\n      x: b", "environments.cloud-box.headers.x"),
        ("environments:\n  no_sdk:\n    token_secret: b", "environments.no_sdk.token_secret"),
        ("model:\n  api_key: b", "model.api_key"),
    ],
)
def test_a_secret_in_the_repositorys_config_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, key: str
) -> None:
    path = shared(tmp_path, monkeypatch, text)

    with pytest.raises(ConfigError, match="a secret in a file of the repository's config folder") as raised:
        settings(path)

    assert re.match(rf"{re.escape(str(path))}:\d+: {re.escape(key)}: ", str(raised.value))


def test_a_link_into_the_config_folder_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = tmp_path / "link.yaml"
    link.symlink_to(shared(tmp_path, monkeypatch, "model: {api_key: x}"))

    with pytest.raises(ConfigError, match="a secret in a file"):
        settings(link)


def test_what_is_no_secret_may_be_in_the_config_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = shared(tmp_path, monkeypatch, "environments: {cloud-box: {memory: 5, token_id: null}}")

    assert settings(path).request().environment_params == {"memory": 5, "token_id": None}


def test_the_installed_config_folder_counts_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = private(tmp_path, "model: {api_key: x}")
    monkeypatch.setattr(layers, "files", lambda package: tmp_path)
    (tmp_path / "defaults.yaml").write_text(files("agentcompass.config").joinpath("defaults.yaml").read_text())

    with pytest.raises(ConfigError, match="a secret in a file"):
        settings(path, used=Used("fake", "fake", "none", "fake"))
