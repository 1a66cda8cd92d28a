"""Runs kept as files: what lies where, and what a crash, a full disk or a damaged file costs."""

import asyncio
import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from agentcompass.adapters.results import file_store
from agentcompass.adapters.results.file_store import FileResultStore
from agentcompass.domain.attempt import AttemptKey, AttemptRecord, Status
from agentcompass.domain.errors import ConfigError, ResultsUnwritable
from agentcompass.domain.redaction import Redactor
from agentcompass.domain.run import RunInfo
from agentcompass.domain.scoring import Tally
from agentcompass.testing.result_store import ENDED, KEY, STARTED, graded, run_info, step, summary, ungraded
from structlog.testing import capture_logs

DATA = Path(__file__).parent / "data"
SECRET = "sk-live-0123456789"
Found = dict[AttemptKey, AttemptRecord]


def store(results_dir: Path, *secrets: str) -> FileResultStore:
    return FileResultStore(results_dir, Redactor(secrets))


async def opened(results_dir: Path, info: RunInfo | None = None) -> tuple[FileResultStore, Found]:
    opened_store = store(results_dir)
    try:
        return opened_store, dict(await opened_store.open(info or run_info()))
    except ConfigError:
        await opened_store.close()
        raise


async def saved(results_dir: Path, *task_ids: str) -> Path:
    opened_store, _ = await opened(results_dir)
    for task_id in task_ids:
        await opened_store.save_attempt(AttemptKey(task_id=task_id, attempt=1), "", graded())
    await opened_store.close()
    return results_dir / "name" / "id"


async def found_again(results_dir: Path) -> Found:
    opened_store, found = await opened(results_dir)
    await opened_store.close()
    return found


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


async def test_everything_lies_where_the_manual_says(tmp_path: Path) -> None:
    opened_store, _ = await opened(tmp_path)
    logs = opened_store.begin_attempt(KEY)
    (logs / "verifier.txt").write_text("ok")
    await opened_store.append_step(KEY, step(1))
    await opened_store.save_attempt(KEY, "easy", graded(trajectory=None, artifacts=()))
    paths = await opened_store.save_summary(summary(Tally(1, 1)))
    folder = opened_store.folder
    await opened_store.close()
    files = {path.relative_to(folder).as_posix() for path in files_below(folder)}

    assert files == {
        ".lock",
        "run_info.json",
        "summary.json",
        "summary.md",
        "details/task.json",
        "trajectories/task.1.jsonl",
        "logs/task.1/verifier.txt",
    }
    assert paths == {
        "run_info": folder / "run_info.json",
        "summary": folder / "summary.json",
        "details": folder / "details",
    }


async def test_a_record_names_the_steps_and_logs_that_are_there(tmp_path: Path) -> None:
    opened_store, _ = await opened(tmp_path)
    logs = opened_store.begin_attempt(KEY)
    (logs / "deep").mkdir()
    (logs / "deep" / "a.txt").write_text("a")
    (logs / "link").symlink_to("/etc/hostname")
    await opened_store.append_step(KEY, step(1))
    await opened_store.save_attempt(KEY, "", graded(trajectory=None, artifacts=()))
    await opened_store.close()
    record = (await found_again(tmp_path))[KEY]

    assert record.trajectory == "trajectories/task.1.jsonl"
    assert record.artifacts == ("logs/task.1/deep/a.txt",)


async def test_a_task_has_the_verdict_of_its_first_graded_attempt(tmp_path: Path) -> None:
    opened_store, _ = await opened(tmp_path)
    records = {11: graded(correct=True), 3: graded(correct=True), 2: graded(correct=False, score=0.25), 1: ungraded()}
    for number, record in records.items():
        await opened_store.save_attempt(AttemptKey(task_id="task", attempt=number), "easy", record)
    document = read(opened_store.folder / "details" / "task.json")
    await opened_store.close()

    assert list(document["attempts"]) == ["1", "2", "3", "11"]
    assert (document["task_id"], document["category"]) == ("task", "easy")
    assert (document["correct"], document["score"]) == (False, 0.25)


async def test_a_task_without_a_graded_attempt_has_no_score(tmp_path: Path) -> None:
    opened_store, _ = await opened(tmp_path)
    await opened_store.save_attempt(KEY, "", ungraded())
    document = read(opened_store.folder / "details" / "task.json")
    await opened_store.close()

    assert (document["correct"], document["score"]) == (False, None)


@pytest.mark.parametrize(
    "rest", ["", "{", '{"task_id": "a"', "[1, 2]", "{}", "\0" * 100, '{"task_id": 1, "attempts": 2}']
)
async def test_a_broken_file_costs_its_own_task_only(tmp_path: Path, rest: str) -> None:
    folder = await saved(tmp_path, "a", "b", "c")
    (folder / "details" / "b.json").write_text(rest)
    with capture_logs() as events:
        found = await found_again(tmp_path)

    assert {key.task_id for key in found} == {"a", "c"}
    assert (folder / "details" / "b.json.broken-1").read_text() == rest
    assert [event["path"] for event in events if event["event"] == "result.set_aside"] == [
        str(folder / "details" / "b.json.broken-1")
    ]


async def test_files_broken_one_after_the_other_are_all_kept(tmp_path: Path) -> None:
    folder = await saved(tmp_path, "a")
    for text in ("first", "second"):
        (folder / "details" / "a.json").write_text(text)
        await found_again(tmp_path)

    assert (folder / "details" / "a.json.broken-1").read_text() == "first"
    assert (folder / "details" / "a.json.broken-2").read_text() == "second"


@pytest.mark.parametrize(
    "damage",
    [{"status": "unheard-of"}, {"score": "NaN"}, {"correct": None}, {"status": None}, {"score": [1]}],
)
async def test_a_damaged_attempt_costs_itself_only(tmp_path: Path, damage: dict[str, Any]) -> None:
    opened_store, _ = await opened(tmp_path)
    for number in (1, 2):
        await opened_store.save_attempt(AttemptKey(task_id="a", attempt=number), "", graded())
    await opened_store.close()
    path = opened_path(tmp_path, "a")
    document = read(path)
    document["attempts"]["1"].update(damage)
    path.write_text(json.dumps(document))
    found = await found_again(tmp_path)

    assert {key.attempt for key in found} == {2}
    assert (await found_again(tmp_path)).keys() == found.keys()
    assert read(path.with_name("a.json.broken-1")) == document


def opened_path(results_dir: Path, task_id: str) -> Path:
    return results_dir / "name" / "id" / "details" / f"{task_id}.json"


async def test_a_graded_attempt_without_its_verdict_is_not_taken_for_incorrect(tmp_path: Path) -> None:
    await saved(tmp_path, "a")
    document = read(opened_path(tmp_path, "a"))
    del document["attempts"]["1"]["correct"]
    opened_path(tmp_path, "a").write_text(json.dumps(document))

    assert await found_again(tmp_path) == {}


@pytest.mark.parametrize(
    "change",
    [
        {"added_later": {"deep": [1]}},
        {"usage": {"input_tokens": 10, "audio_tokens": 3}},
        {"exit_reason": "a reason of a later version"},
        {"failure": {"stage": "a later stage"}},
        {"sandboxes": "no list"},
        {"usage": {"input_tokens": "many", "audio_tokens": 3}},
        {"schema_version": 99},
    ],
)
async def test_a_score_outlives_what_another_version_wrote_beside_it(tmp_path: Path, change: dict[str, Any]) -> None:
    await saved(tmp_path, "a")
    document = read(opened_path(tmp_path, "a"))
    document["attempts"]["1"].update(change)
    opened_path(tmp_path, "a").write_text(json.dumps(document))
    found = await found_again(tmp_path)

    assert [record.score for record in found.values()] == [1.0]


async def test_what_another_version_wrote_stays_in_the_file(tmp_path: Path) -> None:
    await saved(tmp_path, "a")
    document = read(opened_path(tmp_path, "a"))
    document["later"] = 1
    document["attempts"]["1"]["later"] = 2
    opened_path(tmp_path, "a").write_text(json.dumps(document))
    opened_store, _ = await opened(tmp_path)
    await opened_store.save_attempt(AttemptKey(task_id="a", attempt=2), "", graded())
    await opened_store.close()
    rewritten = read(opened_path(tmp_path, "a"))

    assert rewritten["later"] == 1
    assert rewritten["attempts"]["1"]["later"] == 2


@pytest.mark.parametrize("missing", [(), ("schema_version", "tries", "started_at", "extra", "timings", "sandboxes")])
async def test_files_of_schema_1_load(tmp_path: Path, missing: tuple[str, ...]) -> None:
    folder = await saved(tmp_path)
    document = read(DATA / "details_schema_1.json")
    for name in missing:
        del document["attempts"]["1"][name]
    (folder / "details" / "django__django-11099.json").write_text(json.dumps(document))
    found = await found_again(tmp_path)
    first, second = found.values()

    assert [key.attempt for key in found] == [1, 2]
    assert (first.status, first.score, first.usage.cost_usd) == (Status.COMPLETED, 1.0, None)
    assert second.failure is not None
    assert second.failure.kind == "SandboxLost"


async def test_a_copy_of_a_result_is_not_counted_twice(tmp_path: Path) -> None:
    folder = await saved(tmp_path, "a")
    shutil.copy(folder / "details" / "a.json", folder / "details" / "a (copy).json")

    assert len(await found_again(tmp_path)) == 1
    assert (folder / "details" / "a (copy).json").exists()


async def test_what_a_cut_write_left_is_removed_and_read_by_nobody(tmp_path: Path) -> None:
    folder = await saved(tmp_path, "a")
    (folder / "details" / ".tmp-1234").write_text('{"task_id": "b"')
    (folder / ".tmp-5678").write_text("{")
    found = await found_again(tmp_path)

    assert {key.task_id for key in found} == {"a"}
    assert not list(folder.rglob(".tmp-*"))


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """The kernel refuses longer files, as it does on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_full_disk_raises_and_leaves_the_stored_file_whole(tmp_path: Path) -> None:
    folder = await saved(tmp_path, "a")
    before = (folder / "details" / "a.json").read_bytes()
    opened_store, _ = await opened(tmp_path)
    with files_no_larger_than(len(before) + 10), pytest.raises(ResultsUnwritable, match=r"a\.json' .*too large"):
        await opened_store.save_attempt(AttemptKey(task_id="a", attempt=2), "", graded(final_answer="x" * 9999))
    await opened_store.close()

    assert (folder / "details" / "a.json").read_bytes() == before
    assert not list(folder.rglob(".tmp-*"))
    assert len(await found_again(tmp_path)) == 1


async def test_a_write_that_hangs_names_the_file_and_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_end = threading.Event()
    opened_store, _ = await opened(tmp_path)
    monkeypatch.setattr(file_store, "WRITE_LIMIT_S", 0.05)
    monkeypatch.setattr(file_store, "write_atomic", lambda *_: may_end.wait())
    with pytest.raises(ResultsUnwritable, match=r"task\.json' cannot be stored: not finished within 0\.05 s"):
        await opened_store.save_attempt(KEY, "", graded())
    may_end.set()
    await opened_store.close()


def refusing(*_: object, **__: object) -> None:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


async def test_a_start_that_the_machine_refuses_names_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_store, "write_atomic", refusing)

    with pytest.raises(ResultsUnwritable, match="id' cannot be stored: Too many open files"):
        await opened(tmp_path)


async def test_a_try_that_the_machine_refuses_names_its_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened_store, _ = await opened(tmp_path)
    monkeypatch.setattr(Path, "mkdir", refusing)
    with pytest.raises(ResultsUnwritable, match=r"task\.1' cannot be stored: Too many open files"):
        opened_store.begin_attempt(KEY)
    await opened_store.close()


async def test_a_step_that_does_not_fit_leaves_no_torn_line(tmp_path: Path) -> None:
    opened_store, _ = await opened(tmp_path)
    opened_store.begin_attempt(KEY)
    await opened_store.append_step(KEY, step(1))
    path = opened_store.folder / "trajectories" / "task.1.jsonl"
    with (
        files_no_larger_than(path.stat().st_size + 100),
        pytest.raises(ResultsUnwritable, match=r"task\.1\.jsonl' .*too large"),
    ):
        await opened_store.append_step(KEY, step(2, "x" * 9999))
    await opened_store.append_step(KEY, step(3))
    await opened_store.close()

    assert [json.loads(line)["step_id"] for line in path.read_text().splitlines()] == [1, 3]


async def test_logs_that_can_be_listed_and_not_searched_cost_no_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened_store, _ = await opened(tmp_path)
    unsearchable = opened_store.begin_attempt(KEY) / "sub"
    unsearchable.mkdir()
    (unsearchable / "x.log").write_text("x")
    real = os.stat

    def refusing(path: Any, **options: Any) -> os.stat_result:
        if unsearchable.name in Path(path).parent.parts:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, **options)

    monkeypatch.setattr(os, "stat", refusing)
    with capture_logs() as events:
        await opened_store.save_attempt(KEY, "", graded(artifacts=()))
    await opened_store.close()

    assert [(event["event"], event["path"]) for event in events] == [("log.unmasked", str(unsearchable / "x.log"))]
    assert (await found_again(tmp_path))[KEY].artifacts == ()


async def test_earlier_tries_are_kept_beside_the_new_one(tmp_path: Path) -> None:
    opened_store, _ = await opened(tmp_path)
    for number in (1, 2, 3):
        logs = opened_store.begin_attempt(KEY)
        (logs / "agent.log").write_text(f"try {number}")
        await opened_store.append_step(KEY, step(1, f"try {number}"))
    folder = opened_store.folder
    await opened_store.close()

    assert [
        (folder / "logs" / name / "agent.log").read_text() for name in ("task.1.try-1", "task.1.try-2", "task.1")
    ] == [
        "try 1",
        "try 2",
        "try 3",
    ]
    assert "try 2" in (folder / "trajectories" / "task.1.try-2.jsonl").read_text()


async def test_a_torn_line_of_a_killed_try_is_set_aside_with_it(tmp_path: Path) -> None:
    opened_store, _ = await opened(tmp_path)
    opened_store.begin_attempt(KEY)
    path = opened_store.folder / "trajectories" / "task.1.jsonl"
    path.write_text('{"step_id": 1, "obser')
    await opened_store.close()
    opened_store, _ = await opened(tmp_path)
    opened_store.begin_attempt(KEY)
    await opened_store.append_step(KEY, step(1))
    await opened_store.close()

    assert [json.loads(line)["step_id"] for line in path.read_text().splitlines()] == [1]
    assert path.with_name("task.1.try-1.jsonl").read_text() == '{"step_id": 1, "obser'


async def test_no_file_stays_open_however_many_attempts_run(tmp_path: Path) -> None:
    opened_store, _ = await opened(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    keys = [AttemptKey(task_id=f"task-{number}", attempt=1) for number in range(100)]
    for key in keys:
        opened_store.begin_attempt(key)
    await asyncio.gather(*(opened_store.append_step(key, step(number)) for key in keys for number in (1, 2)))
    after = len(os.listdir("/proc/self/fd"))
    await opened_store.close()

    assert after == before


async def test_a_cancelled_save_is_whole(tmp_path: Path) -> None:
    opened_store, _ = await opened(tmp_path)
    saves = [
        asyncio.create_task(opened_store.save_attempt(AttemptKey(task_id=f"t-{n}", attempt=1), "", graded()))
        for n in range(40)
    ]
    await asyncio.sleep(0)
    for save in saves:
        save.cancel()
    await asyncio.gather(*saves, return_exceptions=True)
    await opened_store.close()

    assert len(await found_again(tmp_path)) == 40


ALIVE = """
import asyncio, sys
from pathlib import Path
from agentcompass.adapters.results import file_store
from agentcompass.adapters.results.file_store import FileResultStore
from agentcompass.domain.redaction import Redactor
from agentcompass.testing.result_store import KEY, graded, run_info, step

async def main():
    store = FileResultStore(Path(sys.argv[1]), Redactor())
    list(await store.open(run_info()))
    await store.save_attempt(KEY, "", graded())
    print("saved", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_a_run_live_elsewhere_is_refused_by_its_pid_and_free_after_kill_9(tmp_path: Path) -> None:
    with subprocess.Popen(  # noqa: ASYNC220 - the other process must be a real one, and is waited for by its output
        [sys.executable, "-c", ALIVE, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "saved\n"
        with pytest.raises(ConfigError, match=f"process {process.pid} on "):
            await opened(tmp_path)
        process.send_signal(signal.SIGKILL)
        process.wait()

    assert await found_again(tmp_path) == {KEY: graded()}


async def test_run_info_tells_every_start_and_keeps_the_first_identity(tmp_path: Path) -> None:
    opened_store, _ = await opened(tmp_path, run_info(host="first", versions={"agentcompass": "0.1"}))
    await opened_store.save_summary(summary(Tally(1, 1)))
    await opened_store.close()
    again, _ = await opened(tmp_path, run_info(host="second", started_at=ENDED, request={"task_concurrency": 9}))
    again.begin_attempt(KEY)
    document = read(tmp_path / "name" / "id" / "run_info.json")

    assert document["identity"] == run_info().identity
    assert (document["started_at"], document["ended_at"]) == (STARTED, None)
    assert [(start["host"], start["ended_at"]) for start in document["starts"]] == [("first", ENDED), ("second", None)]
    assert document["starts"][0]["versions"] == {"agentcompass": "0.1"}
    assert document["starts"][1]["request"] == {"task_concurrency": 9}


@pytest.mark.parametrize("ends", [True, False])
async def test_a_start_that_runs_nothing_leaves_the_stored_run_as_it_was(ends: bool, tmp_path: Path) -> None:
    tally = Tally(1, 1)
    tally.add(KEY, "", graded())
    opened_store, _ = await opened(tmp_path)
    await opened_store.save_attempt(KEY, "", graded())
    await opened_store.save_summary(summary(tally))
    await opened_store.close()
    folder = tmp_path / "name" / "id"
    before = {path: path.read_bytes() for path in files_below(folder) if path.name != ".lock"}
    again, _ = await opened(tmp_path, run_info(host="second", versions={"agentcompass": "9"}))
    if ends:
        await again.save_summary(summary(tally))
    await again.close()

    assert {path: path.read_bytes() for path in files_below(folder) if path.name != ".lock"} == before


async def test_the_end_of_a_killed_run_is_told_by_the_next_start(tmp_path: Path) -> None:
    await saved(tmp_path, "task")
    again, _ = await opened(tmp_path)
    await again.save_summary(summary(Tally(1, 1)))
    await again.close()

    assert read(tmp_path / "name" / "id" / "run_info.json")["ended_at"] == ENDED


async def test_a_differing_identity_is_told_key_by_key_with_both_values(tmp_path: Path) -> None:
    await saved(tmp_path)
    identity = {"model": "m", "harness_params.step_limit": 6, "dataset": {"revision": "r2"}, "added": True}
    with pytest.raises(ConfigError) as refused:
        await opened(tmp_path, run_info(identity=identity))

    assert "harness_params.step_limit: stored 5, now 6" in refused.value.message
    assert 'dataset.revision: stored "r1", now "r2"' in refused.value.message
    assert "added: stored (not set), now true" in refused.value.message
    assert "model" not in refused.value.message
    assert "--run-id" in refused.value.hint


@pytest.mark.parametrize("damage", ["", "{", "[]", "{}"])
async def test_a_torn_run_info_costs_no_result(tmp_path: Path, damage: str) -> None:
    folder = await saved(tmp_path, "a")
    (folder / "run_info.json").write_text(damage)

    assert len(await found_again(tmp_path)) == 1
    assert (folder / "run_info.json.broken-1").read_text() == damage


@pytest.mark.parametrize("damage", ["", None])
async def test_without_run_info_results_of_another_identity_are_still_refused(
    tmp_path: Path, damage: str | None
) -> None:
    folder = await saved(tmp_path, "a")
    if damage is None:
        (folder / "run_info.json").unlink()
    else:
        (folder / "run_info.json").write_text(damage)
    with pytest.raises(ConfigError, match=r"a\.json"):
        await opened(tmp_path, run_info(identity={"model": "other"}))

    assert len(await found_again(tmp_path)) == 1


@pytest.mark.parametrize("field", ["run_name", "run_id"])
@pytest.mark.parametrize("name", ["", "..", "a/b", "/etc", "a b", "a" * 101])
def test_names_that_lead_elsewhere_or_fit_no_file_system_are_refused(field: str, name: str) -> None:
    with pytest.raises(ValueError, match="is not a name"):
        run_info(**{field: name})


async def test_a_results_folder_that_cannot_be_made_is_the_users_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigError, match="for results"):
        await opened(tmp_path / "file")


async def test_no_secret_reaches_the_disk(tmp_path: Path) -> None:
    opened_store = store(tmp_path, SECRET)
    info = run_info(identity={"url": f"https://h/?key={SECRET}"}, request={"argv": ["--model-api-key", SECRET]})
    list(await opened_store.open(info))
    logs = opened_store.begin_attempt(KEY)
    (logs / "agent.log").write_bytes(b"\xff key " + SECRET.encode() + b" end")
    (logs / "patch.diff").write_bytes(b"+ https://user:pass@host\r\n")
    await opened_store.append_step(KEY, step(1, f"echo {SECRET}"))
    odd = {"env": {f"x{SECRET}": [Path(SECRET)]}, "remote": "https://user:hunter2@host/r.git"}
    record = ungraded(error=f"401 for {SECRET}").model_copy(update={"extra": odd})
    await opened_store.save_attempt(KEY, SECRET, record)
    tally = Tally(1, 1)
    tally.add(KEY, SECRET, record)
    await opened_store.save_summary(summary(tally))
    await opened_store.close()
    files = files_below(tmp_path)

    assert not [path for path in files if SECRET.encode() in path.read_bytes()]
    assert not [path for path in files if b"hunter2" in path.read_bytes()]
    assert (logs / "agent.log").read_bytes() == b"\xff key *** end"
    assert (logs / "patch.diff").read_bytes() == b"+ https://user:pass@host\r\n"


async def test_the_logs_of_earlier_tries_are_masked_too(tmp_path: Path) -> None:
    opened_store = store(tmp_path, SECRET)
    list(await opened_store.open(run_info()))
    for _ in range(3):
        (opened_store.begin_attempt(KEY) / "agent.log").write_text(SECRET)
    await opened_store.save_attempt(KEY, "", graded())
    await opened_store.close()
    logs = [path.read_text() for path in files_below(tmp_path) if path.name == "agent.log"]

    assert logs == ["***", "***", "***"]


async def test_a_secret_that_is_a_word_of_the_schema_does_not_break_the_record(tmp_path: Path) -> None:
    opened_store = store(tmp_path, "completed", "status", "submitted", "agent")
    list(await opened_store.open(run_info()))
    await opened_store.save_attempt(KEY, "", graded())
    await opened_store.close()

    assert (await found_again(tmp_path))[KEY].exit_reason == "submitted"


async def test_the_summary_in_words_holds_every_figure(tmp_path: Path) -> None:
    opened_store, _ = await opened(tmp_path)
    tally = Tally(3, 1)
    keys = [AttemptKey(task_id=name, attempt=1) for name in ("good", "bad|worse")]
    for key, record in zip(keys, [graded(), ungraded(error="agent: it <died>\nhere")], strict=True):
        await opened_store.save_attempt(key, "easy", record)
        tally.add(key, "easy", record)
    await opened_store.save_summary(summary(tally))
    text = (opened_store.folder / "summary.md").read_text()
    await opened_store.close()

    assert "3 selected = 1 correct + 0 incorrect + 1 errors + 0 cancelled + 1 not run" in text
    assert "100.0 % (1 of 1; 95 % interval 20.7 % to 100.0 %)" in text
    assert "33.3 % (1 of 3;" in text
    assert "| Cost | unknown |" in text
    assert "| bad\\|worse | 1 | run\\_error | agent: it &lt;died> here |" in text
    assert "| easy |" in text
