"""What a pydantic annotation says of the keys and texts that belong there."""

from collections.abc import Iterator, Mapping, Sequence, Set
from enum import Enum
from pathlib import PurePath
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

_TEXTS = (str, SecretStr, PurePath, Enum)


def members(annotation: Any) -> Iterator[Any]:
    """The alternatives of an annotation, unions and Annotated opened."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from members(get_args(annotation)[0])
    elif origin in (Union, UnionType):
        for member in get_args(annotation):
            yield from members(member)
    elif hasattr(annotation, "__value__"):
        yield from members(annotation.__value__)
    else:
        yield annotation


def known_keys(annotation: Any) -> list[str]:
    """The keys that mappings of this annotation may have; empty where any key goes."""
    return [key for model in models(annotation) for key in fields(model)]


def models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The pydantic models among the alternatives."""
    for member in members(annotation):
        if isinstance(member, type) and issubclass(member, BaseModel):
            yield member


def fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields by the name that settings use (the alias, where there is one)."""
    return {info.alias or name: info for name, info in model.model_fields.items()}


def child(annotation: Any, key: str | int) -> Any:
    """The annotation of the value at `key`; Any where it is not known."""
    found: list[Any] = []
    for member in members(annotation):
        found.extend(_child_of(member, key))
    return Union[tuple(found)] if found else Any  # noqa: UP007 - made at run time


def _child_of(member: Any, key: str | int) -> list[Any]:
    if isinstance(member, type) and issubclass(member, BaseModel):
        known = fields(member)
        return [known[key].annotation] if isinstance(key, str) and key in known else []
    origin, args = get_origin(member), get_args(member)
    if not isinstance(origin, type) or not args:
        return []
    if issubclass(origin, Mapping):
        return [args[1]] if isinstance(key, str) else []
    if isinstance(key, int) and issubclass(origin, Sequence | Set):
        return [args[0]]
    return []


def takes_text(annotation: Any) -> bool:
    """Whether any text may be a value: str, a secret, a path, one of some words."""
    return any(_is_text(member) for member in members(annotation))


def takes_null(annotation: Any) -> bool:
    """Whether null is a value."""
    return any(member is None or member is type(None) for member in members(annotation))


def takes(annotation: Any, value: Any) -> bool:
    """Whether a value of this plain type is among the alternatives that are no text."""
    wanted = {bool: (bool,), int: (int, float), float: (float,)}.get(type(value))
    if wanted is not None:
        return any(member in wanted for member in members(annotation))
    return isinstance(value, dict | list) and any(not _is_text(member) for member in members(annotation))


def _is_text(member: Any) -> bool:
    if get_origin(member) is Literal:
        return any(isinstance(word, str) for word in get_args(member))
    return isinstance(member, type) and issubclass(member, _TEXTS)
