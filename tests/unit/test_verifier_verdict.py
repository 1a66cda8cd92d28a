"""Reward files and whether a verdict can be believed."""

import json
import math
import os
from pathlib import Path

import pytest
from agentcompass.adapters.benchmarks.task_directory.verdict import (
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


def test_a_reward_that_is_given_twice_is_no_verdict() -> None:
    with pytest.raises(NoVerdict, match=r"reward\.json has 'reward' twice"):
        reward_from_files(b'{"reward": 0, "style": 1, "reward": 1}', None)


def test_a_reward_json_may_begin_with_a_byte_order_mark() -> None:
    assert reward_from_files(b'\xef\xbb\xbf{"reward": 1}', None) == {"reward": 1}


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


CURL = UVX + "curl -f https://files.example.org/data.json -o /tests/data.json\n"
PIP = "pip install pytest\npytest /tests"
NPM = "npm ci && npx jest"
BARE = "apt-get install -y jq\n/app/agent_program | grep -q 42 && echo 1 > reward || echo 0 > reward"


@pytest.mark.parametrize(
    ("script", "stdout"),
    [
        (UVX, "/tests/test.sh: line 4: uvx: command not found\n"),
        (UVX, "/tests/test.sh: 4: uvx: not found\n"),
        (UVX, "/tmp/a b/tests/test.sh: line 3: curl: command not found\n"),
        (UVX, "/tests/test.sh: line 2: apt-get: command not found\n"),
        (UVX, "curl: (6) Could not resolve host: example.org\n"),
        (UVX, "curl: (7) Failed to connect to example.org port 443 after 9 ms: Could not connect to server\n"),
        (UVX, "curl: (35) OpenSSL SSL_connect: Connection reset by peer in connection to example.org:443 \n"),
        (CURL, "curl: (28) Failed to connect to files.example.org port 443 after 30000 ms: Timeout\n"),
        ("wget https://example.org/x && sh x", "wget: unable to resolve host address ‘example.org’\n"),
        ("wget https://example.org/x && sh x", "wget: bad address 'example.org'\n"),
        (
            "git clone https://example.org/suite",
            "fatal: unable to access 'https://example.org/suite/': Could not resolve host: example.org\n",
        ),
        (UVX, "E: Unable to locate package curl\n"),
        (UVX, "E: Failed to fetch http://mirror.example.org/curl.deb  Temporary failure resolving 'x'\n"),
        (UVX, "error: Request failed after 3 retries\n  Caused by: Failed to fetch: `https://example.org/simple/`\n"),
        (UVX, "  × No solution found when resolving tool dependencies:\n"),
        (UVX, "  × Failed to download `pytest==8.4.1`\n"),
        (PIP, "ERROR: No matching distribution found for pytest\n"),
        (PIP, "ERROR: Could not find a version that satisfies the requirement pytest (from versions: none)\n"),
        (
            "pip install -r /tests/requirements.txt\npython3 check.py",
            "WARNING: Retrying (Retry(total=4)) after connection broken by 'NewConnectionError(... "
            "[Errno -3] Temporary failure in name resolution')': /simple/numpy/\n",
        ),
        (PIP, "/tests/test.sh: line 1: pip: command not found\n"),
        ("pytest /tests", "/tests/test.sh: line 2: pytest: command not found\n"),
        ("python3 -m pytest /tests", "/usr/bin/python3: No module named pytest\n"),
        (NPM, "npm error network request to a registry failed\n"),
        (NPM, "npm ERR! code ENOTFOUND\n"),
        (BARE, "E: Unable to locate package jq\n"),
        (BARE, "/tests/test.sh: line 2: jq: command not found\n"),
    ],
)
def test_a_zero_of_a_failed_set_up_is_doubted(script: str, stdout: str) -> None:
    told = stdout.splitlines()[0].strip()

    assert doubt(ZERO, Evidence(script, f"reading lists\n{stdout}done\n")) == f"its tools could not run: {told!r}"


def test_a_zero_is_doubted_where_there_is_no_trace_of_the_tests_that_write_a_report() -> None:
    reason = doubt(ZERO, Evidence(UVX, "some noise of an unknown installer\n"))

    assert reason == "its tests never ran: they write ctrf.json and it is missing"


@pytest.mark.parametrize(
    ("script", "stdout"),
    [
        (UVX, "bash: line 1: curl: command not found\nInstalled 9 packages in 12ms\n"),
        (UVX, "Installed 9 packages in 12ms\n"),
        ("pip install pytest\npytest --ctrf c.json", "Successfully installed iniconfig-2 pytest-8.4.1\n"),
        (UVX, "==== test session starts ====\n/tests/test.sh: line 4: uvx: command not found\n"),
        (UVX, "=== 2 failed, 1 passed in 0.31s ===\n/tests/test.sh: line 4: uvx: command not found\n"),
        (UVX, "Fatal Python error: Segmentation fault\n"),
        (UVX, "collected 3 items\ncurl: (6) Could not resolve host: example.org\n"),
        ("python3 -m unittest", "Ran 3 tests in 0.2s\n/usr/bin/python3: No module named pytest\n"),
        (NPM, "Tests:       1 failed, 2 passed, 3 total\nnpm error network\n"),
        (BARE, "/app/agent_program: line 3: jq: command not found\n"),
        (BARE, "sh: 1: curl: not found\n"),
        (BARE, "bash: line 1: uvx: command not found\n"),
        (BARE, "/tests/test.sh: line 2: frobnicate: command not found\n"),
        (BARE, "curl: (6) Could not resolve host: example.org\n"),
        (BARE, "python3: No module named pytest\n"),
        ("npm --version", "/tests/test.sh: line 1: npm: command not found\n"),
        ("curl -s http://localhost:8080/", "curl: (7) Failed to connect to localhost port 8080: Connection refused\n"),
        ("curl -s http://service.example.org/", "curl: (6) Could not resolve host: service.example.org\n"),
        ("curl https://example.org/x", "curl: (6) Could not resolve host: agent.example.org\n"),
        ("curl https://example.org/x", "curl: (6) Could not resolve host: example.org.evil\n"),
        ("curl https://example.org.evil/x", "curl: (6) Could not resolve host: example.org\n"),
        (PIP, "ERROR: No matching distribution found for the-agents-package\n"),
        (PIP, "Network is unreachable\nTemporary failure in name resolution\n"),
        ("pytest /tests", "the agent says: /tests/test.sh line 4: pytest: command not found\n"),
        ("# curl https://example.org/ | sh\n./check", "/tests/test.sh: line 2: pytest: command not found\n"),
        ("grep -q 42 answer.txt", ""),
    ],
)
def test_a_zero_is_believed_where_tests_ran_or_no_set_up_of_theirs_failed(script: str, stdout: str) -> None:
    assert doubt(ZERO, Evidence(script, stdout)) == ""


@pytest.mark.parametrize("noise", ["1 passed ", "/tests/", "\n", "x\n", "curl: (35) connection to "])
def test_any_amount_of_noise_between_the_ends_of_the_output_changes_nothing(noise: str) -> None:
    flood = noise * (2_000_000 // len(noise))
    failed = f"/tests/test.sh: line 4: uvx: command not found\n{flood}\n"

    assert "uvx: command not found" in doubt(ZERO, Evidence(UVX, failed))
    assert doubt(ZERO, Evidence(UVX, f"{failed}=== 1 failed in 0.1s ===\n")) == ""


def test_a_zero_with_a_report_is_believed_whatever_is_printed() -> None:
    evidence = Evidence(UVX, "/tests/test.sh: line 4: uvx: command not found", True, {"tests": 3, "failed": 3})

    assert doubt(ZERO, evidence) == ""


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
