"""A folder with a Dockerfile as a build context, named by its content."""

import hashlib
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, cast

from docker import APIClient
from docker.utils.build import exclude_paths

from ....domain.sandbox import ImageBuild
from ...support.tarballs import add_path

_IGNORE_FILE = ".dockerignore"


@dataclass(frozen=True)
class BuildContext:
    """What a Dockerfile sees of its folder (`.dockerignore` honoured)."""

    build: ImageBuild
    paths: tuple[str, ...]
    digest: str
    """Of names, modes and contents, the Dockerfile's name and the platform."""

    @property
    def tag(self) -> str:
        """The name of the image that is built from it."""
        return f"agentcompass/build:{self.digest[:32]}"

    @contextmanager
    def archive(self) -> Iterator[IO[bytes]]:
        """The context as a tar file, rewound."""
        with tempfile.TemporaryFile() as file:
            _write(self.build, self.paths, cast("IO[bytes]", file), with_time=True)
            file.seek(0)
            yield cast("IO[bytes]", file)


def read_context(build: ImageBuild, platform: str | None) -> BuildContext:
    """Read the folder through. Blocks.

    Raises:
        OSError: the folder or its Dockerfile cannot be read.
    """
    dockerfile = build.context / build.dockerfile
    if not dockerfile.is_file():
        raise FileNotFoundError(f"there is no {str(dockerfile)!r}")
    paths = tuple(sorted(exclude_paths(str(build.context), _ignored(build), dockerfile=build.dockerfile)))
    hashing = _Hashing(f"{build.dockerfile}\0{platform or ''}\0".encode())
    _write(build, paths, cast("IO[bytes]", hashing), with_time=False)
    return BuildContext(build, paths, hashing.hexdigest())


def built_lines(client: APIClient, context: BuildContext, platform: str | None) -> Iterator[dict[str, Any]]:
    """Start the build and return the engine's lines about it."""
    with context.archive() as archive:
        return client.build(
            fileobj=archive,
            custom_context=True,
            tag=context.tag,
            dockerfile=context.build.dockerfile,
            platform=platform,
            rm=True,
            forcerm=True,
            decode=True,
            labels={"agentcompass.build": context.digest},
        )


def _ignored(build: ImageBuild) -> list[str]:
    try:
        text = (build.context / _IGNORE_FILE).read_text("utf-8")
    except FileNotFoundError:
        return []
    lines = (line.strip() for line in text.removeprefix("\ufeff").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _write(build: ImageBuild, paths: tuple[str, ...], file: IO[bytes], *, with_time: bool) -> None:
    with tarfile.open(fileobj=file, mode="w|", format=tarfile.GNU_FORMAT) as tar:
        for path in paths:
            add_path(tar, build.context / path, path, with_time=with_time)


class _Hashing:
    # A file that keeps nothing but the hash of what is written to it.

    def __init__(self, start: bytes) -> None:
        self._hash = hashlib.sha256(start)

    def write(self, data: bytes) -> int:
        self._hash.update(data)
        return len(data)

    def hexdigest(self) -> str:
        return self._hash.hexdigest()
