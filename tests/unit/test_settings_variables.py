"""How a variable's text becomes a value."""

from typing import Any

import pytest
from settings_fakes import settings

BOX = "AGENTCOMPASS_ENVIRONMENTS__CLOUD_BOX__"


def explicit(**environ: str) -> dict[str, Any]:
    return settings(environ={f"{BOX}{name}": text for name, text in environ.items()}).request().environment_params


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("MEMORY", "512", 512),
        ("MEMORY", "null", None),
        ("TIMEOUT", "1.5", 1.5),
        ("DEBUG", "true", True),
        ("IMAGE", "512", "512"),
        ("IMAGE", "true", "true"),
        ("IMAGE", "null", None),
        ("IMAGE", "", ""),
        ("IMAGE", "[odd", "[odd"),
        ("IMAGE", "repo/image:tag # 1", "repo/image:tag # 1"),
        ("TAGS", '["a", "b"]', ["a", "b"]),
        ("TAGS", "[a, b]", ["a", "b"]),
        ("PRICE", '{"input": 1, "output": 2}', {"input": 1, "output": 2}),
    ],
)
def test_a_text_setting_takes_the_text_and_all_others_read_it_as_yaml(name: str, text: str, value: Any) -> None:
    assert explicit(**{name: text}) == {name.lower(): value}


def test_names_may_be_in_any_case() -> None:
    environ = {"agentcompass_Environments__Cloud_Box__Memory": "5"}

    assert settings(environ=environ).request().environment_params == {"memory": 5}


def test_each_double_underscore_is_a_level() -> None:
    assert explicit(PRICE__INPUT="1", PRICE__OUTPUT="2") == {"price": {"input": 1, "output": 2}}


def test_keys_that_are_the_users_own_stay_as_written() -> None:
    assert explicit(ENV_VARIABLES__HTTP_PROXY="1", ENV_VARIABLES__lower="2") == {
        "env_variables": {"HTTP_PROXY": "1", "lower": "2"}
    }


def test_other_variables_are_not_ours() -> None:
    assert settings(environ={"PATH": "/bin", "MODAL_TOKEN_ID": "x", "COMPASS_RUN__X": "1"}).run.max_retries == 1


def test_variables_that_sandboxes_give_to_commands_are_no_settings() -> None:
    assert settings(environ={"AGENTCOMPASS_ROOT": "/box", "AGENTCOMPASS_MODEL": "m"}).run.max_retries == 1


def test_a_model_parameter_is_a_level_below_params() -> None:
    chosen = settings(environ={"AGENTCOMPASS_MODEL__PARAMS__BY_TURN": "true"})

    assert chosen.request().model_params == {"by_turn": True}
