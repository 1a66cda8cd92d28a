"""Upstream's own grading code, loaded without the heavy half of its package."""

import functools
import re
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import JsonValue

from ....domain.errors import ConfigError
from ....domain.value import Value
from .rows import INSTALL, Row

PINNED = "5.0.2"
_HARNESS = "swebench.harness"
_HEADER = ("#!/bin/bash", "set -uxo pipefail")
_PASSING = frozenset({"PASSED", "XFAIL"})
_FAILING = re.compile(r"FAIL|ERROR| [EF]\s*$")
_MAX_EXIT_CODE_LENGTH = 18
_loading = threading.Lock()


class Report(Value):
    """Upstream's verdict on a log, and what it says of single tests."""

    resolved: bool
    instance: dict[str, JsonValue]
    """Upstream's report of this instance, as it stands in its report.json."""
    statuses: dict[str, str]
    """Test -> PASSED, FAILED, ERROR, SKIPPED or XFAIL; empty where upstream takes the log for no result."""
    exit_code: int | None
    """Of the test command; None where the log does not tell."""
    exit_code_disbelieved: bool = False
    """Upstream refuses the log because the command failed while no test did."""
    contradicted: tuple[str, ...] = ()
    """Required tests that one line calls failed, and a later one passed."""


def swebench_version() -> str:
    """The installed release, the one this package grades with.

    Raises:
        ConfigError: there is none, or another one.
    """
    try:
        found = version("swebench")
    except PackageNotFoundError as exc:
        raise ConfigError("grading needs the package swebench, which is not installed", hint=INSTALL) from exc
    if found != PINNED:
        what = f"swebench {found!r} is installed, but scores are made with {PINNED!r}"
        raise ConfigError(what, hint=INSTALL)
    return found


def test_spec(row: Row) -> Any:
    """Upstream's TestSpec of the row, as its make_test_spec builds it; `eval_script` is what is to be run.

    Raises:
        ConfigError: as swebench_version; or a log parser that upstream does not have.
    """
    upstream = _upstream()
    if row.log_parser not in upstream.grading.PARSER_REGISTRY:
        raise ConfigError(f"{row.instance_id}: swebench {PINNED} has no log parser {row.log_parser!r}")
    return upstream.grading.TestSpec(
        instance_id=row.instance_id,
        image=row.image,
        eval_script_list=_script_lines(row, upstream.constants),
        repo=row.repo,
        version=row.version,
        FAIL_TO_PASS=list(row.fail_to_pass),
        PASS_TO_PASS=list(row.pass_to_pass),
        log_parser=row.log_parser,
        eval_type=row.eval_type,
    )


def report(row: Row, patch: bytes, log: bytes) -> Report:
    """Upstream's verdict on the output of the eval script; bytes that are not UTF-8 are replaced.

    Raises:
        ConfigError: as test_spec.
    """
    grading, spec = _upstream().grading, test_spec(row)
    text = grading.TEST_EXIT_CODE_RE.sub(_of_exit_code_length, log.decode("utf-8", "replace"))
    prediction = {"instance_id": row.instance_id, "model_patch": patch.decode("utf-8", "replace")}
    with _log_file(text) as path:
        instance = grading.get_eval_report(spec, prediction, path, include_tests_status=True)[row.instance_id]
        statuses, believed = grading.get_logs_eval(spec, path)
    exit_code = grading.parse_test_exit_code(text)
    disbelieved = False
    if not believed and exit_code:
        with _log_file(grading.TEST_EXIT_CODE_RE.sub("", text)) as path:
            statuses, disbelieved = grading.get_logs_eval(spec, path)
    return Report(
        resolved=instance["resolved"],
        instance=instance,
        statuses=statuses,
        exit_code=exit_code,
        exit_code_disbelieved=disbelieved,
        contradicted=_contradicted(grading.PARSER_REGISTRY[row.log_parser], spec, text, statuses),
    )


def _of_exit_code_length(told: re.Match[str]) -> str:
    """No exit code is longer; upstream gives up on a number of thousands of digits, which a submission may print."""
    return told[0][: told.start(1) - told.start() + _MAX_EXIT_CODE_LENGTH]


def _script_lines(row: Row, constants: ModuleType) -> list[str]:
    """Without its first two lines, which TestSpec adds; the test command's status is printed past the end marker."""
    lines = [line for line in row.eval_script.strip().split("\n") if line not in _HEADER]
    end = next((number for number, line in enumerate(lines) if constants.END_TEST_OUTPUT in line), None)
    if end is None:
        return lines
    variable = constants.TEST_EXIT_CODE_VAR
    told = f'echo "{constants.TEST_EXIT_CODE}: ${variable}"'
    return [*lines[:end], f"{variable}=$?", lines[end], told, *lines[end + 1 :]]


def _contradicted(parse: Any, spec: Any, text: str, statuses: Mapping[str, str]) -> tuple[str, ...]:
    """A parser keeps the last word on each test: here it is asked line by line.

    Some required ids are no tests but percentages that pytest prints (`[100%]`), which contradict themselves.
    """
    required = (test for test in (*spec.FAIL_TO_PASS, *spec.PASS_TO_PASS) if not test.startswith("["))
    passed = {test for test in required if statuses.get(test) in _PASSING}
    failed: set[str] = set()
    for line in set(filter(_FAILING.search, text.split("\n"))) if passed else ():
        failed |= {test for test, status in parse(line, spec).items() if status in ("FAILED", "ERROR")}
    return tuple(sorted(passed & failed))


class _Upstream:
    """Its modules, in copies of our own: `swebench.harness` itself imports docker, datasets and modal."""

    def __init__(self) -> None:
        swebench_version()
        with _loading, _set_aside(_HARNESS):
            root = import_module("swebench").__path__[0]
            sys.modules[_HARNESS] = package = ModuleType(_HARNESS)
            package.__path__ = [f"{root}/harness"]
            self.constants = import_module(f"{_HARNESS}.constants")
            self.grading = import_module(f"{_HARNESS}.grading")
        # It opens logs in the locale's encoding.
        self.grading.__dict__["open"] = functools.partial(open, encoding="utf-8")


@functools.cache
def _upstream() -> _Upstream:
    return _Upstream()


@contextmanager
def _set_aside(package: str) -> Iterator[None]:
    """Inside, as if `package` had never been imported; afterwards as before."""
    before = _loaded(package)
    for name in before:
        del sys.modules[name]
    try:
        yield
    finally:
        for name in _loaded(package):
            del sys.modules[name]
        sys.modules.update(before)


def _loaded(package: str) -> dict[str, ModuleType]:
    return {name: module for name, module in sys.modules.items() if f"{name}.".startswith(f"{package}.")}


@contextmanager
def _log_file(text: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "test_output.txt")
        path.write_bytes(text.encode("utf-8"))
        yield str(path)
