"""The frozen base of every value that crosses a port."""

from typing import Any

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, ValidationError

from .docstrings import field_docstrings


class Value(BaseModel):
    """Immutable, strict about its keys, and silent about rejected input (which may be a secret)."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


def first_fault(error: ValidationError, *section: str) -> str:
    """`SECTION.KEY: what is wrong` of the first value that does not fit; never its input, which may be a secret."""
    first = error.errors(include_url=False, include_input=False)[0]
    key = ".".join(map(str, (*section, *first["loc"])))
    message = first["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
    return f"{key}: {message}" if key else message


class Parameters(Value):
    """Base of an adapter's parameters: one section of the settings. `{}` is valid for every adapter.

    A field that cannot move a score (a retry count, a socket) says so with
    `json_schema_extra={"identity": False}`, and a resumed run may change it. The docstring under a field is its
    description in `list --json` and `config schema`.
    """

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """With descriptions. pydantic's own `use_attribute_docstrings` would look for them at every start."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in field_docstrings(cls).items():
            if name in properties:
                properties[name].setdefault("description", text)
        return schema
