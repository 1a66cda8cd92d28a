"""Which files of a submission can rewrite outcomes, and what a log gives away."""

import pytest
from agentcompass.adapters.benchmarks.swebench.rows import Row
from agentcompass.adapters.benchmarks.swebench.suspicion import log_flags, settings_of_tests, suspects
from agentcompass.adapters.benchmarks.swebench.upstream import report
from hypothesis import given
from hypothesis import strategies as st
from swebench_fakes import columns

TARGET = "tests/unit/test_a.py::test_new"
HIDDEN = "--- a/tests/unit/test_a.py\n+++ b/tests/unit/test_a.py\n@@ -1 +1 @@\n-a\n+b\n"
SCRIPT = ": '>>>>> Start Test Output'\n./tests/runner.py --verbose bin/test\n: '>>>>> End Test Output'\n"
START, END = "+ : '>>>>> Start Test Output'\n", "+ : '>>>>> End Test Output'\n"


def a_row(**changed: object) -> Row:
    given = {"test_patch": HIDDEN, "eval_script": SCRIPT, "FAIL_TO_PASS": f'["{TARGET}"]'}
    return Row.model_validate(columns(**(given | changed)))


@pytest.mark.parametrize(
    ("path", "flag"),
    [
        ("conftest.py", "outcome_hooks"),
        ("src/deep/conftest.py", "outcome_hooks"),
        ("sitecustomize.py", "outcome_hooks"),
        ("lib/usercustomize.py", "outcome_hooks"),
        ("evil.pth", "outcome_hooks"),
        ("adder.egg-info/entry_points.txt", "outcome_hooks"),
        (".gitattributes", "outcome_hooks"),
        ("sitecustomize/__init__.py", "outcome_hooks"),
        ("deep/usercustomize/inner.py", "outcome_hooks"),
        ("sitecustomize.pyc", "outcome_hooks"),
        ("sitecustomize.cpython-311-x86_64-linux-gnu.so", "outcome_hooks"),
        ("__pycache__/test_a.cpython-311-pytest-8.pyc", "outcome_hooks"),
        ("pytest.py", "outcome_hooks"),
        ("pytest.so", "outcome_hooks"),
        ("pytest/main.py", "outcome_hooks"),
        ("src/_pytest/runner.py", "outcome_hooks"),
        ("lib/unittest/case.py", "outcome_hooks"),
        ("pluggy.abi3.so", "outcome_hooks"),
        ("json.cpython-311-x86_64-linux-gnu.so", "outcome_hooks"),
        ("json/__init__.py", "outcome_hooks"),
        ("_pytest/__init__.py", "outcome_hooks"),
        ("unittest/__init__.py", "outcome_hooks"),
        ("pytest.ini", "test_settings"),
        ("tox.ini", "test_settings"),
        ("setup.py", "test_settings"),
        ("plugins/ä/setup.py", "test_settings"),
        (".coveragerc", "test_settings"),
        ("tests/unit/helpers.py", "test_files"),
        ("tests/unit/data/deep.json", "test_files"),
        ("tests/unit/test_a.py/inside", "test_files"),
        ("tests/unit", "test_files"),
        ("tests", "test_files"),
        ("tests/runner.py", "test_files"),
        ("bin/test", "test_files"),
    ],
)
def test_files_that_can_rewrite_outcomes_are_told(path: str, flag: str):
    assert suspects([path], a_row()) == {path: flag}


@pytest.mark.parametrize(
    "path",
    [
        "adder/core.py",
        "tests/unit/test_a.py",
        "tests/integration/test_b.py",
        "adder/json.py",
        "adder/pytest.py",
        "adder/utilities/unittest/case.py",
        "cmd/main.go",
        "py/runtime.c",
        "docs/conftest.md",
        "setup.cfg",
        "pyproject.toml",
        "README.md",
        "testing.py",
    ],
)
def test_other_files_are_not(path: str):
    assert suspects([path], a_row()) == {}


@pytest.mark.parametrize("path", ["src/_pytest/runner.py", "src/pytest/__init__.py", "_pytest/python.py"])
def test_the_code_of_a_test_tool_is_none_in_its_own_repository(path: str):
    assert suspects([path], a_row(repo="pytest-dev/pytest")) == {}


def test_beside_hidden_tests_at_the_root_only_they_themselves_are_tests():
    row = a_row(test_patch=HIDDEN.replace("tests/unit/", ""))

    assert suspects(["adder.py", "test_a.py", "test_b.py"], row) == {}


SETUP_CFG = b"[metadata]\nname = a\n[options]\npackages = find:\n[tool:pytest]\naddopts = -q\n"
PYPROJECT = b'[project]\nname = "a"\n[tool.pytest.ini_options]\naddopts = "-q"\n'


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("setup.cfg", SETUP_CFG, SETUP_CFG.replace(b"-q", b"-q -p evil")),
        ("setup.cfg", SETUP_CFG, SETUP_CFG + b"[options.entry_points]\npytest11 =\n    a = evil\n"),
        ("setup.cfg", SETUP_CFG, SETUP_CFG.replace(b"packages", b"py_modules = sitecustomize\npackages")),
        ("setup.cfg", SETUP_CFG, SETUP_CFG + b"[coverage:run]\nplugins = evil\n"),
        ("setup.cfg", SETUP_CFG, SETUP_CFG + b"[testenv:py39]\ncommands = true\n"),
        ("setup.cfg", SETUP_CFG, b"no settings at all"),
        ("setup.cfg", b"", b"[pytest]\naddopts = -p evil\n"),
        ("pyproject.toml", PYPROJECT, PYPROJECT.replace(b"-q", b"-p evil")),
        ("pyproject.toml", PYPROJECT, PYPROJECT + b'[project.entry-points.pytest11]\na = "evil"\n'),
        ("pyproject.toml", PYPROJECT, PYPROJECT + b'[tool.setuptools]\npy-modules = ["sitecustomize"]\n'),
        ("pyproject.toml", PYPROJECT, PYPROJECT + b"[tool.tox]\nlegacy_tox_ini = ''\n"),
        ("pyproject.toml", PYPROJECT, b"[["),
    ],
)
def test_settings_that_tests_read_differ(name: str, before: bytes, after: bytes):
    assert settings_of_tests(name, before) != settings_of_tests(name, after)


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("setup.cfg", SETUP_CFG, SETUP_CFG.replace(b"packages", b"install_requires =\n    appdirs\npackages")),
        ("setup.cfg", SETUP_CFG, SETUP_CFG + b"[isort]\nline_length = 88\n[mypy-appdirs]\nx = y\n"),
        ("setup.cfg", SETUP_CFG, b"# a comment\n" + SETUP_CFG),
        ("pyproject.toml", PYPROJECT, PYPROJECT.replace(b'name = "a"', b'name = "a"\ndependencies = ["b"]')),
    ],
)
def test_settings_that_tests_do_not_read_are_the_same(name: str, before: bytes, after: bytes):
    assert settings_of_tests(name, before) == settings_of_tests(name, after)


@pytest.mark.parametrize("value", ["[" * 5000 + "]" * 5000, "9" * 5000, "1979-99-99", "{a=" * 5000])
def test_settings_that_a_parser_gives_up_on_are_compared_as_text(value: str):
    submitted = f"[tool.x]\ny = {value}\n"

    assert settings_of_tests("pyproject.toml", submitted.encode()) == submitted


def test_settings_nested_without_end_are_compared_all_the_same():
    deep = b"[tool.pytest." + b"a." * 5000 + b"b]\n"

    assert settings_of_tests("pyproject.toml", PYPROJECT) != settings_of_tests("pyproject.toml", deep)


@given(st.sampled_from(["setup.cfg", "pyproject.toml"]), st.binary() | st.text().map(str.encode))
def test_settings_of_junk_are_compared_all_the_same(name: str, junk: bytes):
    assert settings_of_tests(name, junk) == settings_of_tests(name, junk)


def flags_of(log: str, **changed: object) -> list[str]:
    row = a_row(**changed)
    return log_flags(row, log, report(row, b"x", log.encode()))


def code(number: int) -> str:
    return f"+ echo '>>>>> Test Exit Code: {number}'\n>>>>> Test Exit Code: {number}\n"


GOOD = f"{START}PASSED {TARGET}\n{END}{code(0)}"


@pytest.mark.parametrize(
    ("log", "flags"),
    [
        (GOOD, []),
        ("", ["markers_lost"]),
        (GOOD.replace(END, ""), ["markers_lost"]),
        (GOOD.replace(code(0), code(1)), ["exit_code_against_log"]),
        (START + GOOD, ["markers_forged"]),
        (GOOD + END, ["markers_forged"]),
        (">>>>> Test Exit Code: 1\n" + GOOD, ["markers_forged", "exit_code_against_log"]),
        (">>>>> Test Exit Code: 0\n" + GOOD, ["markers_forged"]),
        (GOOD.replace("PASSED", f"FAILED {TARGET} - no\nPASSED"), ["outcomes_contradicted"]),
        (GOOD.replace("PASSED", "FAILED"), []),
        (f">>>>> Test Exit Code: {'9' * 5000}\n" + GOOD, ["markers_forged", "exit_code_against_log"]),
        (f"{START}SKIPPED [1] adder.py:3: later\n{END}{code(0)}", ["required_tests_skipped"]),
        (f"{START}1 skipped in 0.1s\n{END}{code(0)}", ["required_tests_skipped"]),
        (f"{START}no tests ran\n{END}{code(5)}", []),
        (f"{START}Could not resolve host: example.org\n{END}{code(1)}", ["infra_failure"]),
    ],
)
def test_a_log_gives_away(log: str, flags: list[str]):
    assert flags_of(log) == flags


def test_percentages_among_the_required_tests_may_contradict_themselves():
    log = GOOD.replace("PASSED", "FAILED [100%]\nPASSED [100%]\nPASSED")

    assert flags_of(log, PASS_TO_PASS='["[100%]"]') == []


def test_nothing_required_is_told():
    assert flags_of(GOOD, FAIL_TO_PASS="[]") == ["no_required_tests"]
