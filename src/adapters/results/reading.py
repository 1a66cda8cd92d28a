"""Stored runs, read without a change: which there are, what one came to, what its attempts were."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...domain.errors import ConfigError
from ...domain.local_path import local_path
from ...domain.naming import file_name
from ...domain.run import RunSummary, is_path_safe
from ...domain.scoring import Tally
from ...domain.suggest import did_you_mean, nearest
from ..support.liveness import process_alive, this_host
from .durable import UnreadableResult, is_file, names_in, read_json_object, reading_begins
from .layout import LOCK, RUN_INFO, SUMMARY, task_path, task_paths
from .run_file import read_run_file
from .task_file import TaskFile, read_task_file, without_unknown

RUNNING, FINISHED, PARTIAL = "running", "finished", "partial"
UNKNOWN = "unknown"
_MAX_LISTED = 8


@dataclass(frozen=True)
class StoredRun:
    """A run's folder, and what it came to so far."""

    folder: Path
    run_info: Mapping[str, Any]
    """Empty where it cannot be read."""
    summary: RunSummary
    """As stored, or counted anew where the run has gone on since or never ended."""
    state: str
    """`running`; `finished`: every selected attempt is graded; `partial`: the rest."""
    selection_known: bool
    """Else `selected` and `not_run` are of the tasks stored so far."""

    @property
    def name(self) -> str:
        """RUN_NAME/RUN_ID."""
        return f"{self.folder.parent.name}/{self.folder.name}"


@dataclass(frozen=True)
class StoredTasks:
    """The tasks of a run, and the files that cannot be read, with the reason."""

    tasks: list[TaskFile] = field(default_factory=list)
    unreadable: dict[Path, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RunFolders:
    """The folder of every run, by name and id, and the folders that cannot be read now, with the reason."""

    runs: list[Path] = field(default_factory=list)
    unreadable: dict[Path, str] = field(default_factory=dict)

    @contextmanager
    def noting(self, folder: Path) -> Iterator[None]:
        """Inside, `folder` is read: where it cannot be, it is noted, and the rest of the block is left out."""
        try:
            with reading_begins():
                yield
        except ConfigError as exc:
            self.unreadable[folder] = str(exc)


@reading_begins()
def run_folders(results_dir: Path) -> RunFolders:
    """Which runs there are below `results_dir`; what cannot be read, and is called as no run can be, is none.

    Raises:
        ConfigError: there is no such folder, or it cannot be listed now.
    """
    found = RunFolders()
    try:
        names = names_in(results_dir)
    except UnreadableResult as exc:
        hint = "run something first, or give --results-dir"
        raise ConfigError(f"no results folder {str(results_dir)!r}", hint=hint) from exc
    for named in (results_dir / name for name in names):
        with found.noting(named), suppress(UnreadableResult):  # a file beside the runs
            for folder in [named / run_id for run_id in names_in(named)]:
                with found.noting(folder):
                    if is_run(folder):
                        found.runs.append(folder)
    unreadable = {folder: reason for folder, reason in found.unreadable.items() if is_path_safe(folder.name)}
    return RunFolders(found.runs, unreadable)


@reading_begins()
def is_run(folder: Path) -> bool:
    """Whether a run is stored there.

    Raises:
        ConfigError: that cannot be told now.
    """
    return is_file(folder / RUN_INFO) or bool(task_paths(folder))


def find_run(results_dir: Path, wanted: str) -> Path:
    """The run that a user means by a folder, by RUN_NAME/RUN_ID, or by a run id or run name that only one run has.

    Raises:
        ConfigError: none is meant, or more than one; or what is meant cannot be read now.
    """
    for folder in (local_path(wanted), results_dir / wanted):
        if is_run(folder):
            return folder
    found = run_folders(results_dir)
    meant = [folder for folder in (*found.runs, *found.unreadable) if wanted in folder.relative_to(results_dir).parts]
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise ConfigError(f"{wanted!r} is the name of {len(meant)} runs", hint=f"name one: {_listed(meant)}")
    unseen = "".join(f"; {reason}" for reason in found.unreadable.values())
    raise ConfigError(f"no run {wanted!r} in {str(results_dir)!r}{unseen}", hint=_nearest_run(wanted, found.runs))


def _nearest_run(wanted: str, folders: list[Path]) -> str:
    by_name = {name: folder for folder in folders for name in (folder.name, _run_name(folder))}
    near = nearest(wanted, by_name)
    if near:
        return f"did you mean {_run_name(by_name[near[0]])}?"
    return f"there are: {_listed(folders)}" if folders else "no run is stored there"


def _listed(folders: list[Path]) -> str:
    more = ", ..." if len(folders) > _MAX_LISTED else ""
    return ", ".join(map(_run_name, folders[:_MAX_LISTED])) + more


def _run_name(folder: Path) -> str:
    return f"{folder.parent.name}/{folder.name}"


@reading_begins()
def read_run(folder: Path) -> StoredRun:
    """What is known of the run stored in `folder`.

    Raises:
        ConfigError: the machine does not give what is stored: a disk or a mount that fails.
    """
    try:
        info = read_run_file(folder / RUN_INFO) or {}
    except UnreadableResult:
        info = {}
    summary = _stored_summary(folder)
    ended = summary is not None and info.get("ended_at") == summary.ended_at
    if summary is None or not ended:
        selected = summary.tasks if summary is not None else _number(info, "tasks")
        recounted = _recounted(folder, info, summary, selected)
        return StoredRun(folder, info, recounted, _state(folder, recounted, ended=False), selected is not None)
    return StoredRun(folder, info, summary, _state(folder, summary, ended=True), selection_known=True)


def read_runs(results_dir: Path) -> tuple[list[StoredRun], list[str]]:
    """Every run below `results_dir`, and for each folder that the machine does not give the reason.

    Raises:
        ConfigError: as `run_folders`.
    """
    found = run_folders(results_dir)
    runs: list[StoredRun] = []
    for folder in found.runs:
        with found.noting(folder):
            runs.append(read_run(folder))
    unreadable = sorted(found.unreadable.items())
    return runs, [f"{folder.relative_to(results_dir)}: {reason}" for folder, reason in unreadable]


def _state(folder: Path, summary: RunSummary, *, ended: bool) -> str:
    if _is_live(folder):
        return RUNNING
    counts = summary.counts
    return FINISHED if ended and counts.correct + counts.incorrect == counts.selected else PARTIAL


def _is_live(folder: Path) -> bool:
    # Not by trying the lock: holding it for a moment could refuse a run that starts just then.
    try:
        owner = read_json_object(folder / LOCK)
        return bool(owner["host"] == this_host() and process_alive(owner["process"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return False


def _stored_summary(folder: Path) -> RunSummary | None:
    try:
        data = read_json_object(folder / SUMMARY)
        return RunSummary.model_validate(without_unknown(RunSummary, data))
    except ValueError:
        return None


def _recounted(
    folder: Path, info: Mapping[str, Any], stale: RunSummary | None, selected_tasks: int | None
) -> RunSummary:
    files = [file for file in _task_files(folder) if isinstance(file, TaskFile)]
    attempts = [(key, file.category, record) for file in files for key, record in file.records.items()]
    selected = max(selected_tasks or 0, len(files))
    request = info.get("request")
    k = stale.attempts_per_task if stale else max((key.attempt for key, *_ in attempts), default=1)
    if isinstance(request, dict):
        k = max(k, _number(request, "k") or 1)
    tally = Tally(selected, k)
    for key, category, record in attempts:
        tally.add(key, category, record)
    benchmark, harness, environment, model = _names(info)
    started = str(info.get("started_at", ""))
    return tally.summary(
        run_name=folder.parent.name,
        run_id=folder.name,
        benchmark=benchmark,
        harness=harness,
        model=model,
        environment=environment,
        started_at=started,
        ended_at=max((record.ended_at for *_, record in attempts), default=started),
        interrupted=True,
    )


def _number(document: Mapping[str, Any], name: str) -> int | None:
    value = document.get(name)
    return value if isinstance(value, int) else None


def _names(info: Mapping[str, Any]) -> tuple[str, str, str, str]:
    request = info.get("request")
    request = request if isinstance(request, dict) else {}
    model = request.get("model")
    benchmark, harness, environment = (str(request.get(n, UNKNOWN)) for n in ("benchmark", "harness", "environment"))
    return benchmark, harness, environment, str(model.get("name", UNKNOWN) if isinstance(model, dict) else UNKNOWN)


def _task_files(folder: Path) -> Iterator[TaskFile | tuple[Path, str]]:
    for path in task_paths(folder):
        try:
            file = read_task_file(path)
        except UnreadableResult as exc:
            yield path, str(exc)
            continue
        if file_name(file.task_id) == path.stem:
            yield file


@reading_begins()
def read_tasks(folder: Path) -> StoredTasks:
    """All tasks, by id.

    Raises:
        ConfigError: as `read_run`.
    """
    found = StoredTasks()
    for file in _task_files(folder):
        if isinstance(file, TaskFile):
            found.tasks.append(file)
        else:
            found.unreadable[file[0]] = file[1]
    found.tasks.sort(key=lambda file: file.task_id)
    return found


@reading_begins()
def find_task(folder: Path, task_id: str) -> TaskFile:
    """One task by its id.

    Raises:
        ConfigError: it is not stored (its nearest is named), or its file cannot be read.
    """
    path = task_path(folder, task_id)
    if not is_file(path):
        known = [file.task_id for file in read_tasks(folder).tasks]
        hint = did_you_mean(task_id, known, otherwise=f"{len(known)} tasks are stored: see results show RUN")
        raise ConfigError(f"no task {task_id!r} in run {_run_name(folder)}", hint=hint)
    try:
        return read_task_file(path)
    except UnreadableResult as exc:
        raise ConfigError(f"{str(path)!r} cannot be read: {exc}", hint="run the same run again to mend it") from exc
