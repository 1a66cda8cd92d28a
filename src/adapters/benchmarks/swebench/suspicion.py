"""What in a submission, or in the log of its tests, may have made the outcome other than the tests would."""

import configparser
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from .patch_paths import patch_paths
from .rows import END, START, Row
from .upstream import Report

_EXIT_CODE = re.compile(r">>>>> Test Exit Code:\s*(-?\d+)")
_TRACED_AND_ECHOED = 2
DISQUALIFYING = frozenset(
    {
        *("no_required_tests", "markers_forged", "outcomes_contradicted", "hidden_tests_blocked"),
        *("not_confirmed", "confirming_timed_out"),
    }
)
"""Flags that no submission is correct with, whatever upstream's report says."""
SETTINGS_FILES = frozenset({"setup.cfg", "pyproject.toml"})
"""Files that set much besides the tests: they count when `settings_of_tests` of them has changed."""
_HOOKS = frozenset({"conftest.py", "entry_points.txt", ".gitattributes"})
_HOOK_SUFFIXES = frozenset({".pth", ".pyc"})
_STARTS_WITH_PYTHON = frozenset({"sitecustomize", "usercustomize"})
_RUNNER_SETTINGS = frozenset(
    {"pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini", "tox.toml", ".coveragerc", "setup.py"}
)
_TEST_FOLDER = re.compile(r"(?i)(^|_)tests?(ing|_|$)")
_TEST_TOOLS = frozenset({"_pytest", "pytest", "pluggy", "iniconfig", "py", "tox", "coverage", "hypothesis", "xdist"})
_RUNNERS = frozenset({"_pytest", "pytest", "pluggy", "unittest"})
_IMPORT_ROOTS = frozenset({"src", "lib"})
_MODULE_SUFFIXES = frozenset({".py", ".so"})
_SHADOWED = (sys.stdlib_module_names | _TEST_TOOLS) - {"test"}
_UNREADABLE = (configparser.Error, ValueError, RecursionError)
"""A submission may write what a parser gives up on in its own way: deep nesting, a number of thousands of digits."""
_SECTIONS = re.compile(
    r"(tool:)?pytest|tox(:.*)?|testenv.*|coverage:.*|nosetests|aliases|options\.(entry_points|data_files)"
)
_SKIPS = re.compile(r"(?m)^SKIPPED \[\d+\]|\.\.\. skipped\b|\b[1-9]\d* skipped\b|(?i:Skip:)|^test_\w+ s$")


def suspects(paths: Iterable[str], row: Row) -> dict[str, str]:
    """Of the changed `paths` those that can rewrite the tests' outcomes -> the flag for it.

    The files of the hidden tests themselves are none: their bytes are put in after the patch whatever it did to them.
    SETTINGS_FILES are left to their contents.
    """
    hidden = patch_paths(row.test_patch.encode())
    folders = _test_folders(hidden)
    command = _test_command(row)
    own = row.repo.rpartition("/")[2]
    known = [path for path in paths if path not in hidden]
    flags = {path: _flag_of_name(path, own) or _flag_of_place(path, hidden, folders, command) for path in known}
    return {path: flag for path, flag in flags.items() if flag}


def _flag_of_name(path: str, own: str) -> str:
    pure = PurePosixPath(path)
    if pure.name in _RUNNER_SETTINGS:
        return "test_settings"
    stems = [_stem(part) for part in pure.parts]
    hooks = pure.name in _HOOKS or pure.suffix in _HOOK_SUFFIXES or not _STARTS_WITH_PYTHON.isdisjoint(stems)
    return "outcome_hooks" if hooks or _shadows(pure, stems, own) else ""


def _flag_of_place(path: str, hidden: tuple[str, ...], folders: frozenset[str], command: frozenset[str]) -> str:
    parents = {str(parent) for parent in PurePosixPath(path).parents}
    if path in command or any(f"{test}/".startswith(f"{path}/") for test in hidden) or parents & folders:
        return "test_files"
    return ""


def _stem(part: str) -> str:
    """What a module of that file or folder is imported as: `a` of `a.cpython-311-x86_64-linux-gnu.so`."""
    return part.partition(".")[0]


def _shadows(path: PurePosixPath, stems: list[str], own: str) -> bool:
    """A module at the root goes before that of the standard library, and before the tests' tools.

    Not the repository's `own`: what pytest's own repository has as `src/_pytest` is what is to be mended there.
    """
    within = stems[1:] if len(stems) > 1 and stems[0] in _IMPORT_ROOTS else stems
    if not {stems[0], within[0]}.isdisjoint(_RUNNERS - {own, f"_{own}"}):
        return True
    is_module = path.suffix in _MODULE_SUFFIXES and stems[1:] in ([], ["__init__"])
    return is_module and stems[0] in _SHADOWED - {own, f"_{own}"}


def _test_folders(hidden: Iterable[str]) -> frozenset[str]:
    folders = (PurePosixPath(path).parent for path in hidden)
    return frozenset(str(folder) for folder in folders if any(map(_TEST_FOLDER.search, folder.parts)))


def _test_command(row: Row) -> frozenset[str]:
    lines = row.eval_script.partition(START)[2].partition(END)[0].splitlines()
    return frozenset(word.removeprefix("./").rstrip("/") for line in lines for word in line.split())


def settings_of_tests(name: str, content: bytes) -> Any:
    """What of a SETTINGS_FILES file the test tools read, or what registers code with them; it is to be compared."""
    text = content.decode("utf-8", "replace")
    try:
        return {"setup.cfg": _of_setup_cfg, "pyproject.toml": _of_pyproject}[name](text)
    except _UNREADABLE:
        return text


def _of_setup_cfg(text: str) -> Any:
    parser = configparser.RawConfigParser(strict=False, delimiters=("=", ":"))
    parser.read_string(text)
    read = {name: dict(parser[name]) for name in parser.sections() if _SECTIONS.fullmatch(name)}
    return read, parser.get("options", "py_modules", fallback=""), parser.get("options", "entry_points", fallback="")


def _of_pyproject(text: str) -> Any:
    data = tomllib.loads(text)
    tool = _table(data, "tool")
    kept = {name: tool.get(name) for name in ("pytest", "tox", "coverage", "nose")}
    setuptools = {name: _table(tool, "setuptools").get(name) for name in ("py-modules", "data-files")}
    project = {name: _table(data, "project").get(name) for name in ("entry-points",)}
    return (
        kept,
        setuptools,
        project,
        _table(tool, "poetry").get("plugins"),
        _table(data, "build-system").get("backend-path"),
    )


def _table(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = data.get(name)
    return found if isinstance(found, dict) else {}


def log_flags(row: Row, log: str, report: Report) -> list[str]:
    """Flags that the log itself raises."""
    raised = {
        "no_required_tests": not row.fail_to_pass,
        "markers_forged": _forged(row, log),
        "markers_lost": START not in log or END not in log,
        "exit_code_against_log": report.exit_code_disbelieved,
        "outcomes_contradicted": bool(report.contradicted),
        "required_tests_skipped": _skipped(row, log, report),
        "infra_failure": bool(report.instance.get("infra_failure")),
    }
    return [flag for flag, is_raised in raised.items() if is_raised]


def _forged(row: Row, log: str) -> bool:
    """The eval script alone prints markers, each once, and one exit code, which bash traces too."""
    codes = _EXIT_CODE.findall(log)
    more = any(log.count(marker) > max(1, row.eval_script.count(marker)) for marker in (START, END))
    return more or len(codes) > _TRACED_AND_ECHOED or len(set(codes)) > 1


def _skipped(row: Row, log: str, report: Report) -> bool:
    """None of the tests that the patch is to mend has run, and the log tells of skipped ones."""
    told = {report.statuses.get(test, "SKIPPED") for test in row.fail_to_pass}
    return told == {"SKIPPED"} and bool(_SKIPS.search(log))
