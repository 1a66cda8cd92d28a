"""The docstrings under fields, which become descriptions in schemas."""

from agentcompass.domain.docstrings import field_docstrings
from agentcompass.domain.value import Parameters
from pydantic import Field, create_model


class Plain(Parameters):
    """Not a field's text."""

    first: int = 1
    """Of the first,
    in two lines.
    """
    bare: int = 2
    described: int = Field(default=3, description="Said in the field.")
    """Said under it."""


class Derived(Plain):
    bare: int = 4
    """Now it has one."""


def test_the_text_under_a_field_is_its_own_also_in_a_derived_class() -> None:
    texts = {"first": "Of the first,\nin two lines.", "described": "Said under it."}

    assert field_docstrings(Plain) == texts
    assert field_docstrings(Derived) == texts | {"bare": "Now it has one."}


def test_a_schema_describes_fields_by_them_unless_the_field_says_it_itself() -> None:
    made = create_model("Made", __base__=Derived)
    for model in (Derived, made):
        found = model.model_json_schema()["properties"]
        descriptions = {name: each.get("description") for name, each in found.items()}

        assert descriptions["first"] == "Of the first,\nin two lines."
        assert descriptions["bare"] == "Now it has one."
        assert descriptions["described"] == "Said in the field."


def test_a_class_without_source_has_none_of_its_own() -> None:
    assert field_docstrings(create_model("Made", __base__=Plain, other=(int, 1))) == field_docstrings(Plain)
