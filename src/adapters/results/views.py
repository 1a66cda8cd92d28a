"""Stored runs, tasks and attempts as text and as JSON, for `results list` and `results show`."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import JsonValue

from ...domain.attempt import AttemptKey, AttemptRecord, Failure
from ...domain.one_line import cut
from ...domain.run import GRADED
from ...domain.scoring import MAX_ERROR_CHARS
from .durable import is_file, is_folder, reading_begins
from .layout import logs_path
from .reading import PARTIAL, StoredRun, StoredTasks
from .report import Row, aligned, cost, moment, percent, render_table, seconds, tokens
from .task_file import TaskFile

_RUN_COLUMNS = (
    *("RUN", "BENCHMARK", "HARNESS", "MODEL", "ENV", "SCORE"),
    *("SELECTED", "CORRECT", "INCORRECT", "ERRORS", "CANCELLED", "NOT RUN", "STARTED", "STATE"),
)
_ATTEMPT_COLUMNS = ("TASK", "ATTEMPT", "RESULT", "SCORE", "AGENT ENDED AS", "TIME", "TRIES", "ERROR")
_UNKNOWN = "?"


def run_list(runs: Sequence[StoredRun]) -> str:
    """One line for each run, below a line of column names."""
    return aligned([_RUN_COLUMNS, *map(_run_line, runs)])


def _run_line(run: StoredRun) -> Sequence[str]:
    summary, counts = run.summary, run.summary.counts
    value = summary.accuracy_graded.value
    return (
        run.name,
        *(summary.benchmark, summary.harness, summary.model, summary.environment),
        "-" if value is None else percent(value),
        str(counts.selected) if run.selection_known else _UNKNOWN,
        *(str(count) for count in (counts.correct, counts.incorrect, counts.errors, counts.cancelled)),
        str(counts.not_run) if run.selection_known else _UNKNOWN,
        moment(str(run.run_info.get("started_at", summary.started_at))),
        run.state,
    )


def run_json(run: StoredRun) -> dict[str, JsonValue]:
    """The summary with `folder` and `state`; counts that are not known are null."""
    summary: dict[str, JsonValue] = run.summary.model_dump(mode="json")
    if not run.selection_known:
        counts = run.summary.counts.model_dump(mode="json")
        unknown = {"accuracy_selected": None, "counts": counts | {"selected": None, "not_run": None}, "tasks": None}
        summary |= unknown | {"attempts_per_task": None, "pass_at_k": {}}
    return {"folder": str(run.folder), "state": run.state, **summary}


def run_page(run: StoredRun, stored: StoredTasks) -> str:
    """The summary, then a line for each attempt, then what cannot be read."""
    state = run.state
    if not run.selection_known:
        state += "; no summary was written, so the figures are of the tasks stored so far"
    elif run.summary.interrupted and state == PARTIAL:
        state += "; start it again with the same --run-name and --run-id to run the rest"
    parts = [render_table(run.summary, run.folder, state=state)]
    lines = [_attempt_line(key, record) for file in stored.tasks for key, record in file.records.items()]
    if lines:
        parts.append(aligned([_ATTEMPT_COLUMNS, *lines]))
    broken = [Row(str(path), reason) for path, reason in stored.unreadable.items()]
    broken += [Row(f"{file.task_id} attempt {n}", why) for file in stored.tasks for n, why in file.broken.items()]
    if broken:
        parts.append(aligned([("CANNOT BE READ", "BECAUSE"), *broken]))
    return "\n\n".join(parts)


def _attempt_line(key: AttemptKey, record: AttemptRecord) -> Sequence[str]:
    total = record.timings.get("total")
    return (
        key.task_id,
        str(key.attempt),
        _verdict(record),
        "-" if record.score is None else f"{record.score:g}",
        record.exit_reason.value if record.exit_reason else "-",
        "-" if total is None else seconds(total),
        str(len(record.tries) + 1),
        cut(record.error, MAX_ERROR_CHARS),
    )


def _verdict(record: AttemptRecord) -> str:
    if record.status not in GRADED:
        return record.status.value
    return "correct" if record.correct else "incorrect"


@reading_begins()
def task_page(run: StoredRun, file: TaskFile) -> str:
    """Everything about the attempts of one task.

    Raises:
        ConfigError: whether there are logs or steps of them cannot be told now.
    """
    head = aligned([Row("Run", run.name), Row("Task", file.task_id), Row("Category", file.category or "-")])
    attempts = [aligned(list(_attempt_rows(run.folder, key, record))) for key, record in file.records.items()]
    broken = [f"Attempt {number} cannot be read: {reason}" for number, reason in file.broken.items()]
    return "\n\n".join([head, *attempts, *broken])


def _attempt_rows(folder: Path, key: AttemptKey, record: AttemptRecord) -> Iterator[Row]:
    yield Row("Attempt", str(key.attempt))
    yield Row("Result", _verdict(record))
    yield Row("Score", "none" if record.score is None else f"{record.score:g}")
    if record.error:
        yield Row("Error", record.error)
    if record.failure:
        yield Row("Failure", _failure(record.failure))
    for number, earlier in enumerate(record.tries, 1):
        yield Row(f"Try {number}", f"{_failure(earlier.failure)}: {earlier.error}")
    yield Row("Agent ended as", record.exit_reason.value if record.exit_reason else "-")
    yield Row("Time", ", ".join(f"{stage} {seconds(value)}" for stage, value in record.timings.items()) or "-")
    yield Row("Tokens", tokens(record.usage))
    yield Row("Cost", cost(record.usage))
    for sandbox in record.sandboxes:
        image = " ".join(filter(None, (sandbox.image, sandbox.image_digest)))
        yield Row("Sandbox", f"{sandbox.environment} {sandbox.id} ({sandbox.purpose}) {image}")
    if record.submission_sha256:
        yield Row("Submission", f"sha256 {record.submission_sha256}")
    if record.final_answer:
        yield Row("Final answer", cut(record.final_answer, MAX_ERROR_CHARS))
    yield from _path_rows(folder, key, record)


def _path_rows(folder: Path, key: AttemptKey, record: AttemptRecord) -> Iterator[Row]:
    if record.trajectory and is_file(folder / record.trajectory):
        yield Row("Trajectory", str(folder / record.trajectory))
    if is_folder(logs_path(folder, key)):
        yield Row("Logs", str(logs_path(folder, key)))
    yield Row("Started, ended", f"{moment(record.started_at)}, {moment(record.ended_at)}")


def _failure(failure: Failure) -> str:
    limit = f", limit {failure.limit}" if failure.limit else ""
    again = "" if failure.transient else ", would fail again"
    return f"{failure.kind} at {failure.stage} after {failure.elapsed_s:.1f} s{limit}{again}"
