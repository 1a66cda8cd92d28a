"""How layers of settings merge."""

from collections.abc import Mapping
from typing import Any

from .errors import ConfigError


def merged(lower: Mapping[str, Any], higher: Mapping[str, Any], *, where: str = "") -> dict[str, Any]:
    """Both mappings, key by key; the higher wins, lists replace. Neither input is changed or shared.

    Associative, with {} as identity.

    Raises:
        ConfigError: one layer has a mapping where the other has a plain value (null is one: null over a mapping and a
            mapping over null would merge differently by grouping).
    """
    result = {key: copied(value) for key, value in lower.items()}
    for key, value in higher.items():
        path = f"{where}.{key}" if where else key
        result[key] = _merged_value(result[key], value, path) if key in result else copied(value)
    return result


def _merged_value(lower: Any, higher: Any, path: str) -> Any:
    if isinstance(lower, Mapping) and isinstance(higher, Mapping):
        return merged(lower, higher, where=path)
    if isinstance(lower, Mapping) != isinstance(higher, Mapping):
        raise ConfigError(f"{path}: one layer has a mapping here, another a plain value", hint="use one form")
    return copied(higher)


def copied(value: Any) -> Any:
    """A copy whose mappings and lists are its own."""
    if isinstance(value, Mapping):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copied(item) for item in value]
    return value
