"""Tools for tests that install their own: without a network, what they would have fetched is put beside them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ....domain.errors import ConfigError
from ....domain.local_path import local_path
from .task_folder import checksum, read_errors_told

_LINE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)=(?P<value>[^\0]*)")


@dataclass(frozen=True)
class VerifierKit:
    """A folder, the variables that its `env` sets, and a SHA-256 of it all."""

    path: Path
    env: Mapping[str, str]
    checksum: str


def read_kit(path: Path | None) -> VerifierKit | None:
    """The kit at `path`.

    Raises:
        ConfigError: no such folder, or an `env` whose lines are not NAME=VALUE, or it cannot be read.
    """
    if path is None:
        return None
    folder = local_path(path).absolute()
    with read_errors_told(folder):
        if not folder.is_dir():
            raise ConfigError(f"verifier_kit: no folder {str(path)!r}")
        return VerifierKit(folder, _env(folder / "env"), checksum(folder))


def _env(file: Path) -> dict[str, str]:
    env: dict[str, str] = {}
    lines = file.read_text("utf-8", "replace").splitlines() if file.is_file() else []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise ConfigError(f"{file}:{number}: not a line of the form NAME=VALUE")
        env[match["name"]] = match["value"]
    return env
