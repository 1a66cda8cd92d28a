"""A path of this machine, as a user writes it."""

import os
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator

from .errors import ConfigError
from .one_line import printable


def _named(path: object) -> object:
    if path == "":
        raise ValueError("names nothing; write '.' for the current folder")
    return path


LocalPath = Annotated[Path, BeforeValidator(_named)]
"""A path among the settings: pydantic alone would read an empty text as the current folder."""


def local_path(text: str | os.PathLike[str]) -> Path:
    """With `~` or `~USER` at its begin replaced, or as it stands where there is no such home folder."""
    return Path(os.path.expanduser(text))  # noqa: PTH111 - Path.expanduser raises where there is none


def expanded(path: Path) -> Path:
    """As `local_path`.

    Raises:
        ConfigError: no such home folder is known.
    """
    found = local_path(path)
    if found.parts and found.parts[0].startswith("~"):
        message = f"{printable(str(path))}: no home folder is known for {found.parts[0]!r}"
        raise ConfigError(message, hint="set HOME, or give a whole path")
    return found
