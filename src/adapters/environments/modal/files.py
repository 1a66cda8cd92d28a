"""Files in and out of a Modal sandbox: as tar archives where it has tar, else through Modal's own file calls."""

import asyncio
import io
import re
import stat
import tarfile
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Protocol, cast

import modal

from ....domain.errors import SandboxFailed
from ...support.tarballs import pack, pack_bytes, unpack
from .exec import HELPER, NO_EXIT_CODE, Kept, ModalProcess, Sink, Written
from .scripts import (
    MISSING,
    NO_FILE,
    TOO_LARGE,
    folders_argv,
    links_argv,
    modes_argv,
    pack_argv,
    read_argv,
    unpack_argv,
)

_LIMIT_S = 1800.0
_CALLS_S = 60.0
_STDERR_BYTES = 4096
_WORDS_A_CALL = 200
_BYTES_A_CALL = 40_000
_MOST_LINKS = 40
_SPOOL_BYTES = 8 * 1024 * 1024
_PROGRAM_MISSING = (126, 127)
_TAR_FILE_CHANGED = 1
_CHANGED = re.compile(r"file changed as we read it|[Ff]ile removed before we read it|File shrank by")
"""What GNU tar says for its status 1; busybox' has that status for every error."""


class ModalFiles:
    """The files of one sandbox; paths are absolute. Raises what the SDK raises, besides what is said."""

    def __init__(self, sandbox: modal.Sandbox, *, has_tar: bool) -> None:
        self._sandbox, self._has_tar = sandbox, has_tar

    async def put_files(self, files: dict[PurePosixPath, tuple[bytes, int]]) -> None:
        """Create or replace files given as path -> (content, mode)."""
        await self._put(io.BytesIO(pack_bytes(files)))

    async def put_path(self, source: Path, target: PurePosixPath) -> None:
        """Copy a local file to `target`, or a folder's content into it. Raises FileNotFoundError: no `source`."""
        async with _spooled() as archive:
            count = await asyncio.to_thread(pack, source, target, archive)
            if not count:
                await self._shell(folders_argv([str(target)]))
                return
            archive.seek(0)
            await self._put(archive)

    async def get_path(self, source: PurePosixPath, target: Path) -> None:
        """Copy `source` to the local path `target`. Raises FileNotFoundError: no `source`."""
        async with _spooled() as archive:
            await self._get(source, archive)
            archive.seek(0)
            await asyncio.to_thread(unpack, archive, target)

    async def read(self, path: PurePosixPath, max_bytes: int) -> bytes:
        """A file's content.

        Raises:
            FileNotFoundError: no such file.
            ValueError: larger than `max_bytes`, or no regular file.
        """
        kept = Kept(max_bytes + 1)
        code, said = await self._run(read_argv(path, max_bytes), stdout=kept)
        if code in _PROGRAM_MISSING:
            return await self._read_without_programs(path, max_bytes)
        if code == MISSING:
            raise _missing(path)
        if code == NO_FILE:
            raise ValueError(f"{str(path)!r} is no regular file")
        if code == TOO_LARGE or len(kept.data) > max_bytes:
            raise ValueError(f"{str(path)!r} has {said or 'more'} bytes, more than {max_bytes}")
        if code:
            raise SandboxFailed(f"reading {str(path)!r}: {said or f'exit code {code}'}")
        return bytes(kept.data)

    async def _put(self, archive: IO[bytes]) -> None:
        if not self._has_tar:
            await self._put_without_tar(archive)
            return
        code, said = await self._run(unpack_argv(), stdin=archive)
        if code:
            raise SandboxFailed(f"unpacking files in the sandbox: {said or f'exit code {code}'}")

    async def _put_without_tar(self, archive: IO[bytes]) -> None:
        with tarfile.open(fileobj=archive) as tar:
            members = [(f"/{member.name}", member) for member in tar.getmembers()]
            folders = [name for name, member in members if member.isdir()]
            parents = [str(PurePosixPath(name).parent) for name, member in members if not member.isdir()]
            await self._in_parts(folders_argv, sorted({*folders, *parents}), 1)
            for name, member in members:
                if member.isreg():
                    content = tar.extractfile(member)
                    assert content is not None
                    await self._sandbox.filesystem.write_bytes.aio(content.read(), name)
            modes = [word for name, member in members if not member.issym() for word in (f"{member.mode:o}", name)]
            await self._in_parts(modes_argv, modes, 2)
            links = [word for name, member in members if member.issym() for word in (member.linkname, name)]
            await self._in_parts(links_argv, links, 2)

    async def _get(self, source: PurePosixPath, archive: IO[bytes]) -> None:
        if not self._has_tar:
            await self._get_without_tar(source, archive)
            return
        code, said = await self._run(pack_argv(source), stdout=Written(archive))
        if code == MISSING:
            raise _missing(source)
        if code and not (code == _TAR_FILE_CHANGED and _CHANGED.search(said)):
            raise SandboxFailed(f"packing {str(source)!r} in the sandbox: {said or f'exit code {code}'}")

    async def _get_without_tar(self, source: PurePosixPath, archive: IO[bytes]) -> None:
        found = await self._resolved(str(source))
        with tarfile.open(fileobj=archive, mode="w", format=tarfile.GNU_FORMAT) as tar:
            await self._add(tar, found, "top")

    async def _add(self, tar: tarfile.TarFile, found: modal.types.FileInfo, name: str) -> None:
        member = tarfile.TarInfo(name)
        member.mode = stat.S_IMODE(found.mode)
        content = b""
        if found.is_dir():
            member.type = tarfile.DIRTYPE
        elif found.is_symlink():
            member.type, member.linkname = tarfile.SYMTYPE, found.symlink_target or ""
        else:
            content = await self._sandbox.filesystem.read_bytes.aio(found.path)
            member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
        if found.is_dir():
            for entry in await self._sandbox.filesystem.list_files.aio(found.path):
                await self._add(tar, entry, f"{name}/{entry.name}")

    async def _read_without_programs(self, path: PurePosixPath, max_bytes: int) -> bytes:
        found = await self._resolved(str(path))
        if not found.is_file():
            raise ValueError(f"{str(path)!r} is no regular file")
        if found.size > max_bytes:
            raise ValueError(f"{str(path)!r} has {found.size} bytes, more than {max_bytes}")
        content: bytes = await self._sandbox.filesystem.read_bytes.aio(found.path)
        return content

    async def _resolved(self, path: str) -> modal.types.FileInfo:
        for _ in range(_MOST_LINKS):
            try:
                found = await self._sandbox.filesystem.stat.aio(path)
            except (
                modal.exception.SandboxFilesystemNotFoundError,
                modal.exception.SandboxFilesystemNotADirectoryError,
            ) as exc:
                raise _missing(PurePosixPath(path)) from exc
            if not found.is_symlink():
                return found
            path = str(PurePosixPath(path).parent / (found.symlink_target or ""))
        raise FileNotFoundError(f"{path!r} is a circle of links")

    async def _in_parts(self, argv_of: "_ArgvOf", words: Sequence[str], together: int) -> None:
        part: list[str] = []
        for start in range(0, len(words), together):
            group = words[start : start + together]
            if len(part) >= _WORDS_A_CALL or sum(map(len, (*part, *group))) > _BYTES_A_CALL:
                await self._shell(argv_of(part))
                part = []
            part += group
        if part:
            await self._shell(argv_of(part))

    async def _shell(self, argv: Sequence[str]) -> None:
        code, said = await self._run(argv)
        if code:
            raise SandboxFailed(f"copying files into the sandbox: {said or f'exit code {code}'}")

    async def _run(
        self, argv: Sequence[str], *, stdin: IO[bytes] | None = None, stdout: Sink | None = None
    ) -> tuple[int | None, str]:
        errors = Kept(_STDERR_BYTES)
        process = ModalProcess(argv, HELPER, _LIMIT_S)
        try:
            async with asyncio.timeout(_LIMIT_S + _CALLS_S) as limit:
                if stdout is None:
                    await process.finish(self._sandbox, errors, stdin)
                else:
                    await process.read(self._sandbox, stdout, errors)
        except TimeoutError as exc:
            if limit.expired():
                raise _too_slow() from exc
            raise
        if process.code == NO_EXIT_CODE:
            raise _too_slow()
        return process.code, errors.line()


class _ArgvOf(Protocol):
    def __call__(self, words: Sequence[str], /) -> list[str]: ...


@asynccontextmanager
async def _spooled() -> AsyncIterator[IO[bytes]]:
    with tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES) as file:
        yield cast("IO[bytes]", file)


def _too_slow() -> SandboxFailed:
    return SandboxFailed(f"not done within the limit of {_LIMIT_S:g} s for a transfer")


def _missing(path: PurePosixPath) -> FileNotFoundError:
    return FileNotFoundError(f"there is no {str(path)!r} in the sandbox")
