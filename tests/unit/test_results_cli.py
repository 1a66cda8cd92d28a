"""`results list` and `results show` tell what is stored, whatever state it is in."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from agentcompass.adapters.results.file_store import FileResultStore
from agentcompass.domain.attempt import AttemptKey, AttemptRecord
from agentcompass.domain.redaction import Redactor
from agentcompass.domain.scoring import Tally
from agentcompass.testing.result_store import ENDED, STARTED, graded, run_info, ungraded
from command_line import Ended, command

STARTED_SHOWN = ["2026-01-01", "00:00:00", "UTC"]
REQUEST = {"benchmark": "bench", "harness": "oracle", "environment": "docker", "model": {"name": "gpt/x:1"}}


async def stored(
    results_dir: Path, records: dict[str, AttemptRecord], *, run_id: str = "id", tasks: int = 0, name: str = "name"
) -> Path:
    """A run of `tasks` tasks that ended; 0 is one without an end."""
    store = FileResultStore(results_dir, Redactor())
    list(await store.open(run_info(run_id=run_id, run_name=name, request=REQUEST)))
    tally = Tally(max(tasks, len(records)), 1)
    for task_id, record in records.items():
        key = AttemptKey(task_id=task_id, attempt=1)
        store.begin_attempt(key)
        await store.save_attempt(key, "easy", record)
        tally.add(key, "easy", record)
    if tasks:
        names = {"benchmark": "bench", "harness": "oracle", "model": "gpt/x:1", "environment": "docker"}
        await store.save_summary(
            tally.summary(run_name=name, run_id=run_id, started_at=STARTED, ended_at=ENDED, **names)  # type: ignore[arg-type]  # all are str
        )
    folder = store.folder
    await store.close()
    return folder


async def test_list_has_a_line_for_each_run(tmp_path: Path) -> None:
    await stored(tmp_path, {"a": graded(), "b": graded(correct=False)}, run_id="first", tasks=2)
    await stored(tmp_path, {"a": graded(), "b": ungraded()}, run_id="second", tasks=3)
    code, out, _ = command("results", "list", "--results-dir", tmp_path)
    head, first, second = (line.split() for line in out.splitlines())

    assert code == 0
    assert head[:2] == ["RUN", "BENCHMARK"]
    assert first == [
        "name/first",
        "bench",
        "oracle",
        "gpt/x:1",
        "docker",
        *["50.0", "%", "2", "1", "1", "0", "0", "0"],
        *STARTED_SHOWN,
        "finished",
    ]
    assert second == [
        "name/second",
        "bench",
        "oracle",
        "gpt/x:1",
        "docker",
        *["100.0", "%", "3", "1", "0", "1", "0", "1"],
        *STARTED_SHOWN,
        "partial",
    ]


async def test_list_counts_a_run_that_never_ended_from_its_tasks(tmp_path: Path) -> None:
    await stored(tmp_path, {"a": graded(), "b": ungraded()})
    _, out, _ = command("results", "list", "--results-dir", tmp_path)
    _, as_json, _ = command("results", "list", "--results-dir", tmp_path, "--json")
    (run,) = json.loads(as_json)

    assert out.splitlines()[1].split()[5:13] == ["100.0", "%", "?", "1", "0", "1", "0", "?"]
    assert run["state"] == "partial"
    assert run["counts"] == {
        "selected": None,
        "correct": 1,
        "incorrect": 0,
        "errors": 1,
        "cancelled": 0,
        "not_run": None,
    }
    assert run["accuracy_selected"] is None


async def test_a_run_that_has_gone_on_is_counted_anew(tmp_path: Path) -> None:
    await stored(tmp_path, {"a": graded()}, tasks=3)
    await stored(tmp_path, {"b": graded()})
    _, as_json, _ = command("results", "list", "--results-dir", tmp_path, "--json")
    (run,) = json.loads(as_json)

    assert run["counts"] == {"selected": 3, "correct": 2, "incorrect": 0, "errors": 0, "cancelled": 0, "not_run": 1}
    assert run["state"] == "partial"


async def test_a_live_run_is_running(tmp_path: Path) -> None:
    store = FileResultStore(tmp_path, Redactor())
    list(await store.open(run_info(request=REQUEST)))
    _, out, _ = command("results", "list", "--results-dir", tmp_path)
    await store.close()
    _, later, _ = command("results", "list", "--results-dir", tmp_path)

    assert out.split()[-1] == "running"
    assert later.split()[-1] == "partial"


async def test_list_survives_damaged_runs(tmp_path: Path) -> None:
    folder = await stored(tmp_path, {"a": graded()}, tasks=1)
    for name in ("run_info.json", "summary.json"):
        (folder / name).write_text('{"torn')
    (tmp_path / "stray.txt").write_text("")
    (tmp_path / "empty" / "folder").mkdir(parents=True)
    code, out, _ = command("results", "list", "--results-dir", tmp_path)

    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["RUN", "name/id"]


async def test_a_number_that_is_none_in_one_run_costs_no_other(tmp_path: Path) -> None:
    folder = await stored(tmp_path, {"a": graded()}, run_id="damaged")
    await stored(tmp_path, {"a": graded()}, run_id="good", tasks=1)
    document = json.loads((folder / "run_info.json").read_text())
    document["tasks"] = document["request"]["k"] = "3"
    (folder / "run_info.json").write_text(json.dumps(document))
    code, out, _ = command("results", "list", "--results-dir", tmp_path, "--json")

    assert code == 0
    assert [(run["run_id"], run["counts"]["selected"]) for run in json.loads(out)] == [("damaged", None), ("good", 1)]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
async def test_list_leaves_out_a_run_that_cannot_be_read_and_tells_it(tmp_path: Path) -> None:
    await stored(tmp_path, {"a": graded()}, run_id="good", tasks=1)
    folder = await stored(tmp_path, {"a": graded()}, run_id="lost")
    (folder / "details" / "a.json").unlink()
    (folder / "details" / "a.json").symlink_to("/proc/self/mem")  # its first byte is an input/output error
    code, out, err = command("results", "list", "--results-dir", tmp_path)
    _, as_json, _ = command("results", "list", "--results-dir", tmp_path, "--json")

    assert code == 1
    assert [line.split()[0] for line in out.splitlines()] == ["RUN", "name/good"]
    assert re.fullmatch(r"left out name/lost: '.*a\.json' cannot be read: Input/output error \(.*\)\n", err)
    assert [run["run_id"] for run in json.loads(as_json)] == ["good"]


async def test_a_summary_of_another_version_is_read(tmp_path: Path) -> None:
    folder = await stored(tmp_path, {"a": graded()}, tasks=2)
    summary = json.loads((folder / "summary.json").read_text())
    summary["usage"]["audio_tokens"] = summary["added_later"] = 1
    (folder / "summary.json").write_text(json.dumps(summary))
    _, as_json, _ = command("results", "list", "--results-dir", tmp_path, "--json")

    assert json.loads(as_json)[0]["counts"]["selected"] == 2


def test_a_results_folder_without_runs_lists_nothing(tmp_path: Path) -> None:
    code, out, err = command("results", "list", "--results-dir", tmp_path)

    assert (code, out) == (0, "")
    assert "no runs" in err
    assert command("results", "list", "--results-dir", tmp_path, "--json")[1] == "[]\n"


def test_a_results_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    code, out, err = command("results", "list", "--results-dir", tmp_path / "nowhere")

    assert (code, out) == (2, "")
    assert "nowhere" in err
    assert len(err.splitlines()) == 1


async def test_the_results_folder_is_that_of_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await stored(tmp_path / "mine", {"a": graded()}, tasks=1)
    monkeypatch.setenv("AGENTCOMPASS_RUN__RESULTS_DIR", str(tmp_path / "mine"))
    _, out, _ = command("results", "list")

    assert "name/id" in out


@pytest.mark.parametrize("wanted", ["id", "name", "name/id", "{folder}"])
async def test_show_takes_a_folder_a_name_or_an_id(tmp_path: Path, wanted: str) -> None:
    folder = await stored(tmp_path, {"a": graded()}, tasks=1)
    code, out, _ = command("results", "show", wanted.format(folder=folder), "--results-dir", tmp_path)

    assert code == 0
    assert str(folder) in out


async def test_show_prints_the_summary_and_a_line_for_each_attempt(tmp_path: Path) -> None:
    records = {"good": graded(), "bad": graded(correct=False), "lost": ungraded(error="agent: it\n\x1b[2Jdied")}
    await stored(tmp_path, records, tasks=4)
    _, out, _ = command("results", "show", "id", "--results-dir", tmp_path)
    lines = out.splitlines()

    assert any("4 selected = 1 correct + 1 incorrect + 1 errors + 0 cancelled + 1 not run" in line for line in lines)
    assert any(line.split()[:3] == ["good", "1", "correct"] for line in lines)
    assert any(line.split()[:3] == ["bad", "1", "incorrect"] for line in lines)
    assert any(line.startswith("lost") and line.endswith(r"agent: it \x1b[2Jdied") for line in lines)


async def test_show_names_what_cannot_be_read(tmp_path: Path) -> None:
    folder = await stored(tmp_path, {"a": graded(), "b": graded()}, tasks=2)
    (folder / "details" / "b.json").write_text("{")
    code, out, _ = command("results", "show", "id", "--results-dir", tmp_path)

    assert code == 0
    assert "b.json" in out.partition("CANNOT BE READ")[2]
    assert (folder / "details" / "b.json").read_text() == "{"


async def test_show_as_json_holds_all_of_it(tmp_path: Path) -> None:
    await stored(tmp_path, {"a": graded(), "b": ungraded()}, tasks=2)
    _, out, _ = command("results", "show", "id", "--results-dir", tmp_path, "--json")
    page: dict[str, Any] = json.loads(out)

    assert page["run_info"]["request"] == REQUEST
    assert page["summary"]["counts"]["selected"] == 2
    assert [task["task_id"] for task in page["tasks"]] == ["a", "b"]


async def test_show_of_a_task_tells_its_attempts(tmp_path: Path) -> None:
    folder = await stored(tmp_path, {"A/b": graded()}, tasks=1)
    _, out, _ = command("results", "show", "id", "A/b", "--results-dir", tmp_path)
    logs = next((folder / "logs").iterdir())

    assert "SandboxBusy at start after 1.5 s: busy" in out
    assert "submitted" in out
    assert "unknown" in out
    assert str(logs) in out


async def test_show_of_a_task_as_json_is_its_file(tmp_path: Path) -> None:
    folder = await stored(tmp_path, {"a": graded()}, tasks=1)
    _, out, _ = command("results", "show", "id", "a", "--results-dir", tmp_path, "--json")

    assert json.loads(out) == json.loads((folder / "details" / "a.json").read_text())


async def test_an_id_of_two_runs_is_refused_naming_both(tmp_path: Path) -> None:
    for name in ("one", "two"):
        await stored(tmp_path, {}, name=name)
    code, _, err = command("results", "show", "id", "--results-dir", tmp_path)

    assert code == 2
    assert "one/id, two/id" in err


@pytest.mark.parametrize(("wanted", "hint"), [("nam/id", "name/id"), ("zzzz", "name/id")])
async def test_an_unknown_run_is_refused_naming_what_there_is(tmp_path: Path, wanted: str, hint: str) -> None:
    await stored(tmp_path, {"a": graded()}, tasks=1)
    code, out, err = command("results", "show", wanted, "--results-dir", tmp_path)

    assert (code, out) == (2, "")
    assert hint in err
    assert len(err.splitlines()) == 1


async def test_an_unknown_task_is_refused_naming_the_nearest(tmp_path: Path) -> None:
    await stored(tmp_path, {"django__django-11099": graded()}, tasks=1)
    code, _, err = command("results", "show", "id", "django__django-11098", "--results-dir", tmp_path)

    assert code == 2
    assert "did you mean 'django__django-11099'?" in err


@pytest.mark.parametrize(("attempt", "code"), [(1, 1), (2, 0)])
async def test_an_export_names_what_it_leaves_out(tmp_path: Path, attempt: int, code: int) -> None:
    await stored(tmp_path / "results", {"a": ungraded()}, tasks=1)
    place = ("--results-dir", tmp_path / "results", "--output", tmp_path / "preds.jsonl", "--attempt", attempt)
    ended, out, err = command("results", "export", "id", "--format", "swebench-predictions", *place)

    assert ended == code
    assert "0 instances written" in out
    assert ("left out a: it has no submission" in err) == bool(code)


def exported(results_dir: Path, *more: object, output: object = "preds.jsonl") -> Ended:
    place = ("--results-dir", results_dir, "--output", results_dir.parent / str(output), *more)
    return command("results", "export", "id", "--format", "swebench-predictions", *place)


async def test_an_export_of_a_part_of_a_run_tells_what_is_missing(tmp_path: Path) -> None:
    await stored(tmp_path / "results", {"a": graded(), "b": graded()}, tasks=6)
    code, _, err = exported(tmp_path / "results")
    none_of_the_second = exported(tmp_path / "results", "--attempt", 2)

    assert code == 1
    assert "not whole: 4 selected attempts have no result yet\n" in err
    assert none_of_the_second.code == 0


async def test_an_export_of_a_run_that_goes_on_tells_so(tmp_path: Path) -> None:
    store = FileResultStore(tmp_path / "results", Redactor())
    list(await store.open(run_info(request=REQUEST, tasks=1)))
    await store.save_attempt(AttemptKey(task_id="a", attempt=1), "", graded())
    code, _, err = exported(tmp_path / "results")
    await store.close()

    assert code == 1
    assert err.splitlines()[-1] == "not whole: the run is still going"


async def test_an_export_of_a_run_that_does_not_tell_its_selection_is_not_told_as_whole(tmp_path: Path) -> None:
    await stored(tmp_path / "results", {"a": graded()})
    code, _, err = exported(tmp_path / "results")

    assert code == 1
    assert err.splitlines()[-1] == "not whole: how many attempts were selected is not known"


async def test_what_an_export_leaves_out_is_a_line_each(tmp_path: Path) -> None:
    await stored(tmp_path / "results", {"a\nb": ungraded(error="agent: it\nleft out c: died\x1b[2J")}, tasks=1)
    _, _, err = exported(tmp_path / "results")

    assert err == "left out a b: it has no submission: agent: it left out c: died\\x1b[2J\n"


@pytest.mark.parametrize("output", ["folder", "file/x.jsonl"])
async def test_an_export_to_where_no_file_can_be_is_refused_in_a_line(tmp_path: Path, output: str) -> None:
    await stored(tmp_path / "results", {"a": graded()}, tasks=1)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    code, out, err = exported(tmp_path / "results", output=output)

    assert (code, out) == (2, "")
    assert re.fullmatch(r"error: '.*' cannot be written: (Is a directory|File exists) .*--output\)\n", err)


async def test_a_home_that_is_not_there_is_refused_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await stored(tmp_path, {"a": graded()}, tasks=1)
    monkeypatch.chdir(tmp_path)
    place = ("--results-dir", tmp_path, "--format", "swebench-predictions", "--output", "~nobody-here/x")
    code, _, err = command("results", "export", "id", *place)
    shown = command("results", "show", "~nobody-here/id", "--results-dir", tmp_path)

    assert (code, shown.code) == (2, 2)
    assert "no home folder is known for '~nobody-here'" in err
    assert shown.err.startswith("error: no run '~nobody-here/id' in ")


async def test_reading_changes_nothing(tmp_path: Path) -> None:
    folder = await stored(tmp_path, {"a": graded()}, tasks=1)
    before = {path: os.stat(path).st_mtime_ns for path in folder.rglob("*")}  # noqa: ASYNC240 - nothing else waits
    command("results", "list", "--results-dir", tmp_path)
    command("results", "show", "id", "--results-dir", tmp_path)

    assert {path: os.stat(path).st_mtime_ns for path in folder.rglob("*")} == before  # noqa: ASYNC240 - nothing else waits
