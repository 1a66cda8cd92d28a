"""The frozen base of every value that crosses a port."""

from pydantic import BaseModel, ConfigDict


class Value(BaseModel):
    """Immutable, strict about its keys, and silent about rejected input (which may be a secret)."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Parameters(Value):
    """Base of an adapter's parameters: one section of the settings. `{}` is valid for every adapter.

    A field that cannot move a score (a retry count, a socket) says so with
    `json_schema_extra={"identity": False}`, and a resumed run may change it. The docstring under a field is its
    description in `list --json` and `config schema`.
    """

    model_config = ConfigDict(use_attribute_docstrings=True)
