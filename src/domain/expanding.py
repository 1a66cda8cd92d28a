"""Paths as users write them, `~` included."""

from pathlib import Path

from .errors import ConfigError
from .one_line import printable


def expanded(path: Path) -> Path:
    """`path` with the home folder for its `~` or `~USER`.

    Raises:
        ConfigError: there is no such user, or no home folder is known.
    """
    try:
        return path.expanduser()
    except RuntimeError as exc:
        shown = printable(str(path))
        raise ConfigError(f"{shown}: no home folder is known for {path.parts[0]!r}") from exc
