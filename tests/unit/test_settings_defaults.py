"""config/defaults.yaml says what the adapters' parameters say."""

import re
from importlib.resources import files
from typing import Any

import pytest
from agentcompass.app.catalog import BUILT_INS, Catalog, Kind
from agentcompass.app.settings import section_model
from agentcompass.app.settings.layers import defaults_layer
from agentcompass.app.settings.models import ModelSettings, RunSettings
from agentcompass.app.settings.report import check
from agentcompass.app.settings.section import part_of
from agentcompass.app.settings.shape import fields, members
from pydantic import BaseModel, SecretStr

TEXT = files("agentcompass.config").joinpath("defaults.yaml").read_text(encoding="utf-8")
ADAPTERS = [(kind, name) for kind in Kind if kind is not Kind.MODELS for name in BUILT_INS[kind]]


def block(header: str) -> str:
    """The lines below `header`, down to the next of its own depth."""
    depth = len(header) - len(header.lstrip())
    lines = TEXT.splitlines()
    below = lines[next(at for at, line in enumerate(lines) if re.match(rf"{header}( \{{\}})?$", line)) + 1 :]
    end = next((at for at, line in enumerate(below) if re.match(rf"\s{{0,{depth}}}[^\s]", line)), len(below))
    return "\n".join(below[:end])


def unsaid(model: type[BaseModel], values: dict[str, Any], text: str) -> list[str]:
    """The fields that are neither set nor a commented line."""
    return [
        name
        for name, info in fields(model).items()
        if name not in values
        and SecretStr not in members(info.annotation)
        and not re.search(rf"^ *# *{name}:", text, re.MULTILINE)
    ]


def test_every_key_of_defaults_yaml_is_valid() -> None:
    report = check([], {}, Catalog())

    assert report.problems == []
    assert report.notes == []


@pytest.mark.parametrize(("kind", "name"), ADAPTERS)
def test_every_parameter_of_an_adapter_is_in_defaults_yaml(kind: Kind, name: str) -> None:
    values = part_of(defaults_layer().values, (kind.value, name))
    model = section_model(kind, Catalog().load(kind, name))
    where = TEXT.index(f"\n{kind.value}:")

    assert unsaid(model, values, block(f"  {name}:") if f"\n  {name}:" in TEXT[where:] else "") == []


@pytest.mark.parametrize("name", BUILT_INS[Kind.MODELS])
def test_every_parameter_of_a_protocol_is_a_commented_line(name: str) -> None:
    model = section_model(Kind.MODELS, Catalog().load(Kind.MODELS, name))

    assert unsaid(model, {}, block(f"  # {name}:")) == []


@pytest.mark.parametrize(("section", "model"), [("run", RunSettings), ("model", ModelSettings)])
def test_every_setting_of_ours_is_in_defaults_yaml(section: str, model: type[BaseModel]) -> None:
    values = part_of(defaults_layer().values, (section,))

    assert unsaid(model, values, block(f"{section}:")) == []
    assert model.model_validate(values) == model()


@pytest.mark.parametrize(("kind", "name"), ADAPTERS)
def test_the_defaults_said_are_the_adapters_own(kind: Kind, name: str) -> None:
    values = part_of(defaults_layer().values, (kind.value, name))
    model = section_model(kind, Catalog().load(kind, name))

    assert model.model_validate(values) == model()


def test_no_secret_is_in_defaults_yaml() -> None:
    assert not re.search(r"^[^#]*(token|secret|api_key|password)\w*: *\S", TEXT, re.MULTILINE)
