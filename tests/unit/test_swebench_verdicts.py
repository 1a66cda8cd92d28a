"""Recorded logs in every parser's format: our verdict is the one of upstream's own function on the same bytes."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from agentcompass.adapters.benchmarks.swebench import upstream
from agentcompass.adapters.benchmarks.swebench.rows import Row
from swebench_fakes import PATCH, WITHOUT_DATASETS, columns

START = b"+ : '>>>>> Start Test Output'\n"
END = b"+ : '>>>>> End Test Output'\n"
STATUSES = ("PASSED", "FAILED", "ERROR", "SKIPPED", "XFAIL")
OFFICIAL = """
import base64, json, pathlib, sys
from swebench.harness.grading import get_eval_report
from swebench.harness.utils import make_test_spec
reports = []
for row, log in json.load(sys.stdin):
    path = pathlib.Path(sys.argv[1], "log.txt")
    path.write_text(base64.b64decode(log).decode(errors="replace"))
    prediction = {"instance_id": row["instance_id"], "model_patch": sys.argv[2], "model_name_or_path": "m"}
    reports.append(get_eval_report(make_test_spec(row), prediction, str(path), True)[row["instance_id"]])
print(json.dumps(reports))
"""


@dataclass(frozen=True)
class Dialect:
    """How one test runner prints a test's outcome, and what it calls the test."""

    target: str
    kept: str
    lines: dict[str, str]

    def line(self, status: str, test: str) -> bytes:
        return (self.lines[status].format(test=test, bare=test.split(" ")[0]) + "\n").encode()


def summary(**changed: str) -> dict[str, str]:
    return {
        "PASSED": "PASSED {test}",
        "FAILED": "FAILED {test} - AssertionError: assert 1 == 2",
        "ERROR": "ERROR {test} - ImportError",
        "SKIPPED": "SKIPPED {test}",
        "XFAIL": "XFAIL {test} - known",
    } | changed


PYTEST = Dialect("tests/test_a.py::test_new", "tests/test_a.py::test_old[1-x]", summary())
OPTIONS = Dialect("tests/test_a.py::test_new[/x/y]", "tests/test_a.py::test_old", summary())
OPTIONS_SHORTENED = Dialect("tests/test_a.py::test_new[/y]", "tests/test_a.py::test_old", summary())
VERBOSE = Dialect(
    "tests/test_a.py::test_new",
    "tests/test_a.py::test_old[a b]",
    {status: f"{{test}} {status}" for status in STATUSES},
)
DIALECTS = {
    "django": Dialect(
        "test_new (app.tests.SomeTests)",
        "A docstring that is long",
        {
            "PASSED": "{test} ... ok",
            "FAILED": "{test} ... FAIL",
            "ERROR": "{test} ... ERROR",
            "SKIPPED": "{test} ... skipped 'no database'",
            "XFAIL": "{test} ... expected failure",
        },
    ),
    "sympy": Dialect(
        "test_new",
        "test_old",
        {
            "PASSED": "{test} ok",
            "FAILED": "{test} F",
            "ERROR": "{test} E",
            "SKIPPED": "{test} s",
            "XFAIL": "{test} f",
        },
    ),
    "matplotlib": Dialect("lib/test_a.py::test_new[1]", "lib/test_a.py::test_old", summary(PASSED="PASSED {test}")),
    "xarray": PYTEST,
    "pytest": Dialect("testing/test_a.py::test_new", "[100%]", summary()),
    "flask": PYTEST,
    "pylint": OPTIONS_SHORTENED,
    "requests": OPTIONS,
    "sphinx": VERBOSE,
    "scikit": PYTEST,
    "astropy": Dialect("a/test_b.py::test_new[x - y]", "a/test_b.py::test_old", summary()),
    "seaborn": Dialect(
        "tests/test_a.py::test_new", "tests/test_a.py::test_old", summary(PASSED="{test} PASSED [ 50%]")
    ),
}


def wrapped(
    middle: bytes, code: int = 0, *, before: bytes = b"+ git status\nOn branch main\n", after: bytes = b""
) -> bytes:
    told = f"+ SWEBENCH_TEST_EXIT_CODE={code}\n".encode()
    echoed = f"+ echo '>>>>> Test Exit Code: {code}'\n>>>>> Test Exit Code: {code}\n".encode()
    return before + START + middle + told + END + echoed + b"+ git checkout x\n" + after


def outcomes(dialect: Dialect, target: str, kept: str) -> bytes:
    return b"===== test session =====\n" + dialect.line(kept, dialect.kept) + dialect.line(target, dialect.target)


def logs(dialect: Dialect) -> Iterator[tuple[str, bytes]]:
    """Named logs of one dialect."""
    for target in STATUSES:
        for kept in STATUSES:
            code = int({"FAILED", "ERROR"} & {target, kept} != set())
            yield f"{target} and {kept}", wrapped(outcomes(dialect, target, kept), code)
    good = outcomes(dialect, "PASSED", "PASSED")
    bad = outcomes(dialect, "FAILED", "PASSED")
    yield "no exit code", START + good + END
    yield "no start marker", wrapped(good).replace(START, b"")
    yield "no end marker", wrapped(good).replace(END, b"")
    yield "no marker", wrapped(good).replace(START, b"").replace(END, b"")
    yield "markers the wrong way round", END + good + START
    yield "nothing at all", b""
    yield "no results", wrapped(b"collected 0 items\n", 5)
    yield "target missing", wrapped(dialect.line("PASSED", dialect.kept))
    yield "kept missing", wrapped(dialect.line("PASSED", dialect.target))
    yield "stdout then stderr", good + wrapped(b"")
    yield "stderr then stdout", wrapped(b"") + good
    yield "stdout then stderr of a failure", bad + wrapped(b"", 1)
    yield "invalid bytes", wrapped(b"\xff\xfe\x00\x80 noise\n" + good + b"\xc3\n")
    yield "invalid bytes in a name", wrapped(good.replace(b"new", b"n\xffw"))
    yield "carriage returns", wrapped(good).replace(b"\n", b"\r\n")
    yield "lone carriage returns", wrapped(good.replace(b"=\n", b"=\r"))
    yield "line separators", wrapped("a\u2028b\x0c\x1c\x85".encode() + b"\n" + good)
    yield "cut by a time-out", wrapped(good).partition(END)[0] + b"\n\nTimeout error: 1800 seconds exceeded."
    yield "time-out told after the end", wrapped(good, after=b"\n\nTimeout error: 1800 seconds exceeded.")
    yield "forged pass lines with exit 1", wrapped(good, 1)
    yield "forged pass lines after a failure", wrapped(bad + good, 1)
    yield "forged pass lines before a failure", wrapped(good + bad, 1)
    yield "forged exit code", wrapped(good + b">>>>> Test Exit Code: 0\n", 1)
    yield "negative exit code", wrapped(good, -1)
    yield (
        "ANSI colours",
        wrapped(good.replace(b"PASSED", b"\x1b[32mPASSED\x1b[0m").replace(b"ok", b"\x1b[32mok\x1b[0m")),
    )
    yield "ANSI colours and the exit code", wrapped(b"\x1b[1m" + bad.replace(b"\n", b"\x1b[0m\n"), 1)
    yield "forged segment before the tests", wrapped(bad, 1, before=START + good + END)
    yield "code of a failed patch", wrapped(good, before=b"+>>>>> Patch Apply Failed\n")
    yield "code of a time-out", wrapped(good, before=b"+>>>>> Tests Timed Out\n")
    yield "code of errors", wrapped(good + b">>>>> Tests Errored\n")
    yield "code of a reset", wrapped(good, after=b">>>>> Reset Failed\n")
    yield "no memory", wrapped(b"Killed\n", 137)
    yield "no name resolution", wrapped(b"Could not resolve host: example.org\n", 1)
    yield "twice", wrapped(good) + wrapped(bad, 1)
    yield "a skip summary", wrapped(b"SKIPPED [2] tests/test_a.py:3: reason\n")
    yield "longer ids", wrapped(good.replace(b"new", b"new_and_more"))


def cases() -> Iterator[tuple[str, Row, dict[str, object], bytes]]:
    """(name, our row, upstream's row, log)"""
    for parser, dialect in DIALECTS.items():
        row = columns(
            f"acme__{parser}-1",
            log_parser=f"parse_log_{parser}",
            FAIL_TO_PASS=json.dumps([dialect.target]),
            PASS_TO_PASS=json.dumps([dialect.kept]),
        )
        good, bad = (
            wrapped(outcomes(dialect, status, "PASSED"), code) for status, code in (("PASSED", 0), ("FAILED", 1))
        )
        cut = row | {"FAIL_TO_PASS": json.dumps([dialect.target.split(" ")[0].rstrip("]")])}
        for name, log in logs(dialect):
            yield f"{parser}: {name}", Row.model_validate(row), row, log
        yield (
            f"{parser}: an id cut in its parameter",
            Row.model_validate(cut),
            cut,
            wrapped(outcomes(dialect, "PASSED", "PASSED")),
        )
        none = row | {"FAIL_TO_PASS": "[]", "PASS_TO_PASS": "[]"}
        yield (
            f"{parser}: nothing required",
            Row.model_validate(none),
            none,
            wrapped(outcomes(dialect, "FAILED", "PASSED"), 1),
        )


CASES = list(cases())


@pytest.fixture(scope="module")
def official(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    """Upstream's reports, from its whole package in an interpreter of its own."""
    from base64 import b64encode

    given = json.dumps([(row, b64encode(log).decode()) for _, _, row, log in CASES])
    command = [sys.executable, "-c", WITHOUT_DATASETS + OFFICIAL, str(tmp_path_factory.mktemp("official")), PATCH]
    done = subprocess.run(command, input=given, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def test_every_verdict_is_upstream_s(official: list[dict[str, object]]):
    ours = {name: upstream.report(row, PATCH.encode(), log).instance for name, row, _, log in CASES}

    assert ours == dict(zip(ours, official, strict=True))
    assert len(ours) == len(CASES)


def test_the_table_has_verdicts_of_both_kinds_for_every_parser(official: list[dict[str, object]]):
    seen = {(name.partition(":")[0], report["resolved"]) for (name, *_), report in zip(CASES, official, strict=True)}

    assert seen == {(parser, resolved) for parser in DIALECTS for resolved in (True, False)}


def test_the_table_has_every_parser_of_the_verified_data_set():
    named = "django sympy sphinx matplotlib scikit astropy xarray pytest pylint requests seaborn flask"

    assert set(DIALECTS) == set(named.split())


def test_a_pass_line_that_covers_a_failure_is_told():
    dialect = DIALECTS["pytest"]
    row = Row.model_validate(columns(FAIL_TO_PASS=json.dumps([dialect.target])))
    log = wrapped(dialect.line("FAILED", dialect.target) + dialect.line("PASSED", dialect.target), 1)

    assert upstream.report(row, b"x", log).contradicted == (dialect.target,)


def test_an_exit_code_that_upstream_holds_against_the_log_is_told():
    dialect = DIALECTS["pytest"]
    row = Row.model_validate(columns(FAIL_TO_PASS=json.dumps([dialect.target])))

    found = upstream.report(row, b"x", wrapped(dialect.line("PASSED", dialect.target), 1))

    assert (found.resolved, found.exit_code, found.exit_code_disbelieved) == (False, 1, True)
    assert found.statuses == {dialect.target: "PASSED"}


def test_the_locale_of_the_machine_does_not_change_a_verdict(tmp_path: Path):
    code = """
import sys, json
from agentcompass.adapters.benchmarks.swebench import upstream
from agentcompass.adapters.benchmarks.swebench.rows import Row
row, log = json.loads(sys.stdin.buffer.read())
print(upstream.report(Row.model_validate(row), b"x", log.encode()).resolved)
"""
    name = "tests/test_a.py::test_n\u00e4me[\u20ac]"
    row = columns(FAIL_TO_PASS=json.dumps([name]))
    given = json.dumps([row, wrapped(f"PASSED {name}\n".encode()).decode()]).encode()
    env = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}

    done = subprocess.run([sys.executable, "-c", code], input=given, env=env, check=True, capture_output=True)

    assert done.stdout.strip() == b"True"
