"""A stored run becomes SWE-bench's own files, byte for byte, and what has no place in them is named."""

import json
from pathlib import Path

from agentcompass.adapters.results.file_store import FileResultStore
from agentcompass.adapters.results.reading import StoredRun, read_run
from agentcompass.adapters.results.swebench_export import export_logs, export_predictions
from agentcompass.domain.attempt import AttemptKey, AttemptRecord
from agentcompass.domain.redaction import Redactor
from agentcompass.domain.task import Submission
from agentcompass.testing.result_store import graded, run_info, ungraded

REQUEST = {"model": {"name": "lab/model:1"}}
PATCH = "diff --git a/é b/é\r\n@@ -1 +1 @@\n-a\n+ü \n\\ No newline at end of file"
Attempt = tuple[AttemptRecord, dict[str, bytes]]


async def stored(results_dir: Path, attempts: dict[str, Attempt]) -> StoredRun:
    """A run with one attempt of each task, and the log files of each."""
    store = FileResultStore(results_dir, Redactor())
    list(await store.open(run_info(run_id="night-1", request=REQUEST)))
    for task_id, (record, files) in attempts.items():
        key = AttemptKey(task_id=task_id, attempt=1)
        logs = store.begin_attempt(key)
        for name, content in files.items():
            (logs / name).write_bytes(content)
        await store.save_attempt(key, "repo", record)
    folder = store.folder
    await store.close()
    return read_run(folder)


def submitted(content: bytes) -> Attempt:
    record = graded().model_copy(update={"submission_sha256": Submission(content=content).sha256})
    return record, {"submission": content}


def rows(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_a_prediction_holds_the_submission_unchanged(tmp_path: Path) -> None:
    run = await stored(tmp_path, {"o__r-1": submitted(PATCH.encode()), "o__r-2": submitted(b"")})
    exported = export_predictions(run, 1, tmp_path / "new" / "preds.jsonl")

    assert exported.written == 2
    assert rows(tmp_path / "new" / "preds.jsonl") == [
        {"instance_id": "o__r-1", "model_name_or_path": "lab/model:1", "model_patch": PATCH},
        {"instance_id": "o__r-2", "model_name_or_path": "lab/model:1", "model_patch": ""},
    ]


async def test_an_attempt_without_a_submission_is_left_out_and_named(tmp_path: Path) -> None:
    run = await stored(tmp_path, {"o__r-1": (ungraded(), {}), "o__r-2": submitted(b"x\xff\n")})
    exported = export_predictions(run, 1, tmp_path / "preds.jsonl")

    assert exported.written == 0
    assert "no submission" in exported.left_out["o__r-1"]
    assert exported.left_out["o__r-2"] == "its patch is not UTF-8"


async def test_only_the_attempt_asked_for_is_written(tmp_path: Path) -> None:
    run = await stored(tmp_path, {"o__r-1": submitted(b"x\n")})
    exported = export_predictions(run, 2, tmp_path / "preds.jsonl")

    assert exported.written == 0
    assert (tmp_path / "preds.jsonl").read_text() == ""


async def test_the_log_folders_are_where_the_grader_looks_for_them(tmp_path: Path) -> None:
    record, files = submitted(b"x\n")
    logs = {"test_output.txt": b"log \xff", "report.json": b"{}", "patch.diff": b"x\n", "eval.sh": b"#!/bin/bash\n"}
    logs["run_instance.log"] = b">>>>> Applied Patch"
    run = await stored(tmp_path, {"o__r-1": (record, {**files, **logs, "other.log": b"no"})})
    exported = export_logs(run, 1, tmp_path / "out")
    root = tmp_path / "out" / "logs" / "run_evaluation" / "night-1"

    assert exported.written == 1
    assert {path.name: path.read_bytes() for path in (root / "lab__model:1" / "o__r-1").iterdir()} == logs
    assert (root / "gold").readlink() == Path("lab__model:1")


async def test_a_patch_that_did_not_apply_has_what_the_grader_would_leave(tmp_path: Path) -> None:
    record, files = submitted(b"x\n")
    logs = {"patch.diff": b"x\n", "run_instance.log": b">>>>> Patch Apply Failed"}
    run = await stored(tmp_path, {"o__r-1": (record, {**files, **logs})})
    exported = export_logs(run, 1, tmp_path / "out")
    folder = tmp_path / "out" / "logs" / "run_evaluation" / "night-1" / "lab__model:1" / "o__r-1"

    assert exported.written == 1
    assert {path.name for path in folder.iterdir()} == set(logs)


async def test_a_second_export_to_the_same_place_is_the_same(tmp_path: Path) -> None:
    record, files = submitted(b"x\n")
    run = await stored(tmp_path, {"o__r-1": (record, {**files, "run_instance.log": b"", "patch.diff": b"x\n"})})
    first, second = (export_logs(run, 1, tmp_path / "out") for _ in range(2))

    assert first == second


async def test_an_instance_whose_patch_is_empty_has_no_log_folder(tmp_path: Path) -> None:
    run = await stored(tmp_path, {"o__r-1": submitted(b"")})
    exported = export_logs(run, 1, tmp_path / "out")

    assert exported.written == 0
    assert exported.left_out == {"o__r-1": "its patch is empty"}
    assert not (tmp_path / "out").exists()
