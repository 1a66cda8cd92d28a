"""What is fetched once and kept in the data folder: put there whole, or not at all."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...domain.errors import ConfigError

WRITABLE = "give a folder that you may write to, with enough room, as --data-dir"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


@contextmanager
def keeping(what: str, home: Path) -> Iterator[None]:
    """While `what` is put into the folder `home`, or read from it.

    Raises:
        ConfigError: instead of any OSError.
    """
    try:
        yield
    except OSError as exc:
        raise ConfigError(f"{what} cannot be kept in {str(home)!r}: {exc.strerror}", hint=WRITABLE) from exc


@contextmanager
def beside(home: Path) -> Iterator[Path]:
    """A new folder in `home`, which is made too, for what is to be published; it is gone afterwards.

    It is the user's own, as any temporary folder: for all who share `home`, publish a folder that was made in it.

    Raises:
        OSError: it cannot be made.
    """
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=home, ignore_cleanup_errors=True) as work:
        yield Path(work)


def publish(work: Path, target: Path) -> None:
    """Make the folder `work` the `target`, unless another process has been faster.

    Raises:
        OSError: neither came to be.
    """
    try:
        work.rename(target)
    except OSError:
        if not target.is_dir():
            raise


def cannot_be_written(error: OSError) -> bool:
    """Whether a disk or its permissions are at fault, in a call that uses the network as well."""
    return error.errno in (*_NO_ROOM, errno.EACCES)


def tells_no_room(message: str) -> bool:
    """Whether a program's message is of a disk that takes no more."""
    return any(os.strerror(code) in message for code in _NO_ROOM)
