"""Files that are whole after a crash: atomic replacement, appended lines, files set aside, and what reads them."""

import errno
import fcntl
import json
import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import structlog

from ...domain.errors import ConfigError, ResultsUnwritable

log = structlog.get_logger()
_TEMPORARY = ".tmp-"
_FAULTS_OF_THE_FILE = frozenset({errno.EISDIR, errno.ELOOP, errno.ENOENT, errno.ENOTDIR, errno.ENXIO})
"""What is there is no file, or no folder. Any other reason may pass, and what was stored is still there then."""


class UnreadableResult(ValueError):
    """The file, or a part of it, cannot be understood."""


class UnreachableResult(OSError):
    """The machine, not the file, is the reason: no descriptors left, no permission, a disk or a mount that fails."""


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        if exc.errno in _FAULTS_OF_THE_FILE:
            raise UnreadableResult(str(exc)) from exc
        raise UnreachableResult(exc.errno, exc.strerror, str(path)) from exc


def read_stored(path: Path) -> bytes:
    """The bytes of a file.

    Raises:
        UnreadableResult: there is no file.
        UnreachableResult: it cannot be read now.
    """
    with _reading(path):
        return path.read_bytes()


def names_in(folder: Path) -> list[str]:
    """The names in a folder, in order.

    Raises:
        UnreadableResult: there is no folder.
        UnreachableResult: it cannot be listed now.
    """
    with _reading(folder):
        return sorted(os.listdir(folder))


def is_file(path: Path) -> bool:
    """Whether a regular file is there.

    Raises:
        UnreachableResult: that cannot be told now.
    """
    return stat.S_ISREG(_mode(path))


def is_folder(path: Path) -> bool:
    """Whether a folder is there; raises as `is_file`."""
    return stat.S_ISDIR(_mode(path))


def _mode(path: Path) -> int:
    try:
        with _reading(path):
            return path.stat().st_mode
    except UnreadableResult:
        return 0


def read_json_object(path: Path) -> dict[str, Any]:
    """The mapping that a file holds.

    Raises:
        UnreadableResult: there is no file, or no JSON object in it.
        UnreachableResult: it cannot be read now.
    """
    try:
        document = json.loads(read_stored(path))
    except UnreadableResult:
        raise
    except (ValueError, RecursionError) as exc:
        raise UnreadableResult(str(exc)) from exc
    if not isinstance(document, dict):
        raise UnreadableResult("not a JSON object")
    return document


@contextmanager
def reading_begins() -> Iterator[None]:
    """Inside, nothing has been started: what cannot be read now is a ConfigError that names the file or folder."""
    try:
        yield
    except UnreachableResult as exc:
        raise ConfigError(
            f"{exc.filename!r} cannot be read: {exc.strerror}", hint="it is left as it is; try again once it can be"
        ) from exc


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Inside, a run is stored: what the machine refuses, or does not end, is a ResultsUnwritable that names `path`."""
    try:
        yield
    except OSError as exc:
        raise ResultsUnwritable(
            f"{str(path)!r} cannot be stored: {exc.strerror or exc}",
            hint="what is stored is whole; mend the disk or free space, then run again",
        ) from exc


def write_atomic(path: Path, data: bytes) -> None:
    """Create or replace `path`; after a crash it holds either the old bytes or the new.

    Raises:
        OSError: nothing was changed.
    """
    temporary = path.with_name(f"{_TEMPORARY}{uuid.uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def append_line(path: Path, line: bytes) -> None:
    """Add `line`, which ends in a newline, and sync it.

    Raises:
        OSError: nothing of the line is left in the file.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        size = os.fstat(descriptor).st_size
        try:
            _write_all(descriptor, line)
            os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, size)
            raise
    finally:
        os.close(descriptor)
    if size == 0:
        sync_folder(path.parent)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def sync_folder(folder: Path) -> None:
    """Make the folder's own entries durable: files created, renamed or removed in it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def set_aside(path: Path) -> Path:
    """Rename a broken file to the first free `NAME.broken-N` beside it; returns that."""
    number = 1
    while (target := path.with_name(f"{path.name}.broken-{number}")).exists():
        number += 1
    path.rename(target)
    sync_folder(path.parent)
    return target


def remove_temporaries(folder: Path) -> None:
    """Remove what writes cut by a crash have left in `folder`; raises as `names_in`."""
    for name in names_in(folder):
        if name.startswith(_TEMPORARY):
            (folder / name).unlink(missing_ok=True)


class FolderLock:
    """Exclusive use of a folder, until `release` or the end of this process, however it ends."""

    def __init__(self, path: Path, owner: dict[str, str | int]) -> None:
        """Take the lock at once.

        Raises:
            ConfigError: another store holds it; names its owner.
        """
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(path)
            os.close(self._descriptor)
            raise ConfigError(
                f"run folder {str(path.parent)!r} is in use by {holder}",
                hint="wait for its end, or use another --run-id",
            ) from None
        except OSError as exc:  # a file system without locks (some network mounts)
            log.warning("results.unlocked", path=str(path), error=str(exc))
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps(owner).encode(), 0)

    def release(self) -> None:
        """Give it up; the file stays, empty, because removing it would let two others hold it."""
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)


def _holder(path: Path) -> str:
    try:
        owner = json.loads(path.read_bytes())
        return f"process {owner['pid']} on {owner['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
