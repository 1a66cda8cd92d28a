"""The first fault of a value, in words of ours."""

import pytest
from agentcompass.domain.errors import ConfigError
from agentcompass.domain.resolving import resolve_spec
from agentcompass.domain.sandbox import Command
from agentcompass.domain.value import first_fault
from pydantic import ValidationError


@pytest.mark.parametrize(
    ("explicit", "message"),
    [
        ({"workspace_root": "x"}, "workspace_root: 'x' is not an absolute path"),
        ({"timeout": -1}, "timeout: expected greater than 0"),
        ({"env_variables": {"A": 5}}, "env_variables.A: expected a valid string"),
    ],
)
def test_parameters_that_make_no_sandbox_are_refused_by_their_key(explicit: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        resolve_spec({}, {}, explicit, 60)

    assert raised.value.message == message


def test_a_fault_of_the_whole_value_has_no_key_of_its_own() -> None:
    with pytest.raises(ValidationError) as raised:
        Command(timeout_s=1)

    assert first_fault(raised.value) == "a command is either an argv or a script"
    assert first_fault(raised.value, "a", "b") == "a.b: a command is either an argv or a script"
