"""A stored run becomes SWE-bench's own files, byte for byte, and what has no place in them is named."""

import json
from pathlib import Path

import pytest
from agentcompass.adapters.results import swebench_export
from agentcompass.adapters.results.file_store import FileResultStore
from agentcompass.adapters.results.reading import StoredRun, StoredTasks, read_run, read_tasks
from agentcompass.adapters.results.swebench_export import ExportFormat, export_logs, export_predictions, export_run
from agentcompass.domain.attempt import AttemptKey, AttemptRecord, ExitReason, Status
from agentcompass.domain.errors import ConfigError
from agentcompass.domain.redaction import Redactor
from agentcompass.domain.task import Submission
from agentcompass.testing.result_store import graded, run_info, ungraded

PATCH = "diff --git a/é b/é\r\n@@ -1 +1 @@\n-a\n+ü \n\\ No newline at end of file"
Attempt = tuple[AttemptRecord, dict[str, bytes]]


async def stored(results_dir: Path, attempts: dict[str, Attempt], model: str = "lab/model:1") -> StoredRun:
    """A run with one attempt of each task, and the log files of each."""
    store = FileResultStore(results_dir, Redactor())
    list(await store.open(run_info(run_id="night-1", request={"model": {"name": model}})))
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


async def test_work_that_an_error_cut_short_is_left_out_and_named(tmp_path: Path) -> None:
    record, files = submitted(b"")
    cut = {"status": Status.RUN_ERROR, "exit_reason": None, "error": "agent: no money left"}
    late = {"status": Status.EVAL_ERROR, "exit_reason": ExitReason.SUBMITTED, "error": "grade: the sandbox died"}
    attempts = {"o__r-1": record.model_copy(update=cut), "o__r-2": record.model_copy(update=late)}
    run = await stored(tmp_path, {task_id: (each, files) for task_id, each in attempts.items()})
    exported = export_predictions(run, 1, tmp_path / "preds.jsonl")

    assert "agent: no money left" in exported.left_out["o__r-1"]
    assert [row["instance_id"] for row in rows(tmp_path / "preds.jsonl")] == ["o__r-2"]


async def test_bytes_that_are_not_those_recorded_are_left_out_and_named(tmp_path: Path) -> None:
    record, _ = submitted(b"x = 'test'\n")
    run = await stored(tmp_path, {"o__r-1": (record, {"submission": b"x = '***'\n"})})
    exported = export_predictions(run, 1, tmp_path / "preds.jsonl")

    assert exported.written == 0
    assert "sha256 differs" in exported.left_out["o__r-1"]


async def test_results_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    run = await stored(tmp_path, {task_id: submitted(b"x\n") for task_id in ("o__r-1", "o__r-2", "o__r-3")})
    details = run.folder / "details"
    (details / "o__r-1.json").write_text("{")
    document = json.loads((details / "o__r-2.json").read_text())
    del document["attempts"]["1"]["correct"]
    (details / "o__r-2.json").write_text(json.dumps(document))
    exported = export_predictions(run, 1, tmp_path / "preds.jsonl")

    assert exported.written == 1
    assert exported.left_out.keys() == {"o__r-1.json", "o__r-2"}
    assert export_logs(run, 1, tmp_path / "out").left_out.keys() == {"o__r-1.json", "o__r-2", "o__r-3"}


@pytest.mark.parametrize("form", ExportFormat)
async def test_an_export_is_of_one_reading_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: ExportFormat
) -> None:
    read: list[Path] = []

    def counted(folder: Path) -> StoredTasks:
        read.append(folder)
        return read_tasks(folder)

    run = await stored(tmp_path, {"o__r-1": submitted(b"x\n")})
    monkeypatch.setattr(swebench_export, "read_tasks", counted)
    export_run(run, form, 1, tmp_path / "out")

    assert read == [run.folder]


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


def tried(*names: str) -> Attempt:
    record, files = submitted(b"x\n")
    return record, {**files, **dict.fromkeys(("run_instance.log", *names), b"x\n")}


async def test_nothing_of_an_earlier_export_is_left_in_an_instances_folder(tmp_path: Path) -> None:
    names = ("test_output.txt", "report.json")
    whole = await stored(tmp_path / "1", {"o__r-1": tried(*names), "o__r-2": tried(*names)})
    other = await stored(tmp_path / "2", {"o__r-1": tried(), "o__r-2": submitted(b"")})
    export_logs(whole, 1, tmp_path / "out")
    export_logs(other, 1, tmp_path / "out")
    folder = tmp_path / "out" / "logs" / "run_evaluation" / "night-1" / "lab__model:1"

    assert {str(path.relative_to(folder)) for path in folder.glob("*/*")} == {"o__r-1/run_instance.log"}


async def test_instances_of_another_run_are_neither_mixed_in_nor_removed(tmp_path: Path) -> None:
    whole = await stored(tmp_path / "1", {"o__r-1": tried(), "o__r-2": tried()})
    other = await stored(tmp_path / "2", {"o__r-1": tried()})
    export_logs(whole, 1, tmp_path / "out")
    root = tmp_path / "out" / "logs" / "run_evaluation" / "night-1"

    with pytest.raises(ConfigError, match="another run: 'o__r-2'"):
        export_logs(other, 1, tmp_path / "out")
    assert (root / "lab__model:1" / "o__r-2" / "run_instance.log").is_file()


@pytest.mark.parametrize(("model", "link"), [("second", Path("second")), ("gold", None)])
async def test_gold_is_the_model_of_the_last_export(tmp_path: Path, model: str, link: Path | None) -> None:
    export_logs(await stored(tmp_path / "1", {"o__r-1": tried()}, "first"), 1, tmp_path / "out")
    export_logs(await stored(tmp_path / "2", {"o__r-1": tried()}, model), 1, tmp_path / "out")
    gold = tmp_path / "out" / "logs" / "run_evaluation" / "night-1" / "gold"

    assert (gold.readlink() if gold.is_symlink() else None) == link
    assert (gold / "o__r-1" / "run_instance.log").is_file()


async def test_a_folder_gold_is_not_touched(tmp_path: Path) -> None:
    gold = tmp_path / "out" / "logs" / "run_evaluation" / "night-1" / "gold"
    gold.mkdir(parents=True)
    run = await stored(tmp_path, {"o__r-1": tried()})

    with pytest.raises(ConfigError, match="is a folder"):
        export_logs(run, 1, tmp_path / "out")
    assert list(gold.parent.iterdir()) == [gold]


async def test_predictions_replace_the_file_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    target = tmp_path / "out" / "preds.jsonl"
    target.write_text("old\n" * 100)
    inode = target.stat().st_ino
    export_predictions(await stored(tmp_path, {"o__r-1": submitted(b"x\n")}), 1, target)

    assert [row["model_patch"] for row in rows(target)] == ["x\n"]
    assert target.stat().st_ino != inode
    assert list(target.parent.iterdir()) == [target]


async def test_an_instance_whose_patch_is_empty_has_no_log_folder(tmp_path: Path) -> None:
    run = await stored(tmp_path, {"o__r-1": submitted(b"")})
    exported = export_logs(run, 1, tmp_path / "out")

    assert exported.written == 0
    assert exported.left_out == {"o__r-1": "its patch is empty"}
    assert not (tmp_path / "out").exists()
