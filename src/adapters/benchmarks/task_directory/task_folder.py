"""One folder of the task-directory format: found, read, checked and fingerprinted."""

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ....domain.errors import ConfigError
from .task_toml import TaskProblems, TaskToml, parse_task_toml

_CANARY = re.compile(r"\s*(<!--.*canary.*-->|#.*canary.*)\s*", re.IGNORECASE)
_MARKERS = ("task.toml", "instruction.md", "task.yaml")
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
COMPOSE_FILES = ("docker-compose.yaml", "docker-compose.yml", "compose.yaml", "compose.yml")


@dataclass(frozen=True)
class TaskFolder:
    """A task as it lies on disk. `checksum` is a SHA-256 over all its files."""

    id: str
    path: Path
    config: TaskToml
    instruction: str
    checksum: str

    @property
    def has_dockerfile(self) -> bool:
        """Whether an image can be built for it."""
        return (self.path / "environment" / "Dockerfile").is_file()

    @property
    def upload(self) -> Path | None:
        """What goes into the working directory before the agent starts: `environment/`, unless it builds an image."""
        folder = self.path / "environment"
        return folder if not self.has_dockerfile and folder.is_dir() and any(folder.iterdir()) else None


def find_tasks(path: Path) -> dict[str, Path]:
    """The task directories at `path` by their names, sorted: those in it, those in its `tasks/`, or itself.

    Raises:
        ConfigError: no such folder, no task in it, or it cannot be read.
    """
    with read_errors_told(path):
        return _found_tasks(path)


@contextmanager
def read_errors_told(path: Path) -> Iterator[None]:
    """Where `path`, or something in it, cannot be read.

    Raises:
        ConfigError: names it.
    """
    try:
        yield
    except OSError as exc:
        raise ConfigError(f"{str(_place(exc, path))!r} cannot be read: {exc.strerror}") from exc


def _place(error: OSError, path: Path) -> Path:
    """What could not be read: a call on an open file does not tell its name, but it is within `path`."""
    return path if error.filename is None else Path(error.filename)


def _found_tasks(path: Path) -> dict[str, Path]:
    if not path.is_dir():
        raise ConfigError(f"no folder {str(path)!r}", hint="give a folder of task directories as `path`")
    if (path / "task.toml").is_file():
        return {path.resolve().name: path}
    for folder in (path, path / "tasks"):
        found = {entry.name: entry for entry in _entries(folder) if any((entry / name).exists() for name in _MARKERS)}
        if found:
            return found
    raise ConfigError(f"no task directory in {str(path)!r}", hint="each task is a folder with a task.toml")


def _entries(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def read_task(path: Path, task_id: str) -> TaskFolder:
    """The task at `path`, checked whole.

    Raises:
        TaskProblems: everything that is wrong with it, a line each, without the task's id.
    """
    if not (path / "task.toml").is_file():
        legacy = (path / "task.yaml").exists()
        raise TaskProblems(["task.yaml: the 0.x format is not supported" if legacy else "task.toml: missing"])
    try:
        problems = [*_layout_problems(path), *_file_problems(path)]
    except OSError as exc:
        raise TaskProblems([_not_read(exc, path)]) from exc
    instruction = _instruction(problems, path)
    config = _config(problems, path)
    if config is None or problems:
        raise TaskProblems(problems)
    return TaskFolder(task_id, path, config, strip_canary(instruction), checksum(path))


def _config(problems: list[str], path: Path) -> TaskToml | None:
    try:
        config = parse_task_toml(_collected(problems, "task.toml", path).removeprefix("\ufeff"))
    except TaskProblems as exc:
        problems += [f"task.toml{problem}" for problem in exc.problems]
        return None
    if config.environment.docker_image is None and not (path / "environment" / "Dockerfile").is_file():
        problems.append("task.toml environment.docker_image: missing, and there is no environment/Dockerfile")
    return config


def _instruction(problems: list[str], path: Path) -> str:
    before = len(problems)
    text = _collected(problems, "instruction.md", path)
    if not text.strip() and len(problems) == before:
        problems.append("instruction.md: empty")
    return text


def _collected(problems: list[str], name: str, path: Path) -> str:
    try:
        return (path / name).read_bytes().decode("utf-8")
    except OSError as exc:
        problems.append(f"{name}: {exc.strerror}")
    except UnicodeDecodeError as exc:
        problems.append(f"{name}: not UTF-8 at byte {exc.start}")
    return ""


def _layout_problems(path: Path) -> Iterator[str]:
    if not (path / "tests" / "test.sh").is_file():
        yield "tests/test.sh: missing"
    unsupported = {
        "steps": "multi-step tasks",
        "trajectory.json": "a trajectory to start from",
        "tests/.harborignore": "files that are not uploaded",
        "solution/.harborignore": "files that are not uploaded",
        **{f"environment/{name}": "multi-container tasks" for name in COMPOSE_FILES},
    }
    for name, what in unsupported.items():
        if (path / name).exists():
            yield f"{name}: {what}: not supported"


def _file_problems(path: Path) -> Iterator[str]:
    root = path.resolve()
    unreadable: list[OSError] = []
    for name, file in _entries_below(path, unreadable.append):
        problem = _link_problem(file, root) if file.is_symlink() else _file_problem(file)
        if problem:
            yield f"{name}: {problem}"
    for error in unreadable:
        yield _not_read(error, path)


def _not_read(error: OSError, path: Path) -> str:
    return f"{_place(error, path).relative_to(path).as_posix()}: {error.strerror}"


def _link_problem(link: Path, root: Path) -> str:
    return "" if _inside(link, root) else "a symbolic link that leaves the task directory"


def _file_problem(file: Path) -> str:
    if file.is_dir():
        return ""
    if not file.is_file():
        return "neither a file, a folder nor a link"
    try:
        is_pointer = _is_lfs_pointer(file)
    except OSError as exc:
        return str(exc.strerror)
    return "a Git LFS pointer, not the file: run `git lfs pull` in its repository" if is_pointer else ""


def _is_lfs_pointer(file: Path) -> bool:
    with file.open("rb") as stream:
        return stream.read(len(_LFS_POINTER)) == _LFS_POINTER


def may_be_of_a_task(submodule: str, root: Path) -> bool:
    """Whether the empty folder `submodule` below `root` is in a task directory, or where one belongs: in `tasks/`."""
    return _is_of_a_task(submodule, root) or PurePosixPath(submodule).parent.as_posix() == "tasks"


def _is_of_a_task(path: str, root: Path) -> bool:
    return any((root / folder / "task.toml").is_file() for folder in PurePosixPath(path).parents)


def first_lfs_pointer(path: Path) -> str | None:
    """The relative path of a task's file below `path` that Git LFS has not put its content into.

    Raises:
        ConfigError: a file or folder cannot be read.
    """
    with read_errors_told(path):
        for name, file in _entries_below(path, _raised):
            if file.is_file() and not file.is_symlink() and _is_of_a_task(name, path) and _is_lfs_pointer(file):
                return name
    return None


def _inside(link: Path, root: Path) -> bool:
    try:
        return link.resolve().is_relative_to(root)
    except (OSError, RuntimeError):
        return False


def strip_canary(text: str) -> str:
    """`text` without canary lines at its top and the blank lines after them; nothing else is changed."""
    lines = text.splitlines(keepends=True)
    first = next((number for number, line in enumerate(lines) if not _CANARY.fullmatch(line)), len(lines))
    if first == 0:
        return text
    while first < len(lines) and not lines[first].strip():
        first += 1
    return "".join(lines[first:])


def checksum(path: Path) -> str:
    """SHA-256 over relative paths, kinds (file, executable, link, empty folder) and bytes, in the order of the paths.

    All counts that a sandbox is given, but not the `.git` of `path` itself. Of a file's mode only the executable bit
    counts, as for git: the rest depends on how it was copied.

    Raises:
        ConfigError: a file or folder cannot be read.
    """
    total = hashlib.sha256()
    with read_errors_told(path):
        for name, file in sorted(_entries_below(path, _raised)):
            kind = _kind(file)
            total.update(f"{name}\0{kind}\0{_digest(file, kind)}\n".encode("utf-8", "surrogateescape"))
    return total.hexdigest()


def _digest(file: Path, kind: str) -> str:
    if kind == "folder":
        return ""
    if kind == "link":
        return hashlib.sha256(os.readlink(file).encode("utf-8", "surrogateescape")).hexdigest()
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _kind(file: Path) -> str:
    if file.is_symlink():
        return "link"
    if file.is_dir():
        return "folder"
    return "executable" if file.stat().st_mode & 0o100 else "file"


def _raised(error: OSError) -> None:
    raise error


def _entries_below(path: Path, on_error: Callable[[OSError], None]) -> Iterator[tuple[str, Path]]:
    """Files, links and empty folders, by their names relative to `path`."""
    for folder, folders, files in os.walk(path, onerror=on_error):
        here = Path(folder)
        if here == path:
            folders[:] = [name for name in folders if name != ".git"]
        links = [name for name in folders if (here / name).is_symlink()]
        for name in (*files, *links):
            yield (here / name).relative_to(path).as_posix(), here / name
        if here != path and not (folders or files):
            yield here.relative_to(path).as_posix(), here
