"""Files in and out of a container through the engine's archive calls, one call each."""

import base64
import io
import json
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

import requests
from docker import APIClient
from docker.errors import APIError, NotFound

from ...support.tarballs import pack, pack_bytes, unpack
from .engine import CutableStream, checked
from .errors import explanation

_FOLDER, _LINK = 1 << 31, 1 << 27
_NO_REGULAR_FILE = _FOLDER | _LINK | 1 << 26 | 1 << 25 | 1 << 24 | 1 << 21 | 1 << 19
_MOST_LINKS = 40
_UNPACK_LIMIT_S = 600
_BLOCK_BYTES = 64 * 1024


def put_files(
    client: APIClient, stream: CutableStream, container: str, files: Mapping[PurePosixPath, tuple[bytes, int]]
) -> None:
    """Create or replace files given as absolute path -> (content, mode). Blocks."""
    _put(client, stream, container, io.BytesIO(pack_bytes(files)))


def put_path(client: APIClient, stream: CutableStream, container: str, source: Path, target: PurePosixPath) -> bool:
    """Copy a local file or folder to `target`; False when there was nothing in it to copy. Blocks.

    Raises:
        FileNotFoundError: no `source`.
    """
    with tempfile.TemporaryFile() as file:
        if not pack(source, target, cast("IO[bytes]", file)):
            return False
        file.seek(0)
        _put(client, stream, container, cast("IO[bytes]", file))
    return True


def get_path(
    client: APIClient, stream: CutableStream, container: str, source: PurePosixPath, target: Path
) -> list[str]:
    """Copy `source` to the local path `target`; returns the names of what was left out, as `unpack`. Blocks.

    Raises:
        FileNotFoundError: no `source` in the container.
    """
    with _archive(client, stream, container, source) as (_, content):
        left_out = unpack(content, target)
        _drain(content)
    return left_out


def get_bytes(client: APIClient, stream: CutableStream, container: str, source: PurePosixPath, max_bytes: int) -> bytes:
    """The content of a file. Blocks.

    Raises:
        FileNotFoundError: no such file.
        ValueError: larger than `max_bytes`, or no regular file.
    """
    with _archive(client, stream, container, source) as (found, content):
        if found["mode"] & _NO_REGULAR_FILE:
            raise ValueError(f"{str(source)!r} is no regular file")
        with tarfile.open(fileobj=content, mode="r|") as tar:
            member = tar.next()
            size = member.size if member is not None else found["size"]
            if size > max_bytes:
                raise ValueError(f"{str(source)!r} has {size} bytes, more than {max_bytes}")
            file = tar.extractfile(member) if member is not None else None
            data = file.read() if file is not None else b""
        _drain(content)
    return data


def _put(client: APIClient, stream: CutableStream, container: str, archive: IO[bytes]) -> None:
    # Without noOverwriteDirNonDir the engine removes a whole folder to put a file in its place.
    params = {"path": "/", "noOverwriteDirNonDir": "true"}
    limit_s = max(client.timeout or 0, _UNPACK_LIMIT_S)
    body = _CutableBody(archive, stream)
    checked(client.put(_url(client, container), params=params, data=body, timeout=limit_s)).close()


class _CutableBody:
    # While a request is being sent there is no response yet that could be cut: what is sent ends instead.

    def __init__(self, archive: IO[bytes], stream: CutableStream) -> None:
        self._archive, self._stream = archive, stream
        self._size = archive.seek(0, io.SEEK_END)
        archive.seek(0)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[bytes]:
        return iter(partial(self.read, _BLOCK_BYTES), b"")

    def read(self, size: int = -1) -> bytes:
        if self._stream.is_cut:
            raise ConnectionAbortedError("the upload was cut")
        return self._archive.read(size)


@contextmanager
def _archive(
    client: APIClient, stream: CutableStream, container: str, path: PurePosixPath
) -> Iterator[tuple[dict[str, Any], IO[bytes]]]:
    for _ in range(_MOST_LINKS):
        response = _got(client, container, path)
        stream.attach(response, patient=False)
        with closing(stream):
            found = json.loads(base64.b64decode(response.headers["X-Docker-Container-Path-Stat"]))
            if not (found["mode"] & _LINK and found.get("linkTarget")):
                yield found, cast("IO[bytes]", response.raw)
                return
        path = PurePosixPath(found["linkTarget"])
    raise FileNotFoundError(f"{str(path)!r} is a circle of links")


def _got(client: APIClient, container: str, path: PurePosixPath) -> requests.Response:
    try:
        return checked(
            client.get(_url(client, container), params={"path": str(path)}, stream=True, timeout=client.timeout)
        )
    except APIError as exc:
        if not _says_no_file(exc):
            raise
        raise FileNotFoundError(f"there is no {str(path)!r} in the sandbox") from exc


def _says_no_file(error: APIError) -> bool:
    said = explanation(error).lower()
    if isinstance(error, NotFound):
        return "no such container" not in said
    return said.endswith("not a directory")  # a file lies where the path has a folder


def _drain(content: IO[bytes]) -> None:
    # What follows the last entry is read, so that the connection can be used again.
    while content.read(_BLOCK_BYTES):
        pass


def _url(client: APIClient, container: str) -> str:
    return f"{client.base_url}/v{client.api_version}/containers/{container}/archive"
