"""A path of this machine, as a user writes it."""

import os
from pathlib import Path


def local_path(text: str | os.PathLike[str]) -> Path:
    """With `~` and `~user` at its begin replaced, or as it stands where there is no such user."""
    return Path(os.path.expanduser(text))  # noqa: PTH111 - Path.expanduser raises where there is none
