"""What lies where in a run's folder."""

from pathlib import Path

from ...domain.attempt import AttemptKey
from ...domain.naming import file_name
from .durable import UnreadableResult, names_in, sync_folder

DETAILS, TRAJECTORIES, LOGS = "details", "trajectories", "logs"
RUN_INFO, SUMMARY, SUMMARY_TEXT, LOCK = "run_info.json", "summary.json", "summary.md", ".lock"


def task_path(folder: Path, task_id: str) -> Path:
    """The file of a task's attempts."""
    return folder / DETAILS / f"{file_name(task_id)}.json"


def task_paths(folder: Path) -> list[Path]:
    """The task files there are, by name; those set aside and temporary ones are none.

    Raises:
        UnreachableResult: they cannot be listed now.
    """
    try:
        names = names_in(folder / DETAILS)
    except UnreadableResult:
        return []
    return [folder / DETAILS / name for name in names if name.endswith(".json") and not name.startswith(".")]


def steps_path(folder: Path, key: AttemptKey) -> Path:
    """The file of an attempt's steps."""
    return folder / TRAJECTORIES / f"{file_name(key.task_id)}.{key.attempt}.jsonl"


def logs_path(folder: Path, key: AttemptKey) -> Path:
    """The folder of an attempt's logs."""
    return folder / LOGS / f"{file_name(key.task_id)}.{key.attempt}"


def move_aside(folder: Path, key: AttemptKey) -> None:
    """Rename an attempt's steps and logs, where there are any, to `TASK.N.try-M.jsonl` and `TASK.N.try-M`, M from 1."""
    steps, logs = steps_path(folder, key), logs_path(folder, key)
    if not steps.exists() and not (logs.exists() and any(logs.iterdir())):
        return
    number = _tries_aside(steps, logs) + 1
    for path, suffix in ((steps, ".jsonl"), (logs, "")):
        if path.exists():
            path.rename(_aside(path, number, suffix))
            sync_folder(path.parent)


def all_logs_paths(folder: Path, key: AttemptKey) -> list[Path]:
    """The log folders of an attempt's present try and of those moved aside; some may not exist."""
    steps, logs = steps_path(folder, key), logs_path(folder, key)
    return [logs, *(_aside(logs, number) for number in range(1, _tries_aside(steps, logs) + 1))]


def _tries_aside(steps: Path, logs: Path) -> int:
    number = 0
    while _aside(steps, number + 1, ".jsonl").exists() or _aside(logs, number + 1).exists():
        number += 1
    return number


def _aside(path: Path, number: int, suffix: str = "") -> Path:
    return path.with_name(f"{path.name.removesuffix(suffix)}.try-{number}{suffix}")
