"""Whatever a value holds, it is written as strict JSON, and what JSON can hold loads as it was."""

import errno
import json
import math
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path, PurePosixPath

import pytest
from agentcompass.adapters.results.durable import UnreadableResult
from agentcompass.adapters.results.log_files import mask_secrets
from agentcompass.adapters.results.serialising import TOO_DEEP, json_bytes, json_safe, stored_form
from agentcompass.adapters.results.task_file import lenient_record
from agentcompass.domain.attempt import AttemptRecord, Status
from agentcompass.domain.model import Usage
from agentcompass.domain.redaction import Redactor
from agentcompass.testing.result_store import graded
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr
from structlog.testing import capture_logs

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
json_values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)
oddities = st.recursive(
    scalars
    | st.floats()
    | st.binary()
    | st.builds(Path, st.just("a/b"))
    | st.builds(object)
    | st.text(alphabet=st.characters(categories=["Cs"]), max_size=1),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.integers() | st.text() | st.booleans() | st.none(), inner)
    ),
    max_leaves=20,
)


small_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def refuse_constant(name: str) -> None:
    raise AssertionError(f"{name} is not strict JSON")


@given(json_values, st.sampled_from([None, 2]))
def test_json_values_load_as_they_were_dumped(value: object, indent: int | None) -> None:
    assert json.loads(json_bytes(json_safe(value), indent=indent)) == value


@given(oddities, st.sampled_from([None, 2]))
def test_any_value_becomes_strict_json_in_utf_8(value: object, indent: int | None) -> None:
    data = json_bytes(json_safe(value), indent=indent)

    json.loads(data.decode("utf-8"), parse_constant=refuse_constant)
    assert indent is not None or len(data.decode("utf-8").splitlines()) == 1


@pytest.mark.parametrize("text", ["\udc80", "a\udfffb ✓ 中文", "\x00\x1f\u2028\x85"])
@pytest.mark.parametrize("indent", [None, 2])
def test_lone_surrogates_and_control_characters_load_as_they_were(text: str, indent: int | None) -> None:
    assert json.loads(json_bytes({text: text}, indent=indent).decode("utf-8")) == {text: text}


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: object


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
        (2**64, 2**64),
        (PurePosixPath("/a/b"), "/a/b"),
        ({3, 1, 2}, [1, 2, 3]),
        ((1, (2,)), [1, [2]]),
        (b"a\xff", "a\\xff"),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
        (Colour.RED, "red"),
        (Status.COMPLETED, "completed"),
        (SecretStr("secret"), "***"),
        (Point(1, {2}), {"x": 1, "y": [2]}),
        (Usage(input_tokens=1).model_copy(update={"cost_usd": math.inf}), None),
        ({1: "a", "1": "b", None: "c"}, {"1": "a", "1#2": "b", "null": "c"}),
        (Broken(), "<Broken whose repr raised RuntimeError>"),
        (range(3), "range(0, 3)"),
    ],
)
def test_what_json_lacks_is_stored_in_a_readable_form(value: object, stored: object) -> None:
    safe = json_safe(value)

    if isinstance(value, Usage):
        assert isinstance(safe, Mapping)
        assert (safe["input_tokens"], safe["cost_usd"]) == (1, "Infinity")
    else:
        assert safe == stored


def test_a_number_too_long_for_decimal_digits_is_stored_in_hex() -> None:
    assert json_safe(10**5000) == hex(10**5000)


def test_a_cycle_ends_in_a_note() -> None:
    cycle: list[object] = []
    cycle.append(cycle)

    assert TOO_DEEP in json.dumps(json_safe(cycle))


numbers = st.none() | st.integers(0, 10**12)
usages = st.builds(
    Usage, input_tokens=numbers, output_tokens=numbers, cost_usd=st.none() | st.floats(0, 1e6, allow_nan=False)
)
records = st.builds(
    graded,
    correct=st.booleans(),
    score=st.floats(0, 1),
    error=st.text(),
    final_answer=st.text() | st.just("lone \udc80"),
    usage=usages,
    timings=st.dictionaries(st.text(max_size=5), st.floats(0, 1e6), max_size=3),
    extra=st.dictionaries(st.text(max_size=5), small_values, max_size=3),
)


@given(records)
def test_records_load_as_they_were_dumped(record: AttemptRecord) -> None:
    stored = json.loads(json_bytes(stored_form(record, Redactor())))

    assert lenient_record(stored) == record


@given(records, st.dictionaries(st.sampled_from(list(AttemptRecord.model_fields)), small_values, max_size=3))
def test_a_damaged_record_loads_or_is_unreadable_and_never_changes_its_score(
    record: AttemptRecord, damage: dict[str, object]
) -> None:
    stored = json.loads(json_bytes(stored_form(record, Redactor()))) | damage
    try:
        loaded = lenient_record(stored)
    except UnreadableResult:
        return

    assert {"status", "correct", "score"} & damage.keys() or loaded.score == record.score
    assert "correct" in damage or loaded.correct == record.correct


@given(st.lists(st.sampled_from([b"secret-one", b"other-secret", b"sec", b"-one", b"x", b"\xff\n"])), st.integers(1, 9))
def test_no_secret_survives_in_log_files_wherever_the_chunks_end(pieces: list[bytes], chunk_bytes: int) -> None:
    redactor = Redactor(["secret-one", "other-secret"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log")
        path.write_bytes(b"".join(pieces))
        mask_secrets(Path(folder), redactor, chunk_bytes=chunk_bytes)

        assert path.read_bytes() == redactor.secrets_masked(b"".join(pieces))


def test_files_without_a_secret_are_not_touched(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"plain")
    (tmp_path / "link").symlink_to("/etc/hostname")
    before = (tmp_path / "log").stat()
    mask_secrets(tmp_path, Redactor(["secret-one"]))

    assert (tmp_path / "log").stat().st_mtime_ns == before.st_mtime_ns
    assert (tmp_path / "link").is_symlink()


def test_a_folder_of_logs_that_cannot_be_listed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    (tmp_path / "log").write_text("secret-one")
    scan = os.scandir

    def refusing(path: str) -> object:
        if Path(path) == closed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with capture_logs() as events:
        mask_secrets(tmp_path, Redactor(["secret-one"]))

    assert [(event["event"], event["path"]) for event in events] == [("log.unmasked", str(closed))]
    assert "secret-one" not in (tmp_path / "log").read_text()
