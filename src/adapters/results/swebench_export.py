"""A stored run in the forms that SWE-bench's own tools take: a file of predictions, and the grader's log folders."""

import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from ...domain.attempt import AttemptKey, AttemptRecord, is_whole
from ...domain.errors import ConfigError
from ...domain.run import GRADED
from ...domain.task import Submission
from .durable import UnreachableResult, UnreadableResult, is_file, read_stored, write_atomic
from .layout import logs_path
from .reading import RUNNING, StoredRun, StoredTasks, read_tasks

LOG_FILES = ("test_output.txt", "report.json", "run_instance.log", "patch.diff", "eval.sh")
"""What the grader keeps of an instance, and reads again."""
_GOLD = "gold"
"""The only model whose logs `swebench report` looks for."""
_ELSEWHERE = "give another --output, or remove it"


class ExportFormat(StrEnum):
    """What a run can be exported as."""

    PREDICTIONS = "swebench-predictions"
    LOGS = "swebench-logs"


@dataclass(frozen=True)
class Exported:
    """How many instances were written, and why others were not."""

    written: int
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Instance id -> reason; of a file that cannot be read, its name."""
    unfinished: tuple[str, ...] = ()
    """Why more instances may come of the run than were stored when it was read."""


def export_run(run: StoredRun, form: ExportFormat, attempt: int, target: Path) -> Exported:
    """Write the attempts with that number, as `form` says.

    Raises:
        ConfigError: what is at `target` would be mixed with this run, or nothing can be written there.
    """
    write = {ExportFormat.PREDICTIONS: export_predictions, ExportFormat.LOGS: export_logs}[form]
    try:
        return write(run, attempt, target)
    except OSError as exc:
        place = str(exc.filename or target)
        raise ConfigError(f"{place!r} cannot be written: {exc.strerror}", hint="give another --output") from exc


def export_predictions(run: StoredRun, attempt: int, target: Path) -> Exported:
    """Write JSON lines of `instance_id`, `model_name_or_path`, `model_patch`, of the attempt with that number.

    Left out is what would not be the agent's whole work, byte for byte: where an error cut it short, where the stored
    bytes are not those recorded, and a patch that is not UTF-8, which has no place in JSON. A file that is there is
    replaced as a whole.

    Raises:
        IsADirectoryError: `target` is a folder.
        OSError: the file cannot be written.
    """
    lines: list[str] = []
    stored = read_tasks(run.folder)
    left_out = _unreadable(stored, attempt)
    for key, record in _attempts(stored, attempt):
        try:
            patch = _patch(run.folder, key, record)
        except _NoPrediction as exc:
            left_out[key.task_id] = str(exc)
            continue
        row = {"instance_id": key.task_id, "model_name_or_path": run.summary.model, "model_patch": patch}
        lines.append(json.dumps(row) + "\n")
    target = target.resolve()
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    is_device = target.exists() and not target.is_file()  # a pipe, as /dev/stdout may be: never to be replaced
    (Path.write_bytes if is_device else write_atomic)(target, "".join(lines).encode())
    return Exported(len(lines), left_out, tuple(_unfinished(run, stored, attempt)))


def export_logs(run: StoredRun, attempt: int, target: Path) -> Exported:
    """Write `logs/run_evaluation/RUN_ID/MODEL/INSTANCE/` below `target`, as the grader leaves them, and a link `gold`.

    That is of instances whose patch was tried: graded, and not empty. A patch that did not apply has no test log.
    What an earlier export left of this run's instances is removed first.

    Raises:
        ConfigError: instances that are not this run's, or a folder `gold`, are there already.
        OSError: the folders cannot be written.
    """
    written = 0
    stored = read_tasks(run.folder)
    left_out = _unreadable(stored, attempt)
    root = target / "logs" / "run_evaluation" / run.folder.absolute().name
    model = run.summary.model.replace("/", "__")
    _make_room(root, model, {file.task_id for file in stored.tasks})
    for key, record in _attempts(stored, attempt):
        logs = logs_path(run.folder, key)
        try:
            present = {name: read_stored(logs / name) for name in LOG_FILES if is_file(logs / name)}
        except UnreachableResult as exc:
            left_out[key.task_id] = f"its logs cannot be read: {exc}"
            continue
        if record.status not in GRADED or "run_instance.log" not in present:
            left_out[key.task_id] = record.error or "its patch is empty"
            continue
        folder = root / model / key.task_id
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in present.items():
            (folder / name).write_bytes(data)
        written += 1
    if written and model != _GOLD:
        (root / _GOLD).symlink_to(model, target_is_directory=True)
    return Exported(written, left_out, tuple(_unfinished(run, stored, attempt)))


def _make_room(root: Path, model: str, instances: Set[str]) -> None:
    gold, there = root / _GOLD, root / model
    if gold.is_symlink():
        gold.unlink()
    elif gold.exists() and model != _GOLD:
        raise ConfigError(f"{str(gold)!r} is a folder, where the link to the run's logs goes", hint=_ELSEWHERE)
    folders = list(there.iterdir()) if there.is_dir() else []
    strangers = sorted(folder.name for folder in folders if folder.name not in instances)
    if strangers:
        raise ConfigError(f"{str(there)!r} has logs of another run: {strangers[0]!r}", hint=_ELSEWHERE)
    for folder in folders:  # by what is listed there: an instance's id is not trusted to stay inside
        shutil.rmtree(folder)


def _attempts(stored: StoredTasks, attempt: int) -> Iterator[tuple[AttemptKey, AttemptRecord]]:
    for file in stored.tasks:
        for key, record in file.records.items():
            if key.attempt == attempt:
                yield key, record


def _unreadable(stored: StoredTasks, attempt: int) -> dict[str, str]:
    attempts = {file.task_id: file.broken.get(str(attempt)) for file in stored.tasks}
    reasons = {path.name: reason for path, reason in stored.unreadable.items()} | attempts
    return {name: f"its result cannot be read: {reason}" for name, reason in reasons.items() if reason is not None}


def _unfinished(run: StoredRun, stored: StoredTasks, attempt: int) -> Iterator[str]:
    there = sum(str(attempt) in file.document["attempts"] for file in stored.tasks) + len(stored.unreadable)
    missing = run.summary.tasks - there if attempt <= run.summary.attempts_per_task else 0
    if missing > 0:
        yield f"{missing} selected attempts have no result yet"
    if run.state == RUNNING:
        yield "the run is still going"
    if not run.selection_known:
        yield "how many attempts were selected is not known"


class _NoPrediction(Exception):
    """Why an attempt has no prediction."""


def _patch(folder: Path, key: AttemptKey, record: AttemptRecord) -> str:
    content = _submission(folder, key, record)
    if content is None:
        raise _NoPrediction(f"it has no submission: {record.error or record.status}")
    if not is_whole(record.status, record.exit_reason):
        raise _NoPrediction(f"the agent's work is not whole: {record.error or record.status}")
    if Submission(content=content).sha256 != record.submission_sha256:
        raise _NoPrediction("its stored submission is not what was recorded: the sha256 differs")
    try:
        return content.decode()
    except UnicodeDecodeError as exc:
        raise _NoPrediction("its patch is not UTF-8") from exc


def _submission(folder: Path, key: AttemptKey, record: AttemptRecord) -> bytes | None:
    if record.submission_sha256 is None:
        return None
    try:
        return read_stored(logs_path(folder, key) / "submission")
    except UnreadableResult:
        return None
    except UnreachableResult as exc:
        raise _NoPrediction(f"its submission cannot be read: {exc}") from exc
