"""Logs that others wrote into an attempt's folder: which there are, and no secret in them."""

import os
import shutil
import stat
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import structlog

from ...domain.redaction import Redactor

log = structlog.get_logger()
_CHUNK_BYTES = 4 * 1024 * 1024


def regular_files(folder: Path, unlisted: Callable[[OSError], None] | None = None) -> Iterator[Path]:
    """Every regular file below `folder`, in order; links are neither followed nor listed.

    `unlisted` is told of each folder that cannot be listed, and of each entry of one that cannot be searched.
    """
    for parent, folders, names in os.walk(folder, onerror=unlisted):
        folders.sort()
        for name in sorted(names):
            path = Path(parent, name)
            try:
                is_regular = stat.S_ISREG(path.lstat().st_mode)
            except OSError as exc:
                if unlisted is not None:
                    unlisted(exc)
                continue
            if is_regular:
                yield path


def mask_secrets(folder: Path, redactor: Redactor, *, chunk_bytes: int = _CHUNK_BYTES) -> None:
    """Rewrite the files below `folder` that hold a secret; all others keep their bytes.

    Memory does not grow with a file's size. A file that cannot be rewritten or reached, and a folder that cannot be
    listed, is the event `log.unmasked`.
    """
    for path in regular_files(folder, unlisted=lambda exc: _tell_unmasked(exc.filename, exc)):
        try:
            if any(changed for _, changed in _masked_chunks(path, redactor, chunk_bytes)):
                _rewrite(path, redactor, chunk_bytes)
        except OSError as exc:
            _tell_unmasked(path, exc)


def _tell_unmasked(path: Path | str, error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):  # what is gone holds no secret
        log.error("log.unmasked", path=str(path), error=str(error))


def _masked_chunks(path: Path, redactor: Redactor, chunk_bytes: int) -> Iterator[tuple[bytes, bool]]:
    # The end of each chunk may be the beginning of a secret: it is carried over to the next.
    carry = redactor.longest - 1
    pending = b""
    with path.open("rb") as file:
        while chunk := file.read(chunk_bytes):
            data = pending + chunk
            masked = redactor.secrets_masked(data)
            cut = max(len(masked) - carry, 0)
            pending = masked[cut:]
            yield masked[:cut], masked != data
    yield pending, False


def _rewrite(path: Path, redactor: Redactor, chunk_bytes: int) -> None:
    temporary = path.with_name(f".tmp-{uuid.uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            file.writelines(masked for masked, _ in _masked_chunks(path, redactor, chunk_bytes))
        shutil.copymode(path, temporary)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
