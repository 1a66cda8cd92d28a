"""Where each setting came from."""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from ...domain.one_line import printable

KeyPath: TypeAlias = tuple[str | int, ...]
"""Keys from the top of the settings down; an int is an index into a list."""


class LayerKind(StrEnum):
    """The layers, lowest first."""

    DEFAULTS = "defaults"
    FILE = "file"
    VARIABLE = "variable"
    FLAG = "flag"


@dataclass(frozen=True, slots=True)
class Origin:
    """The layer of a value, and the place in it: `my.yaml:7`, a variable's name, a flag."""

    layer: LayerKind
    where: str


Origins: TypeAlias = Mapping[KeyPath, Origin]


@dataclass(frozen=True, slots=True)
class Layer:
    """The settings of one source, as nested plain values; `values` may hold secrets and is never shown."""

    kind: LayerKind
    values: dict[str, Any] = field(repr=False)
    origins: Origins = field(default_factory=dict)
    shared: bool = False
    """Lies in the repository's config folder, where no secret may be."""


def origin_of(origins: Origins, path: KeyPath) -> Origin | None:
    """The origin of `path`, or of the nearest mapping or list around it."""
    for end in range(len(path), -1, -1):
        if path[:end] in origins:
            return origins[path[:end]]
    return None


def stacked(lower: Origins, higher: Origins) -> dict[KeyPath, Origin]:
    """The origins after a merge: the higher layer's, and the lower's where the higher has nothing at or above."""
    leaves = higher.keys() - {path[:-1] for path in higher if path}
    kept = {path: origin for path, origin in lower.items() if not _covered(path, leaves)}
    return {**kept, **higher}


def _covered(path: KeyPath, leaves: Set[KeyPath]) -> bool:
    return any(path[:end] in leaves for end in range(1, len(path) + 1))


def dotted(path: KeyPath) -> str:
    """`environments.docker.memory`, `mounts[0]`; control characters are escaped, so that it stays one line."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{printable(part)}" if text else printable(part)
    return text
