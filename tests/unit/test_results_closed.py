"""What of a results folder cannot be read now is named and left as it is; the rest is shown."""

import errno
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agentcompass.adapters.results.file_store import FileResultStore
from agentcompass.domain.errors import ConfigError
from agentcompass.domain.redaction import Redactor
from agentcompass.testing.result_store import graded, run_info
from command_line import command
from test_results_cli import REQUEST, stored

Close = Callable[[Path], None]


@pytest.fixture
def close(monkeypatch: pytest.MonkeyPatch) -> Close:
    """Makes a file or folder answer as after `chmod 000`, to root too, as whom the tests may run."""
    closed: list[Path] = []

    def refused(path: Any, *, itself: bool) -> bool:
        named = Path(os.fsdecode(path)) if isinstance(path, str | bytes | os.PathLike) else Path()
        return any(shut in named.parents or (itself and shut == named) for shut in closed)

    def guard(module: Any, name: str, *, itself: bool) -> None:
        real = getattr(module, name)

        def guarded(path: Any = ".", *args: Any, **options: Any) -> Any:
            if refused(path, itself=itself):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return real(path, *args, **options)

        monkeypatch.setattr(module, name, guarded)

    guard(os, "stat", itself=False)
    for module, name in ((os, "listdir"), (os, "scandir"), (io, "open")):
        guard(module, name, itself=True)
    return closed.append


async def test_a_closed_run_is_left_out_and_the_others_are_listed(tmp_path: Path, close: Close) -> None:
    await stored(tmp_path, {"a": graded()}, run_id="good", tasks=1)
    close(await stored(tmp_path, {"a": graded()}, run_id="a-closed-one", tasks=1))
    code, out, err = command("results", "list", "--results-dir", tmp_path)

    assert code == 1
    assert [line.split()[0] for line in out.splitlines()] == ["RUN", "name/good"]
    assert err.startswith("left out name/a-closed-one: ")
    assert "cannot be read: Permission denied" in err
    assert len(err.splitlines()) == 1


async def test_runs_below_a_closed_name_are_not_told_as_none(tmp_path: Path, close: Close) -> None:
    await stored(tmp_path, {"a": graded()}, name="newcomer", tasks=1)
    close(tmp_path / "newcomer")
    code, out, err = command("results", "list", "--results-dir", tmp_path)

    assert (code, out) == (1, "")
    assert err.startswith("left out newcomer: ")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("place", [".", "name"])
async def test_a_closed_folder_that_no_run_can_be_called_is_passed_over(
    tmp_path: Path, close: Close, place: str
) -> None:
    await stored(tmp_path, {"a": graded()}, tasks=1)
    (tmp_path / place / "lost+found").mkdir()
    close(tmp_path / place / "lost+found")
    code, out, err = command("results", "list", "--results-dir", tmp_path)

    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()] == ["RUN", "name/id"]


async def test_a_closed_results_folder_is_an_error(tmp_path: Path, close: Close) -> None:
    close(tmp_path)
    code, out, err = command("results", "list", "--results-dir", tmp_path)

    assert (code, out) == (2, "")
    assert "cannot be read: Permission denied" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("wanted", ["name/id", "id", "name"])
@pytest.mark.parametrize("part", [".", "details", "run_info.json", "summary.json"])
async def test_a_run_with_a_closed_part_is_not_shown_without_it(
    tmp_path: Path, close: Close, part: str, wanted: str
) -> None:
    close(await stored(tmp_path, {"a": graded()}, tasks=1) / part)
    code, out, err = command("results", "show", wanted, "--results-dir", tmp_path)

    assert (code, out) == (2, "")
    assert "cannot be read: Permission denied" in err
    assert len(err.splitlines()) == 1


async def test_a_closed_run_hides_no_other_and_is_told_where_none_is_found(tmp_path: Path, close: Close) -> None:
    await stored(tmp_path, {"a": graded()}, run_id="good", tasks=1)
    close(await stored(tmp_path, {"a": graded()}, name="newcomer", tasks=1))
    found = command("results", "show", "good", "--results-dir", tmp_path)
    lost = command("results", "show", "nowhere", "--results-dir", tmp_path)

    assert found.code == 0
    assert lost.code == 2
    assert "cannot be read: Permission denied" in lost.err


@pytest.mark.parametrize("part", ["details", "logs"])
async def test_a_task_with_a_closed_part_is_an_error_in_a_line(tmp_path: Path, close: Close, part: str) -> None:
    close(await stored(tmp_path, {"a": graded()}, tasks=1) / part)
    code, out, err = command("results", "show", "name/id", "a", "--results-dir", tmp_path)

    assert (code, out) == (2, "")
    assert "cannot be read: Permission denied" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("form", ["swebench-predictions", "swebench-logs"])
async def test_an_export_leaves_out_what_it_cannot_read_with_the_reason(
    tmp_path: Path, close: Close, form: str
) -> None:
    record = graded(submission_sha256="0" * 64)
    folder = await stored(tmp_path / "runs", {"a": record}, tasks=1)
    close(folder / "logs")
    code, _, err = command("results", "export", folder, "--format", form, "--output", tmp_path / "exported")

    assert code == 1
    assert err.startswith("left out a: its ")
    assert "cannot be read: [Errno 13] Permission denied" in err


@pytest.mark.parametrize("part", ["details", "trajectories", "run_info.json"])
async def test_a_run_with_a_closed_part_is_not_resumed(
    tmp_path: Path, close: Close, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    folder = await stored(tmp_path, {"a": graded()}, tasks=1)
    files = {path: path.read_bytes() for path in folder.rglob("*.*") if path.is_file()}
    close(folder / part)
    with pytest.raises(ConfigError, match=rf"{part}' cannot be read: Permission denied"):
        await FileResultStore(tmp_path, Redactor()).open(run_info(request=REQUEST))
    monkeypatch.undo()

    assert {path: path.read_bytes() for path in files} == files


async def test_a_closed_summary_stops_no_resume_as_it_will_be_replaced(tmp_path: Path, close: Close) -> None:
    close(await stored(tmp_path, {"a": graded()}, tasks=1) / "summary.json")
    store = FileResultStore(tmp_path, Redactor())
    records = list(await store.open(run_info(request=REQUEST)))
    await store.close()

    assert len(records) == 1


async def test_a_folder_closed_between_the_opening_and_the_reading_is_an_error(tmp_path: Path, close: Close) -> None:
    folder = await stored(tmp_path, {"a": graded()}, tasks=1)
    store = FileResultStore(tmp_path, Redactor())
    records = await store.open(run_info(request=REQUEST))
    close(folder / "details")
    with pytest.raises(ConfigError, match=r"details' cannot be read: Permission denied"):
        list(records)
    await store.close()


async def test_what_is_no_folder_holds_no_runs(tmp_path: Path) -> None:
    folder = await stored(tmp_path, {"a": graded()}, tasks=1)
    (tmp_path / "stray.txt").write_text("")
    (tmp_path / "gone").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    (folder.parent / "stray.txt").write_text("")
    code, out, err = command("results", "list", "--results-dir", tmp_path)

    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()] == ["RUN", "name/id"]
