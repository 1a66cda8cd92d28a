"""Every option of `run` reaches the settings."""

from dataclasses import fields
from typing import Any, get_args, get_type_hints

import pytest
from agentcompass.app.cli.run import NO_FLAGS, run
from agentcompass.app.settings import Flags

OPTIONS = {name: hint for name, hint in get_type_hints(run).items() if name not in (*NO_FLAGS, "return")}


def test_every_option_is_a_field_of_the_flags_and_every_field_an_option() -> None:
    assert set(OPTIONS) == {each.name for each in fields(Flags)} - {"as_options"}


@pytest.mark.parametrize("name", OPTIONS)
def test_the_field_takes_what_the_option_gives(name: str) -> None:
    field: Any = get_type_hints(Flags)[name]

    assert field is Any or set(get_args(OPTIONS[name])) <= set(get_args(field))


def test_a_message_names_the_option_as_it_is_typed() -> None:
    hints = get_type_hints(run, include_extras=True)
    typed = {name: hints[name].__metadata__[0].default for name in OPTIONS}

    assert {name: Flags().spelled(name) for name in OPTIONS} == typed
