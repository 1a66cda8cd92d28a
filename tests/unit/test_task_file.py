"""Whose fault it is that a stored file cannot be read decides whether it is given up."""

import errno
import json
import os
import sys
from pathlib import Path

import pytest
from agentcompass.adapters.results.durable import UnreadableResult
from agentcompass.adapters.results.file_store import FileResultStore
from agentcompass.adapters.results.reading import read_run, read_tasks
from agentcompass.adapters.results.task_file import read_task_file
from agentcompass.domain.attempt import AttemptKey
from agentcompass.domain.errors import ConfigError, ResultsUnwritable
from agentcompass.domain.redaction import Redactor
from agentcompass.testing.result_store import graded, run_info
from structlog.testing import capture_logs

UNREADABLE_MEMORY = Path("/proc/self/mem")
"""Its first byte is an input/output error, as of a disk that fails."""


async def run_on_a_failing_disk(results_dir: Path) -> Path:
    """The file of a graded task, in whose place the disk answers with an error."""
    store = FileResultStore(results_dir, Redactor())
    list(await store.open(run_info()))
    await store.save_attempt(AttemptKey(task_id="a", attempt=1), "", graded())
    path = store.folder / "details" / "a.json"
    await store.close()
    path.rename(path.with_suffix(".good"))
    path.symlink_to(UNREADABLE_MEMORY)
    return path


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
async def test_a_disk_that_fails_stops_the_start_in_a_line_and_costs_no_result(tmp_path: Path) -> None:
    path = await run_on_a_failing_disk(tmp_path)
    store = FileResultStore(tmp_path, Redactor())
    stored = await store.open(run_info())
    with pytest.raises(ConfigError, match=r"a\.json' cannot be read: Input/output error"):
        list(stored)
    await store.close()

    assert path.is_symlink()
    assert not list(path.parent.glob("*.broken-*"))


@pytest.mark.parametrize("score", [{}, {"score": None}])
async def test_a_stored_verdict_without_a_score_is_set_aside_so_that_its_attempt_is_run_again(
    tmp_path: Path, score: dict[str, None]
) -> None:
    store = FileResultStore(tmp_path, Redactor())
    list(await store.open(run_info()))
    keys = [AttemptKey(task_id="a", attempt=number) for number in (1, 2)]
    for key in keys:
        await store.save_attempt(key, "", graded())
    path = store.folder / "details" / "a.json"
    await store.close()
    document = json.loads(path.read_text())
    del document["attempts"]["1"]["score"]
    document["attempts"]["1"] |= score
    path.write_text(json.dumps(document))
    again = FileResultStore(tmp_path, Redactor())
    with capture_logs() as events:
        kept = [key for key, _ in await again.open(run_info())]
    await again.close()

    assert kept == keys[1:]
    assert [(event["event"], [*event["attempts"]]) for event in events] == [("result.set_aside", ["1"])]
    assert path.with_name("a.json.broken-1").exists()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
async def test_a_disk_that_fails_under_a_run_is_not_told_as_if_nothing_had_been_started(tmp_path: Path) -> None:
    store = FileResultStore(tmp_path, Redactor())
    list(await store.open(run_info()))
    path = store.folder / "details" / "a.json"
    path.symlink_to(UNREADABLE_MEMORY)
    with pytest.raises(ResultsUnwritable, match=r"a\.json' cannot be stored: Input/output error"):
        await store.save_attempt(AttemptKey(task_id="a", attempt=2), "", graded())
    await store.close()

    assert path.is_symlink()


@pytest.mark.parametrize("reason", [errno.EACCES, errno.EIO, errno.ESTALE])
async def test_a_runs_description_that_cannot_be_read_now_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    def failing(path: Path) -> bytes:
        raise OSError(reason, os.strerror(reason), str(path))

    store = FileResultStore(tmp_path, Redactor())
    list(await store.open(run_info()))
    path = store.folder / "run_info.json"
    await store.close()
    stored = path.read_bytes()
    monkeypatch.setattr(Path, "read_bytes", failing)
    with pytest.raises(ConfigError, match=r"run_info\.json' cannot be read"):
        await store.open(run_info())
    monkeypatch.undo()

    assert path.read_bytes() == stored
    assert not list(path.parent.glob("*.broken-*"))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
async def test_what_is_shown_of_a_run_does_not_leave_out_what_the_disk_fails_to_give(tmp_path: Path) -> None:
    path = await run_on_a_failing_disk(tmp_path)

    with pytest.raises(ConfigError, match="Input/output error"):
        read_tasks(path.parents[1])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
async def test_a_run_whose_description_the_disk_fails_to_give_is_not_shown(tmp_path: Path) -> None:
    path = (await run_on_a_failing_disk(tmp_path)).parents[1] / "run_info.json"
    path.unlink()
    path.symlink_to(UNREADABLE_MEMORY)

    with pytest.raises(ConfigError, match=r"run_info\.json' cannot be read: Input/output error"):
        read_run(path.parent)


def test_what_is_no_file_at_all_is_its_own_fault(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "nowhere").symlink_to("gone")

    for name in ("folder", "loop", "nowhere"):
        with pytest.raises(UnreadableResult):
            read_task_file(tmp_path / name)
