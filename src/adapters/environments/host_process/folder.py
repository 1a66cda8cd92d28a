"""The private folder of a host_process sandbox: who owns it, and its files by the sandbox's own paths."""

import os
import posixpath
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path, PurePosixPath

from pydantic import ValidationError

from ....domain.errors import SandboxFailed
from ....domain.sandbox import SandboxOwner
from ....domain.value import Value
from ...support.tarballs import pack, unpack

HOME = PurePosixPath("/home")
TEMPORARY = PurePosixPath("/tmp")  # inside the sandbox's own folder
_LABEL = "owner.json"
_SPOOLED_BYTES = 8 * 1024 * 1024


class Label(Value):
    """What is written beside a sandbox's files, so that a later process can tell whose it is."""

    owner: SandboxOwner
    expires: datetime


class SandboxFolder:
    """One folder `PATH`: the label, and `PATH/root`, where the sandbox's absolute paths begin."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.root = path / "root"
        self._label = path / _LABEL

    def create(self, label: Label, folders: tuple[PurePosixPath, ...]) -> None:
        """Make it, private and labelled from the moment it is there; `folders` are writable by all."""
        starting = SandboxFolder(self.path.with_name(f".{self.path.name}.starting"))
        make_private(starting.path.parent)
        starting.path.mkdir(mode=0o700)
        try:
            starting._fill(label, folders)
            starting.path.rename(self.path)
        except OSError:
            starting.remove()
            raise

    def _fill(self, label: Label, folders: tuple[PurePosixPath, ...]) -> None:
        self._label.write_text(label.model_dump_json())
        for folder in (HOME, TEMPORARY, *folders):
            made = self.host_path(folder)
            made.mkdir(parents=True, exist_ok=True)
            made.chmod(0o777)

    @property
    def name(self) -> str:
        """The sandbox's id, also while it is being made or removed."""
        return self.path.name.removeprefix(".").removesuffix(".starting").removesuffix(".removing")

    def exists(self) -> bool:
        """Whether it is there and can be entered, and nobody has begun to remove it."""
        return os.path.exists(self._label)

    def label(self) -> Label | None:
        """The label; None when there is none that can be read."""
        try:
            return Label.model_validate_json(self._label.read_bytes())
        except (OSError, ValidationError):
            return None

    def set_aside(self) -> "SandboxFolder":
        """Rename it so that its sandbox is gone at once, before the slow part of the removal begins."""
        if self.path.name.startswith("."):
            return self
        aside = SandboxFolder(self.path.with_name(f".{self.path.name}.removing"))
        with suppress(FileNotFoundError):
            self.path.rename(aside.path)
        return aside

    def remove(self) -> None:
        """Delete everything, whatever modes the files have."""
        with suppress(FileNotFoundError):
            try:
                shutil.rmtree(self.path)
            except OSError:
                _make_removable(self.path)
                shutil.rmtree(self.path)

    def host_path(self, path: PurePosixPath, *, follow: bool = False) -> Path:
        """Where the sandbox's `path` is on this machine; `..` ends at the root. A path that is in the folder stays.

        `follow` says that the path's last part will be followed where it is a link.

        Raises:
            SandboxFailed: a symbolic link on the way leads out of the sandbox's folder.
        """
        given = Path(posixpath.normpath("/" + str(path).lstrip("/")))
        found = given if given.is_relative_to(self.path) else self.root / given.relative_to("/")
        reached = os.path.realpath(found if follow else found.parent)
        if not Path(reached).is_relative_to(os.path.realpath(self.path)):
            raise SandboxFailed(f"{str(path)!r} leads outside the sandbox", context={"sandbox": self.name})
        return found

    def read(self, path: PurePosixPath, max_bytes: int) -> bytes:
        """As `Sandbox.read_bytes`."""
        found = self.host_path(path, follow=True)
        try:
            descriptor = os.open(found, os.O_RDONLY | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError) as exc:
            raise FileNotFoundError(f"no file {str(path)!r} in the sandbox") from exc
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ValueError(f"{str(path)!r} is no regular file")
            with open(descriptor, "rb", closefd=False) as file:
                data = file.read(max_bytes + 1)
        finally:
            os.close(descriptor)
        if len(data) > max_bytes:
            raise ValueError(f"{str(path)!r} is larger than {max_bytes} bytes")
        return data

    def write(self, path: PurePosixPath, data: bytes, mode: int) -> None:
        """As `Sandbox.write_bytes`."""
        target = self.host_path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(descriptor, mode)

    def put(self, source: Path, target: PurePosixPath) -> None:
        """As `Sandbox.upload`."""
        if not source.exists():
            raise FileNotFoundError(f"no file or folder {str(source)!r}")
        place = self.host_path(target, follow=source.is_dir())
        place.parent.mkdir(parents=True, exist_ok=True)
        if not source.is_dir():
            _copy_entry(source.resolve(), place)
            return
        place.mkdir(exist_ok=True)
        for parent, folders, files in os.walk(source):
            for name in (*folders, *files):
                entry = Path(parent, name)
                _copy_entry(entry, place / entry.relative_to(source))

    def get(self, source: PurePosixPath, target: Path) -> None:
        """As `Sandbox.download`."""
        found = self.host_path(source, follow=True)
        if not found.exists():
            raise FileNotFoundError(f"no file or folder {str(source)!r} in the sandbox")
        with tempfile.SpooledTemporaryFile(max_size=_SPOOLED_BYTES) as archive:
            pack(found, PurePosixPath("/content"), archive)
            archive.seek(0)
            target.parent.mkdir(parents=True, exist_ok=True)
            if found.is_dir():
                target.mkdir(exist_ok=True)
            unpack(archive, target)


def make_private(folder: Path) -> None:
    """Make the folder that holds sandboxes, for this user alone.

    Raises:
        OSError: it cannot be made, or is somebody else's.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{str(folder)!r} belongs to somebody else")


def sandbox_folders(base: Path) -> Iterator[SandboxFolder]:
    """All sandboxes below `base`, those half made or half removed included."""
    with suppress(FileNotFoundError):
        yield from (SandboxFolder(path) for path in sorted(base.iterdir()) if path.is_dir() and not path.is_symlink())


def _copy_entry(source: Path, target: Path) -> None:
    kind = source.lstat().st_mode
    if stat.S_ISDIR(kind):
        if target.is_symlink() or target.is_file():
            target.unlink()
        target.mkdir(exist_ok=True)
        target.chmod(stat.S_IMODE(kind) | stat.S_IRWXU)
        return
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    target.unlink(missing_ok=True)
    if stat.S_ISLNK(kind):
        target.symlink_to(os.readlink(source))
    elif stat.S_ISREG(kind):
        shutil.copyfile(source, target)
        target.chmod(stat.S_IMODE(kind))


def _make_removable(folder: Path) -> None:
    folder.chmod(0o700)
    for parent, folders, _files in os.walk(folder):
        for name in folders:
            path = Path(parent, name)
            if not path.is_symlink():
                path.chmod(0o700)
