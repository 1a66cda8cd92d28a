"""The rows of a SWE-bench data set, read from parquet, jsonl or json and checked."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field, ValidationError, field_validator

from ....domain.errors import ConfigError
from ....domain.value import Value

START, END = ">>>>> Start Test Output", ">>>>> End Test Output"
"""What an eval script prints around the output of its tests; upstream reads nothing else."""
SUFFIXES = (".parquet", ".jsonl", ".json")
INSTALL = "pip install 'agentcompass[swebench]'"
_OLDER_DATA = (
    "it is an older copy of the data set, which the pinned swebench cannot grade: leave `dataset` unset or give "
    "today's data set of the hub, as in SWE-bench/SWE-bench_Verified, whose rows have all of them"
)
_OLDER_LACK = frozenset({"eval_script", "log_parser", "eval_type", "image"})
_ID = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$"
_IMAGE_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_IMAGE = (
    r"^(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]+)?/)?"
    rf"{_IMAGE_PART}(?:/{_IMAGE_PART})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?$"
)
_MOST_PROBLEMS = 10
_MOST_NAME = 120
_MOST_REASON = 300


class Row(Value):
    """One instance, with upstream's columns; further columns are left out. An agent may see `problem_statement` only.

    `Row.model_validate` takes upstream's own names (`FAIL_TO_PASS`), with lists or upstream's JSON text of lists.
    """

    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    instance_id: str = Field(pattern=_ID)
    repo: str
    base_commit: str = Field(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$")
    patch: str
    """The reference solution."""
    test_patch: str
    """The hidden tests."""
    problem_statement: str
    hints_text: str = ""
    created_at: str = ""
    version: str
    fail_to_pass: tuple[str, ...] = Field(validation_alias="FAIL_TO_PASS")
    pass_to_pass: tuple[str, ...] = Field(validation_alias="PASS_TO_PASS")
    environment_setup_commit: str = ""
    difficulty: str = ""
    eval_script: str = Field(min_length=1)
    log_parser: str = Field(min_length=1)
    eval_type: Literal["pass_and_fail", "fail_only"]
    image: str = Field(pattern=_IMAGE)

    @field_validator("hints_text", "created_at", "environment_setup_commit", "difficulty", mode="before")
    @classmethod
    def _absent_is_empty(cls, value: object) -> str:
        return "" if value is None else str(value)

    @field_validator("fail_to_pass", "pass_to_pass", mode="before")
    @classmethod
    def _decoded(cls, value: object) -> object:
        try:
            return json.loads(value) if isinstance(value, str) else value
        except RecursionError as exc:
            raise ValueError("it is nested too deep") from exc

    @property
    def checksum(self) -> str:
        """SHA-256 of the row, whatever format its file has."""
        return hashlib.sha256(json.dumps(self.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()


REQUIRED = tuple(str(field.validation_alias or name) for name, field in Row.model_fields.items() if field.is_required())
"""Columns that every row must have, by upstream's names."""


def read_rows(*paths: Path) -> list[Row]:
    """All rows of .parquet, .jsonl or .json files, in their order; ids are unique.

    Raises:
        ConfigError: no such file, not of that format, or rows that cannot be graded, by their ids.
    """
    raw = [row for path in paths for row in _raw_rows(path)]
    where = ", ".join(repr(str(path)) for path in paths)
    if not raw:
        raise ConfigError(f"{where} has no rows")
    _refuse_missing_columns(raw, where)
    rows, problems = _checked(raw)
    if len(problems) == 1:
        raise ConfigError(f"a row of {where} cannot be used: {problems[0]}")
    if problems:
        shown = problems[:_MOST_PROBLEMS]
        more = [f"... and {len(problems) - len(shown)} more"] if len(problems) > len(shown) else []
        raise ConfigError("\n".join([f"rows of {where} that cannot be used: {len(problems)}", *shown, *more]))
    return rows


def _raw_rows(path: Path) -> list[Mapping[str, Any]]:
    readers = {".parquet": _parquet, ".jsonl": _jsonl, ".json": _json}
    if path.suffix not in readers:
        raise ConfigError(f"{str(path)!r} is no data set file", hint=f"its name ends in {' or '.join(SUFFIXES)}")
    try:
        raw = readers[path.suffix](path)
    except FileNotFoundError as exc:
        raise ConfigError(f"no data set file {str(path)!r}") from exc
    except (OSError, ValueError, RecursionError) as exc:
        reason = " ".join(str(exc).split())[:_MOST_REASON]
        raise ConfigError(f"cannot read the data set {str(path)!r}: {reason}") from exc
    if not isinstance(raw, list) or not all(isinstance(row, dict) for row in raw):
        raise ConfigError(f"{str(path)!r} is no list of rows")
    return raw


def _parquet(path: Path) -> Any:
    try:
        parquet, arrow = import_module("pyarrow.parquet"), import_module("pyarrow.lib")
    except ModuleNotFoundError as exc:
        raise ConfigError("reading parquet needs the package pyarrow, which is not installed", hint=INSTALL) from exc
    with path.open("rb") as file:
        try:
            return parquet.ParquetFile(file).read().to_pylist()
        except arrow.ArrowException as exc:
            raise ValueError(str(exc)) from exc


def _jsonl(path: Path) -> Any:
    lines = enumerate(path.read_bytes().split(b"\n"), 1)
    return [_json_line(number, line) for number, line in lines if line.strip()]


def _json_line(number: int, line: bytes) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as exc:
        raise ValueError(f"line {number} is no whole JSON: {exc.msg} at column {exc.colno}") from exc
    except (ValueError, RecursionError) as exc:
        raise ValueError(f"line {number}: {exc}") from exc


def _json(path: Path) -> Any:
    return json.loads(path.read_bytes())


def _refuse_missing_columns(raw: Iterable[Mapping[str, Any]], where: str) -> None:
    for number, row in enumerate(raw, 1):
        missing = [name for name in REQUIRED if row.get(name) is None]
        if missing:
            name = number if "instance_id" in missing else _name(row)
            hint = _OLDER_DATA if _OLDER_LACK.issuperset(missing) else "every row needs all of upstream's columns"
            raise ConfigError(f"row {name} of {where} has no {', '.join(missing)}", hint=hint)


def _name(columns: Mapping[str, Any]) -> str:
    return repr(columns["instance_id"])[:_MOST_NAME]


def _checked(raw: Iterable[Mapping[str, Any]]) -> tuple[list[Row], list[str]]:
    rows: dict[str, Row] = {}
    problems: list[str] = []
    for columns in raw:
        name = _name(columns)
        try:
            row = Row.model_validate(columns)
        except ValidationError as exc:
            first = exc.errors(include_input=False, include_url=False)[0]
            problems.append(f"{name}: {'.'.join(map(str, first['loc']))}: {first['msg']}")
            continue
        if unfit := _unfit_script(row.eval_script):
            problems.append(f"{name}: eval_script: {unfit}")
        if row.instance_id in rows:
            problems.append(f"{name}: it is there twice")
        if columns.get("image_assets") not in (None, "", "{}", {}):
            problems.append(f"{name}: image_assets: tests with binary assets are not supported")
        rows[row.instance_id] = row
    return list(rows.values()), problems


def _unfit_script(script: str) -> str:
    """Why upstream would find no result in any log of it; CRs are told apart from those of a patch within it."""
    first, *rest = script.split("\n")
    lines = [first, *(line for line in rest if START in line or END in line)]
    if any(line.endswith("\r") for line in lines):
        return "its lines end in CR LF, which bash takes for a part of the commands"
    if END not in script.partition(START)[2]:
        return f"it does not print {START!r} and then {END!r}, between which upstream reads the outcomes"
    return ""
