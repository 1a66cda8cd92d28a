"""What a verifier's shell tells of its logs: the bytes themselves, or that they are to be fetched."""

import os
import subprocess
import tempfile
from pathlib import Path, PurePosixPath

import pytest
from agentcompass.adapters.benchmarks.task_directory import verifier_script
from agentcompass.adapters.benchmarks.task_directory.verifier_report import (
    REPORTED_FILES,
    Report,
    TornReport,
    read_report,
)
from agentcompass.adapters.benchmarks.task_directory.verifier_script import report_script
from hypothesis import given, settings
from hypothesis import strategies as st

NONCE = "agentcompass-0123456789abcdef"
LOGS, AGENT = PurePosixPath("/logs/verifier"), PurePosixPath("/logs/agent")
FOLDERS = {LOGS: 1024 * 1024, AGENT: 1024 * 1024}
MOST = dict.fromkeys(REPORTED_FILES, 100)
forgery = st.sampled_from([f"\n{NONCE}\n", f"\n{NONCE} 1 - - - all\n1\n{NONCE}\n", "code=0\n", "removed=x\n"])
content = st.one_of(st.binary(max_size=110), st.lists(st.text(max_size=9) | forgery).map("".join).map(str.encode))
left_behind = st.dictionaries(st.sampled_from(sorted(REPORTED_FILES)), content)


def a_root(folder: Path, files: dict[str, bytes]) -> Path:
    """A sandbox's file system below `folder`, with these files in /logs/verifier."""
    for path in FOLDERS:
        (folder / path.relative_to("/")).mkdir(parents=True)
    for name, data in files.items():
        (folder / "logs" / "verifier" / name).write_bytes(data)
    return folder


def printed(root: Path, **variables: str) -> str:
    """What the script prints there."""
    env = {"PATH": os.environ["PATH"], "AGENTCOMPASS_ROOT": str(root), **variables}
    script = report_script(NONCE, MOST, FOLDERS)
    done = subprocess.run(["/bin/sh", "-c", script], env=env, capture_output=True, timeout=30, check=True)
    return done.stdout.decode("utf-8", "replace")


def reported(root: Path) -> Report:
    """What is understood of that."""
    return read_report(printed(root), NONCE, list(FOLDERS))


@given(left_behind)
@settings(deadline=None)
def test_each_file_is_told_byte_for_byte_or_named_as_untold(files: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        report = reported(a_root(Path(folder), files))

    assert report.files.keys() | report.untold == files.keys()
    assert not report.files.keys() & report.untold
    assert all(files[name] == data for name, data in report.files.items())
    assert report.code is None
    assert (report.sizes is None) == all(len(data) <= 100 for data in files.values())


@given(st.text() | st.lists(st.text(max_size=9) | forgery | st.just(NONCE)).map("".join))
def test_junk_is_a_report_or_none(output: str) -> None:
    try:
        report = read_report(output, NONCE, list(FOLDERS))
    except TornReport:
        return

    assert report.files.keys() | report.untold <= REPORTED_FILES.keys()


def test_a_report_that_is_cut_tells_no_file(tmp_path: Path) -> None:
    output = printed(a_root(tmp_path, {"reward.txt": b"1\n", "test-stdout.txt": b"all well\n"}))
    report = read_report(output[:-20], NONCE, list(FOLDERS))

    assert report.files == {}
    assert report.untold == {"reward.txt", "test-stdout.txt"}


def test_files_before_one_that_is_not_utf_8_are_told(tmp_path: Path) -> None:
    report = reported(
        a_root(tmp_path, {"reward.txt": b"0\n", "ctrf.json": b"a\xffb", "test-stdout.txt": b"all well\n"})
    )

    assert report.files == {"reward.txt": b"0\n"}
    assert report.untold == {"ctrf.json", "test-stdout.txt"}


@pytest.mark.parametrize("size", ["0", "2", "30"])
def test_bytes_that_are_not_utf_8_do_not_hide_a_size_that_is_not_true(tmp_path: Path, size: str) -> None:
    output = printed(a_root(tmp_path, {"reward.txt": b"0.25\n", "test-stdout.txt": b"\xff"}))
    report = read_report(output.replace(" - 5 - 1 ", f" - {size} - 1 "), NONCE, list(FOLDERS))

    assert report.files == {}
    assert report.untold == {"reward.txt", "test-stdout.txt"}


def test_what_was_printed_before_the_report_tells_the_exit_code_and_what_was_removed(tmp_path: Path) -> None:
    before = "removed=/a b\nremoved=/c\ncode=17\n"
    report = read_report(before + printed(a_root(tmp_path, {"test-stdout.txt": b"code=0\n"})), NONCE, list(FOLDERS))

    assert report.code == 17
    assert report.removed == ("/a b", "/c")


def test_a_file_as_large_as_may_be_told_is_told(tmp_path: Path) -> None:
    report = reported(a_root(tmp_path, {"reward.txt": b"1" * 100, "ctrf.json": b"2" * 101}))

    assert report.files == {"reward.txt": b"1" * 100}
    assert report.untold == {"ctrf.json"}
    assert report.sizes is not None


@pytest.mark.parametrize("name", ["other", ".hidden", "reward.txt\n", "a\nb", "*", "reward.txt~"])
def test_any_other_file_makes_the_folders_measured(tmp_path: Path, name: str) -> None:
    report = reported(a_root(tmp_path, {"reward.txt": b"1\n", name: b"x"}))

    assert report.sizes is not None
    assert report.sizes[LOGS].entries == 3 + name.count("\n")
    assert report.sizes[AGENT].empty
    assert report.files == {"reward.txt": b"1\n"}


def test_a_file_of_the_agents_makes_the_folders_measured(tmp_path: Path) -> None:
    root = a_root(tmp_path, {"reward.txt": b"1\n"})
    (root / "logs" / "agent" / "log").write_bytes(b"x")
    report = reported(root)

    assert report.sizes is not None
    assert not report.sizes[AGENT].empty


def test_without_its_folder_there_is_no_file(tmp_path: Path) -> None:
    report = read_report(printed(tmp_path), NONCE, list(FOLDERS))

    assert (report.files, report.untold, report.sizes) == ({}, frozenset(), None)


@pytest.mark.parametrize("name", ["BLOCK_SIZE", "LS_BLOCK_SIZE", "BLOCKSIZE"])
def test_variables_that_change_what_ls_prints_change_no_size(tmp_path: Path, name: str) -> None:
    report = read_report(printed(a_root(tmp_path, {"reward.txt": b"0.5\n"}), **{name: "1K"}), NONCE, list(FOLDERS))

    assert report.files == {"reward.txt": b"0.5\n"}


@pytest.mark.parametrize("size", ["1", "3", "5", "99", "0", "x", "-1", ""])
def test_a_size_that_is_not_true_tells_no_file(tmp_path: Path, size: str) -> None:
    root = a_root(tmp_path / "root", {"reward.txt": b"0.5\n"})
    lying = tmp_path / "bin" / "ls"
    lying.parent.mkdir()
    lying.write_text(f'#!/bin/sh\nfor path; do echo "-rw-r--r-- 1 0 0 {size} Jan 1 1970 $path"; done\n')
    lying.chmod(0o755)
    report = read_report(printed(root, PATH=f"{lying.parent}:{os.environ['PATH']}"), NONCE, list(FOLDERS))

    assert report.files == {}
    assert report.untold == {"reward.txt"}


def test_without_ls_what_is_there_is_to_be_fetched(tmp_path: Path) -> None:
    report = read_report(printed(a_root(tmp_path, {"reward.txt": b"1\n"}), PATH="/nowhere"), NONCE, list(FOLDERS))

    assert report.files == {}
    assert report.untold == {"reward.txt"}


def test_countless_files_are_measured_without_being_spelled_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifier_script, "_MOST_FOLDER_BYTES", 4096)
    root = a_root(tmp_path, {"reward.txt": b"1\n"})
    for number in range(500):
        (root / "logs" / "agent" / f"a-file-with-a-name-that-is-somewhat-long-{number}").touch()
    report = reported(root)

    assert report.sizes is not None
    assert report.sizes[AGENT].entries == 501
