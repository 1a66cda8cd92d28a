"""A stored run in the forms that SWE-bench's own tools take: a file of predictions, and the grader's log folders."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ...domain.attempt import AttemptKey, AttemptRecord
from ...domain.run import GRADED
from .layout import logs_path
from .reading import StoredRun, read_tasks

LOG_FILES = ("test_output.txt", "report.json", "run_instance.log", "patch.diff", "eval.sh")
"""What the grader keeps of an instance, and reads again."""
_GOLD = "gold"
"""The only model whose logs `swebench report` looks for."""


@dataclass(frozen=True)
class Exported:
    """How many instances were written, and why others were not."""

    written: int
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Instance id -> reason."""


def export_predictions(run: StoredRun, attempt: int, target: Path) -> Exported:
    """Write JSON lines of `instance_id`, `model_name_or_path`, `model_patch`, of the attempt with that number.

    A patch that is not UTF-8 has no place in JSON: such an instance is left out rather than changed.
    """
    lines: list[str] = []
    left_out: dict[str, str] = {}
    for key, record in _attempts(run, attempt):
        content = _submission(run.folder, key, record)
        try:
            patch = content.decode() if content is not None else None
        except UnicodeDecodeError:
            left_out[key.task_id] = "its patch is not UTF-8"
            continue
        if patch is None:
            left_out[key.task_id] = f"it has no submission: {record.error or record.status}"
            continue
        row = {"instance_id": key.task_id, "model_name_or_path": run.summary.model, "model_patch": patch}
        lines.append(json.dumps(row) + "\n")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("".join(lines), encoding="utf-8")
    return Exported(len(lines), left_out)


def export_logs(run: StoredRun, attempt: int, target: Path) -> Exported:
    """Write `logs/run_evaluation/RUN_ID/MODEL/INSTANCE/` below `target`, as the grader leaves them, and a link `gold`.

    That is of instances whose patch was tried: graded, and not empty. A patch that did not apply has no test log.
    """
    written = 0
    left_out: dict[str, str] = {}
    root = target / "logs" / "run_evaluation" / run.folder.name
    model = run.summary.model.replace("/", "__")
    for key, record in _attempts(run, attempt):
        logs = logs_path(run.folder, key)
        present = [name for name in LOG_FILES if (logs / name).is_file()]
        if record.status not in GRADED or "run_instance.log" not in present:
            left_out[key.task_id] = record.error or "its patch is empty"
            continue
        folder = root / model / key.task_id
        folder.mkdir(parents=True, exist_ok=True)
        for name in present:
            shutil.copyfile(logs / name, folder / name)
        written += 1
    if written and model != _GOLD and not os.path.lexists(root / _GOLD):
        (root / _GOLD).symlink_to(model, target_is_directory=True)
    return Exported(written, left_out)


def _attempts(run: StoredRun, attempt: int) -> Iterator[tuple[AttemptKey, AttemptRecord]]:
    for file in read_tasks(run.folder).tasks:
        for key, record in file.records.items():
            if key.attempt == attempt:
                yield key, record


def _submission(folder: Path, key: AttemptKey, record: AttemptRecord) -> bytes | None:
    if record.submission_sha256 is None:
        return None
    try:
        return (logs_path(folder, key) / "submission").read_bytes()
    except OSError:
        return None
