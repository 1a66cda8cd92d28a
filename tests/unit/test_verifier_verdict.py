"""Reward files and whether a verdict can be believed."""

import json
import math
import os
from pathlib import Path

import pytest
from agentcompass.adapters.benchmarks.verdict import (
    Evidence,
    NoVerdict,
    ctrf_counts,
    doubt,
    main_reward,
    read_regular,
    reward_from_files,
)
from hypothesis import given
from hypothesis import strategies as st

UVX = """#!/bin/bash
apt-get update && apt-get install -y curl
curl -LsSf https://example.org/uv/install.sh | sh
uvx -p 3.13 -w pytest==8.4.1 -w pytest-json-ctrf==0.3.5 \\
  pytest --ctrf /logs/verifier/ctrf.json /tests/test_outputs.py -rA
if [ $? -eq 0 ]; then echo 1 > /logs/verifier/reward.txt; else echo 0 > /logs/verifier/reward.txt; fi
"""
ZERO, ONE = {"reward": 0.0}, {"reward": 1.0}
finite = st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize(
    ("text", "value"), [("1", 1), ("0\n", 0), (" 0.5 \n", 0.5), ("1e-1", 0.1), ("-2", -2), (".5", 0.5)]
)
def test_a_number_in_reward_txt_is_the_reward(text: str, value: float) -> None:
    assert reward_from_files(None, text.encode()) == {"reward": value}


@pytest.mark.parametrize(
    "text",
    ["", " \n", "nan", "NaN", "inf", "-Infinity", "none", "None", "1_0", "1 1", "1\n0", "0x1", "١", "1e9999", "\xff"],
)
def test_anything_else_in_reward_txt_is_no_verdict(text: str) -> None:
    with pytest.raises(NoVerdict, match=r"reward\.txt is"):
        reward_from_files(None, text.encode("utf-8"))


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "1", "null", '{"reward": null}', '{"reward": "1"}', '{"reward": NaN}', '{"reward": Infinity}']
    + ['{"reward": 1e999}', '{"reward": {"a": 1}}', "{", '{"reward": 1' + "0" * 400 + "}", "[" * 100_000],
)
def test_a_reward_json_without_finite_numbers_is_no_verdict_even_beside_a_good_text(text: str) -> None:
    with pytest.raises(NoVerdict, match=r"reward\.json"):
        reward_from_files(text.encode(), b"1")


def test_reward_json_outranks_reward_txt() -> None:
    assert reward_from_files(b'{"reward": 0.25, "style": true}', b"1") == {"reward": 0.25, "style": 1.0}


def test_no_reward_file_is_no_verdict() -> None:
    with pytest.raises(NoVerdict, match=r"no reward\.txt or reward\.json"):
        reward_from_files(None, None)


def test_the_main_reward_is_the_one_of_that_name_or_the_only_one() -> None:
    assert main_reward({"reward": 0.5, "other": 1}) == 0.5
    assert main_reward({"accuracy": 0.75}) == 0.75
    with pytest.raises(NoVerdict, match="no 'reward' among a, b"):
        main_reward({"b": 1, "a": 0})


@given(st.dictionaries(st.text(), finite, min_size=1))
def test_rewards_survive_being_written_and_read(rewards: dict[str, float]) -> None:
    assert reward_from_files(json.dumps(rewards).encode(), None) == rewards


@given(finite)
def test_a_reward_survives_being_written_as_text(reward: float) -> None:
    assert reward_from_files(None, f"{reward!r}\n".encode()) == {"reward": reward}


@given(st.binary(max_size=100))
def test_junk_is_a_finite_number_or_no_verdict(data: bytes) -> None:
    values = []
    for files in ((data, None), (None, data)):
        try:
            values += reward_from_files(*files).values()
        except NoVerdict:
            continue

    assert all(math.isfinite(value) for value in values)


@pytest.mark.parametrize(
    "stdout",
    [
        "/tests/test.sh: line 4: uvx: command not found\n",
        "curl: (6) Could not resolve host: example.org\nsh: 1: curl: not found\n",
        "Err:1 http://mirror.example.org bookworm InRelease\n  Temporary failure resolving 'mirror.example.org'\n",
        "E: Unable to locate package curl\n",
        "error: Request failed after 3 retries\n",
        "",
    ],
)
def test_a_zero_of_tests_that_never_ran_is_doubted(stdout: str) -> None:
    assert doubt(ZERO, Evidence(UVX, stdout))


def test_the_doubt_quotes_what_was_printed() -> None:
    reason = doubt(ZERO, Evidence(UVX, "reading lists\n/tests/test.sh: line 4: uvx: command not found\ndone\n"))

    assert "uvx: command not found" in reason


@pytest.mark.parametrize(
    "evidence",
    [
        Evidence(UVX, "bash: frobnicate: command not found", ctrf_there=True, ctrf={"tests": 3, "failed": 3}),
        Evidence(UVX, "curl: (6) Could not resolve host", ctrf_there=True),
        Evidence(UVX, "=== 2 failed, 1 passed in 0.31s ===\nuvx: command not found"),
        Evidence("#!/bin/sh\n./agent_program || echo 0 > reward", "./agent_program: curl: command not found"),
        Evidence("pytest /tests", "bash: frobnicate: command not found\n"),
        Evidence("grep -q 42 answer.txt", ""),
    ],
)
def test_a_zero_of_tests_that_ran_is_believed(evidence: Evidence) -> None:
    assert doubt(ZERO, evidence) == ""


@pytest.mark.parametrize(
    ("script", "stdout"),
    [
        ("pip install pytest\npytest /tests", "ERROR: No matching distribution found for pytest"),
        ("python3 -m pytest /tests", "/usr/bin/python3: No module named pytest"),
        ("pytest /tests", "/tests/test.sh: line 2: pytest: command not found"),
        ("npm ci && npm test", "npm error network request failed"),
    ],
)
def test_suites_without_a_report_are_judged_by_the_tools_they_use(script: str, stdout: str) -> None:
    assert "its tools could not run" in doubt(ZERO, Evidence(script, stdout))


def test_partial_credit_is_believed() -> None:
    assert doubt({"reward": 0.5}, Evidence(UVX, "uvx: command not found")) == ""


@pytest.mark.parametrize(
    ("evidence", "reason"),
    [
        (Evidence(UVX), "ctrf.json that its tests write is missing"),
        (Evidence(UVX, "", True, {"tests": 4, "passed": 0, "skipped": 4}), "no test passed (4 skipped)"),
        (Evidence(UVX, "", True, {"tests": 0, "passed": 0}), "no test passed"),
        (Evidence(UVX, "", True, {"tests": 2, "passed": 1, "failed": 1}), "ctrf.json has 1 failed tests"),
    ],
)
def test_a_pass_that_the_report_does_not_back_is_doubted(evidence: Evidence, reason: str) -> None:
    assert reason in doubt(ONE, evidence)


@pytest.mark.parametrize(
    "evidence",
    [
        Evidence(UVX, "", True, {"tests": 2, "passed": 2, "failed": 0}),
        Evidence(UVX, "", True, {}),
        Evidence("grep -q 42 answer.txt"),
        Evidence("pytest --ctrf c.json; python3 score.py", "", True, {"tests": 10, "passed": 9, "failed": 1}),
    ],
)
def test_a_pass_that_is_backed_or_reports_nothing_is_believed(evidence: Evidence) -> None:
    assert doubt(ONE, evidence) == ""


@pytest.mark.parametrize(
    "data", [None, b"", b"{", b"[]", b'{"results": 1}', b'{"results": {"summary": [1]}}', b"[" * 100_000]
)
def test_a_report_that_cannot_be_read_counts_nothing(data: bytes | None) -> None:
    assert ctrf_counts(data) == {}


def test_a_report_counts_its_tests() -> None:
    report = {"results": {"summary": {"tests": 3, "passed": 2, "failed": 1, "start": 5, "note": "x"}}}

    assert ctrf_counts(json.dumps(report).encode()) == {"tests": 3, "passed": 2, "failed": 1}


def test_links_and_pipes_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("1")
    (tmp_path / "link").symlink_to("secret")
    os.mkfifo(tmp_path / "pipe")

    assert read_regular(tmp_path / "secret", 10) == b"1"
    assert [read_regular(tmp_path / name, 10) for name in ("link", "pipe", "missing", ".")] == [None] * 4
