"""Runs kept as folders of files; see DESIGN.md's `Results` for what lies where."""

import asyncio
import contextvars
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import structlog
from pydantic import JsonValue

from ...domain.attempt import AttemptKey, AttemptRecord, Step
from ...domain.errors import ConfigError
from ...domain.naming import file_name
from ...domain.redaction import Redactor
from ...domain.run import RunInfo, RunSummary
from ..support.cleanup import finished_despite_cancel
from ..support.liveness import this_host, this_process
from .durable import (
    FolderLock,
    UnreadableResult,
    append_line,
    reading_begins,
    remove_temporaries,
    set_aside,
    write_atomic,
    writing,
)
from .layout import (
    DETAILS,
    LOCK,
    LOGS,
    RUN_INFO,
    SUMMARY,
    SUMMARY_TEXT,
    TRAJECTORIES,
    all_logs_paths,
    logs_path,
    move_aside,
    steps_path,
    task_path,
    task_paths,
)
from .log_files import mask_secrets, regular_files
from .report import markdown
from .run_file import ended, identity_digest, read_run_file, started
from .serialising import json_bytes, stored_form
from .task_file import (
    TaskFile,
    keeps,
    read_task_file,
    with_attempt,
    without_broken,
)

log = structlog.get_logger()
T = TypeVar("T")

_THREADS = 8
WRITE_LIMIT_S = 300.0
"""Of one write, with its wait for a thread and the masking of what a verifier has logged: beyond it the disk hangs."""
_LOCKS = 64


@dataclass
class _OpenRun:
    """What a store holds while a run is open."""

    folder: Path
    lock: FolderLock
    unnoted: Mapping[str, Any] | None
    """run_info.json as stored, while it does not tell of this start."""
    document: dict[str, JsonValue]
    """run_info.json with this start."""
    identity: str
    pool: ThreadPoolExecutor


class FileResultStore:
    """Keeps a run in `results_dir/RUN_NAME/RUN_ID`.

    Every text is redacted on its way to disk. Files are replaced atomically and synced, steps are appended and synced,
    so a kill at any moment costs at most the call that was under way. A write that fails (disk full), hangs, or cannot
    read what it is to add to, raises ResultsUnwritable and leaves the file as it was. A call that is cancelled finishes
    its write first. No file stays open between calls.
    """

    def __init__(self, results_dir: Path, redactor: Redactor) -> None:
        self._results_dir, self._redactor = results_dir, redactor
        self._run: _OpenRun | None = None
        # One lock serves many tasks: their number must not grow with the run.
        self._locks = [threading.Lock() for _ in range(_LOCKS)]

    @property
    def folder(self) -> Path:
        """The open run's folder."""
        return self._opened().folder

    async def open(self, run: RunInfo) -> Iterator[tuple[AttemptKey, AttemptRecord]]:
        """See ResultStore. The records are read as the iterator is used; it may be used once, before any save.

        A file that cannot be read is set aside as `NAME.broken-N`, with the event `result.set_aside`, and its attempts
        are not yielded. One that the machine does not give is a ConfigError, here and of the iterator, and stays.
        """
        folder = self._results_dir / run.run_name / run.run_id
        with writing(folder):
            self._run = await asyncio.to_thread(self._open, folder, run)
        return self._stored()

    @reading_begins()
    def _open(self, folder: Path, run: RunInfo) -> _OpenRun:
        lock = _locked(folder)
        try:
            for part in (folder, folder / DETAILS, folder / TRAJECTORIES):
                remove_temporaries(part)
            stored = self._stored_document(folder)
            document = started(stored, run, self._redactor)
            identity = identity_digest(document["identity"])
            if stored is None:
                _refuse_foreign(folder, identity)
                write_atomic(folder / RUN_INFO, json_bytes(document))
        except BaseException:
            lock.release()
            raise
        pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="results")
        return _OpenRun(folder, lock, stored, document, identity, pool)

    def _stored_document(self, folder: Path) -> dict[str, Any] | None:
        try:
            return read_run_file(folder / RUN_INFO)
        except UnreadableResult as exc:
            aside = set_aside(folder / RUN_INFO)
            log.warning("run_info.set_aside", path=str(aside), error=str(exc))
            return None

    def _stored(self) -> Iterator[tuple[AttemptKey, AttemptRecord]]:
        run = self._opened()
        with reading_begins():
            paths = task_paths(run.folder)
        for path in paths:
            with writing(path), reading_begins():
                file = self._read_or_set_aside(path)
            yield from file.records.items() if file else ()

    def _read_or_set_aside(self, path: Path) -> TaskFile | None:
        run = self._opened()
        try:
            file = read_task_file(path)
            if file_name(file.task_id) != path.stem:
                log.warning("result.passed_over", path=str(path), task_id=file.task_id, reason="not its file's name")
                return None
        except UnreadableResult as exc:
            log.warning("result.set_aside", path=str(set_aside(path)), error=str(exc))
            return None
        if file.broken:
            log.warning("result.set_aside", path=str(set_aside(path)), attempts=file.broken, kept=len(file.records))
            write_atomic(path, json_bytes(without_broken(file, run.identity)))
        return file

    def begin_attempt(self, key: AttemptKey) -> Path:
        """See ResultStore. Earlier steps and logs become `TASK.N.try-M.jsonl` and `TASK.N.try-M`, M from 1."""
        run = self._opened()
        logs = logs_path(run.folder, key)
        if run.unnoted is not None:
            with writing(run.folder / RUN_INFO):
                write_atomic(run.folder / RUN_INFO, json_bytes(run.document))
            run.unnoted = None
        with writing(logs):
            move_aside(run.folder, key)
            logs.mkdir(exist_ok=True)
        return logs

    async def append_step(self, key: AttemptKey, step: Step) -> None:
        """See ResultStore."""
        path = steps_path(self._opened().folder, key)
        await self._written(key, path, partial(self._append_step, path, step))

    def _append_step(self, path: Path, step: Step) -> None:
        append_line(path, json_bytes(stored_form(step, self._redactor), indent=None))

    async def save_attempt(self, key: AttemptKey, category: str, record: AttemptRecord) -> None:
        """See ResultStore. Where the record names no trajectory or artifacts, what lies in the run's folder is named.

        Secrets in the log files of the attempt and of its earlier tries are masked.
        """
        path = task_path(self._opened().folder, key.task_id)
        await self._written(key, path, partial(self._save_attempt, path, key, category, record))

    def _save_attempt(self, path: Path, key: AttemptKey, category: str, record: AttemptRecord) -> None:
        run = self._opened()
        for logs in all_logs_paths(run.folder, key):
            mask_secrets(logs, self._redactor)
        document = self._document(path)
        if keeps(document, key, record):
            log.warning("result.kept", task_id=key.task_id, attempt=key.attempt, refused=record.status.value)
            return
        stored = stored_form(_with_paths(run.folder, key, record), self._redactor)
        document = with_attempt(document, key, self._redactor.text(category), stored, run.identity)
        write_atomic(path, json_bytes(document))

    def _document(self, path: Path) -> dict[str, Any]:
        if not path.exists():
            return {}
        file = self._read_or_set_aside(path)
        if file is None or not file.broken:
            return file.document if file else {}
        return without_broken(file, self._opened().identity)

    async def save_summary(self, summary: RunSummary) -> Mapping[str, Path]:
        """See ResultStore; `summary.md` is written beside `summary.json`."""
        return await self._written(None, self._opened().folder / SUMMARY, partial(self._save_summary, summary))

    def _save_summary(self, summary: RunSummary) -> Mapping[str, Path]:
        run = self._opened()
        text = self._redactor.text(markdown(summary))
        write_atomic(run.folder / SUMMARY, json_bytes(stored_form(summary, self._redactor)))
        write_atomic(run.folder / SUMMARY_TEXT, text.encode("utf-8", "backslashreplace"))
        if run.unnoted is None or run.unnoted.get("ended_at") != summary.ended_at:
            run.document, run.unnoted = ended(run.document, summary.ended_at), None
            write_atomic(run.folder / RUN_INFO, json_bytes(run.document))
        return {
            "run_info": run.folder / RUN_INFO,
            "summary": run.folder / SUMMARY,
            "details": run.folder / DETAILS,
        }

    async def close(self) -> None:
        """See ResultStore; closing what is not open does nothing."""
        run, self._run = self._run, None
        if run is not None:
            run.pool.shutdown(wait=False)
            with writing(run.folder / LOCK):
                run.lock.release()

    def _opened(self) -> _OpenRun:
        if self._run is None:
            raise RuntimeError("the result store is not open")
        return self._run

    async def _written(self, key: AttemptKey | None, path: Path, write: Callable[[], T]) -> T:
        lock = self._locks[hash(key and key.task_id) % _LOCKS]

        def locked() -> T:
            with lock:
                return write()

        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._opened().pool, context.run, locked)
        with writing(path):
            return await finished_despite_cancel(future, WRITE_LIMIT_S)


def _locked(folder: Path) -> FolderLock:
    try:
        for part in (DETAILS, TRAJECTORIES, LOGS):
            (folder / part).mkdir(parents=True, exist_ok=True)
        return FolderLock(folder / LOCK, {"pid": os.getpid(), "host": this_host(), "process": this_process()})
    except OSError as exc:
        raise ConfigError(
            f"cannot use {str(folder)!r} for results: {exc}", hint="choose another --results-dir"
        ) from exc


def _refuse_foreign(folder: Path, identity: str) -> None:
    """Without run_info.json the results themselves say whose they are."""
    for path in task_paths(folder):
        try:
            file = read_task_file(path)
        except UnreadableResult:
            continue
        if file.identity not in (None, identity):
            raise ConfigError(
                f"{str(path)!r} was written with other settings, and run_info.json is lost", hint="use another --run-id"
            )


def _with_paths(folder: Path, key: AttemptKey, record: AttemptRecord) -> AttemptRecord:
    steps, logs = steps_path(folder, key), logs_path(folder, key)
    found: dict[str, object] = {}
    if record.trajectory is None and steps.exists():
        found["trajectory"] = steps.relative_to(folder).as_posix()
    if not record.artifacts:
        found["artifacts"] = tuple(path.relative_to(folder).as_posix() for path in regular_files(logs))
    return record.model_copy(update=found) if found else record
