"""Files and folders in and out of tar archives: modes and symbolic links kept, nothing written outside the target."""

import io
import os
import shutil
import stat
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO

import structlog

log = structlog.get_logger()

_BUFFER_BYTES = 256 * 1024
_PERMISSIONS = 0o777
_OWNER_MAY_USE_FILE = 0o600
_OWNER_MAY_USE_FOLDER = 0o700


def pack(source: Path, target: PurePosixPath, archive: IO[bytes]) -> int:
    """Write `source` into `archive` so that, unpacked at the root, it lies at the absolute path `target`.

    A folder's content goes into `target`. There is no entry for `target`'s parents, nor for the folder `target`
    itself: an entry would change the mode of what exists. All belongs to root. Sockets, pipes and devices are left
    out. Returns the number of entries.

    Raises:
        FileNotFoundError: no `source`.
    """
    count = 0
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for path, name in _entries(source, target):
            count += add_path(tar, path, name)
    return count


def pack_bytes(files: Mapping[PurePosixPath, tuple[bytes, int]]) -> bytes:
    """An archive of files given as absolute path -> (content, mode), owned by root, without entries for parents."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for path, (data, mode) in files.items():
            info = tarfile.TarInfo(_relative(path))
            info.size, info.mode = len(data), mode
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def add_path(tar: tarfile.TarFile, path: Path, name: str, *, with_time: bool = True) -> bool:
    """Add one file, folder (without its content) or symbolic link under `name`; False for any other kind."""
    status = path.lstat()
    info = tarfile.TarInfo(name)
    info.mode = stat.S_IMODE(status.st_mode)
    info.mtime = max(0, int(status.st_mtime)) if with_time else 0
    if stat.S_ISLNK(status.st_mode):
        info.type, info.linkname = tarfile.SYMTYPE, os.readlink(path)
        tar.addfile(info)
    elif stat.S_ISDIR(status.st_mode):
        info.type = tarfile.DIRTYPE
        tar.addfile(info)
    elif stat.S_ISREG(status.st_mode):
        info.size = status.st_size
        with path.open("rb") as content:
            tar.addfile(info, content)
    else:
        return False
    return True


def unpack(archive: IO[bytes], target: Path) -> list[str]:
    """Read a tar stream that holds one file or one folder, and put it at the local path `target`.

    The single top-level name is dropped: a file becomes `target`, a folder's content goes into it. Permissions are
    kept, and the owner may always read and write. Left out, named in the result and logged as `archive.reduced`:
    whatever would lie outside `target`, symbolic links that lead outside it, devices, pipes and sockets, and a file
    where `target` is a folder, which it would replace.

    Raises:
        tarfile.TarError: not a tar stream, or a torn one.
    """
    unpacking = _Unpacking(target)
    with tarfile.open(fileobj=archive, mode="r|", bufsize=_BUFFER_BYTES) as tar:
        for member in tar:
            unpacking.add(tar, member)
    unpacking.add_links()
    if unpacking.left_out:
        log.warning("archive.reduced", target=str(target), count=len(unpacking.left_out), first=unpacking.left_out[0])
    return unpacking.left_out


class _Unpacking:
    # Links are made last, so that no entry is ever written through one that the archive brought; then each is held
    # against what it really leads to, because one link may bend another's path.

    def __init__(self, target: Path) -> None:
        self.left_out: list[str] = []
        self._target = target
        self._links: list[tuple[Path, str, str]] = []

    def add(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        path = self._place(member.name)
        if path is None or (path != self._target and not self._inside(path.parent)):
            self.left_out.append(member.name)
        elif member.isdir():
            self._add_folder(path, member)
        elif path == self._target and os.path.isdir(path):
            self.left_out.append(member.name)
        elif member.isreg():
            content = tar.extractfile(member)
            assert content is not None
            self._add_file(path, content, member.mode)
        elif member.islnk():
            self._add_hard_link(path, member)
        elif member.issym():
            self._links.append((path, member.linkname, member.name))
        else:
            self.left_out.append(member.name)

    def add_links(self) -> None:
        made = [(path, name) for path, leads_to, name in self._links if self._add_link(path, leads_to, name)]
        while outside := [(path, name) for path, name in made if not self._inside(path)]:
            for path, name in outside:
                path.unlink()
                self.left_out.append(name)
            made = [link for link in made if link not in outside]

    def _add_link(self, path: Path, leads_to: str, name: str) -> bool:
        if path == self._target or os.path.isabs(leads_to) or not self._inside(path.parent):
            self.left_out.append(name)
            return False
        _clear(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(leads_to)
        return True

    def _place(self, name: str) -> Path | None:
        parts = PurePosixPath(name).parts
        if name.startswith("/") or ".." in parts or "\0" in name:
            return None
        return self._target.joinpath(*parts[1:])

    def _inside(self, path: Path) -> bool:
        root = os.path.realpath(self._target)
        return os.path.commonpath([root, os.path.realpath(path)]) == root

    def _add_folder(self, path: Path, member: tarfile.TarInfo) -> None:
        if path != self._target and (path.is_symlink() or path.is_file()):
            path.unlink()
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(member.mode & _PERMISSIONS | _OWNER_MAY_USE_FOLDER)

    def _add_file(self, path: Path, content: IO[bytes], mode: int) -> None:
        _clear(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            shutil.copyfileobj(content, file, _BUFFER_BYTES)
        path.chmod(mode & _PERMISSIONS | _OWNER_MAY_USE_FILE)

    def _add_hard_link(self, path: Path, member: tarfile.TarInfo) -> None:
        first = self._place(member.linkname)
        if first is None or not self._inside(first) or not stat.S_ISREG(_mode(first)):
            self.left_out.append(member.name)
            return
        with first.open("rb") as content:
            self._add_file(path, content, _mode(first))


def _entries(source: Path, target: PurePosixPath) -> Iterator[tuple[Path, str]]:
    if not source.is_dir():
        yield source.resolve(strict=True) if source.is_symlink() else source, _relative(target)
        return
    for folder, folders, files in os.walk(source):
        for name in sorted(folders + files):
            path = Path(folder, name)
            yield path, _relative(target / PurePosixPath(path.relative_to(source)))


def _relative(path: PurePosixPath) -> str:
    return str(path).lstrip("/")


def _mode(path: Path) -> int:
    try:
        return path.lstat().st_mode
    except FileNotFoundError:
        return 0


def _clear(path: Path) -> None:
    mode = _mode(path)
    if stat.S_ISDIR(mode):
        shutil.rmtree(path)
    elif mode:
        path.unlink()
