"""`resubmit` hands in what a run has stored, and nothing else."""

import json
from pathlib import Path
from typing import Any

import pytest
from agentcompass.adapters.harnesses.resubmit import ResubmitHarness, ResubmitParameters
from agentcompass.adapters.results.file_store import FileResultStore
from agentcompass.domain.attempt import AttemptKey, ExitReason, HarnessResult, Status
from agentcompass.domain.errors import HarnessFailed
from agentcompass.domain.redaction import Redactor
from agentcompass.domain.task import Submission
from agentcompass.testing.harness import Recording, prepared_task
from agentcompass.testing.result_store import graded, run_info
from pydantic import ValidationError

TASK = "owner__repo-1"


async def stored(results_dir: Path, content: bytes | None, **fields: Any) -> Path:
    """The folder of a run with one attempt."""
    store = FileResultStore(results_dir, Redactor())
    list(await store.open(run_info()))
    key = AttemptKey(task_id=TASK, attempt=1)
    logs = store.begin_attempt(key)
    if content is not None:
        (logs / "submission").write_bytes(content)
    sha256 = Submission(content=content).sha256
    record = graded().model_copy(update={"submission_sha256": sha256, **fields})
    await store.save_attempt(key, "repo", record)
    folder = store.folder
    await store.close()
    return folder


async def handed_in(run: Path, tmp_path: Path, task_id: str = TASK) -> HarnessResult:
    context = Recording(tmp_path / "new" / f"{task_id}.1", task_id).context
    harness = ResubmitHarness(ResubmitParameters(run=run))
    return await harness.run(prepared_task(task_id), None, None, context)


async def test_the_stored_bytes_are_handed_in_with_the_agents_end(tmp_path: Path) -> None:
    content = b"diff --git a/x b/x\r\n\xff no final newline"
    run = await stored(tmp_path, content, exit_reason=ExitReason.STEP_LIMIT, final_answer="done")
    result = await handed_in(run, tmp_path)

    assert result.submission == content
    assert result.exit_reason is ExitReason.STEP_LIMIT
    assert result.final_answer == "done"


async def test_an_empty_submission_stays_an_empty_one(tmp_path: Path) -> None:
    result = await handed_in(await stored(tmp_path, b""), tmp_path)

    assert result.submission == b""


@pytest.mark.parametrize(
    ("status", "exit_reason"),
    [
        (Status.RUN_ERROR, None),
        (Status.RUN_ERROR, ExitReason.TIME_LIMIT),
        (Status.CANCELLED, None),
        (Status.EVAL_ERROR, None),
    ],
)
@pytest.mark.parametrize("content", [b"", b"half done"])
async def test_work_that_an_error_cut_short_is_not_handed_in_for_a_grade(
    tmp_path: Path, status: Status, exit_reason: ExitReason | None, content: bytes
) -> None:
    run = await stored(tmp_path, content, status=status, exit_reason=exit_reason, error="agent: no money left")

    with pytest.raises(HarnessFailed, match="not whole.*no money left"):
        await handed_in(run, tmp_path)


@pytest.mark.parametrize("status", [Status.EVAL_ERROR, Status.CANCELLED])
async def test_whole_work_whose_grading_failed_is_handed_in(tmp_path: Path, status: Status) -> None:
    result = await handed_in(await stored(tmp_path, b"patch", status=status), tmp_path)

    assert result.submission == b"patch"


async def test_bytes_that_changed_since_are_refused(tmp_path: Path) -> None:
    run = await stored(tmp_path, b"patch", submission_sha256=Submission(content=b"another").sha256)

    with pytest.raises(HarnessFailed, match="sha256 differs"):
        await handed_in(run, tmp_path)


async def test_an_end_that_is_not_known_is_an_error_of_the_attempt(tmp_path: Path) -> None:
    run = await stored(tmp_path, b"patch")
    path = run / "details" / f"{TASK}.json"
    document = json.loads(path.read_text())
    document["attempts"]["1"]["exit_reason"] = "bored"
    path.write_text(json.dumps(document))

    with pytest.raises(HarnessFailed, match="exit_reason 'bored'"):
        await handed_in(run, tmp_path)


async def test_an_attempt_without_a_submission_is_an_error_and_no_empty_patch(tmp_path: Path) -> None:
    run = await stored(tmp_path, None)

    with pytest.raises(HarnessFailed, match="no submission of this attempt"):
        await handed_in(run, tmp_path)


async def test_a_task_that_the_run_does_not_have_is_an_error(tmp_path: Path) -> None:
    run = await stored(tmp_path, b"patch")

    with pytest.raises(HarnessFailed, match="no attempt 1"):
        await handed_in(run, tmp_path, "owner__repo-2")


def test_a_folder_without_a_run_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="no run is stored"):
        ResubmitParameters(run=tmp_path)


def test_a_run_of_a_user_who_is_not_there_is_refused() -> None:
    with pytest.raises(ValidationError, match="no run is stored in"):
        ResubmitParameters(run=Path("~nosuch/run"))
