"""Reading the rows of a SWE-bench data set."""

import json
from pathlib import Path
from typing import Any

import pytest
from agentcompass.adapters.benchmarks.swebench import rows as module
from agentcompass.adapters.benchmarks.swebench.rows import END, REQUIRED, START, Row, read_rows
from agentcompass.domain.errors import ConfigError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from swebench_fakes import EVAL_SCRIPT, columns, some_columns, write_rows

FORMATS = [".parquet", ".jsonl", ".json"]


def refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as raised:
        read_rows(path)
    return str(raised.value)


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_row_has_upstreams_columns_with_the_test_lists_decoded(tmp_path: Path, suffix: str) -> None:
    (row,) = read_rows(write_rows(tmp_path / f"rows{suffix}", [columns()]))

    expected = {name.lower(): value for name, value in columns().items()}
    expected |= {"fail_to_pass": ("test_adder.py::test_add",), "pass_to_pass": ()}
    assert row.model_dump() == expected


def test_every_format_gives_the_same_rows_in_the_order_of_the_file(tmp_path: Path) -> None:
    read = [read_rows(write_rows(tmp_path / f"rows{suffix}", some_columns())) for suffix in FORMATS]

    assert [row.instance_id for row in read[0]] == [row["instance_id"] for row in some_columns()]
    assert read[0] == read[1] == read[2]


def test_several_files_are_one_data_set(tmp_path: Path) -> None:
    whole = some_columns()
    first, second = write_rows(tmp_path / "1.parquet", whole[:2]), write_rows(tmp_path / "2.parquet", whole[2:])

    assert [row.instance_id for row in read_rows(first, second)] == [row["instance_id"] for row in whole]


def test_test_lists_may_be_lists() -> None:
    row = Row.model_validate(columns(FAIL_TO_PASS=["a", "b"], PASS_TO_PASS=["c"]))

    assert (row.fail_to_pass, row.pass_to_pass) == (("a", "b"), ("c",))


def test_the_checksum_is_the_content_and_not_its_spelling() -> None:
    as_text, as_list = (
        Row.model_validate(columns()),
        Row.model_validate(columns(FAIL_TO_PASS=["test_adder.py::test_add"])),
    )

    assert as_text.checksum == as_list.checksum
    assert Row.model_validate(columns(eval_script="exit 0")).checksum != as_text.checksum


def test_text_is_taken_as_it_is(tmp_path: Path) -> None:
    patch = "diff --git a/é b/é\r\n+tab\there  \n\u2028\x85 no last newline"
    for suffix in FORMATS:
        (row,) = read_rows(write_rows(tmp_path / f"rows{suffix}", [columns(patch=patch)]))

        assert row.patch == patch


def test_columns_that_upstream_may_leave_out_are_empty(tmp_path: Path) -> None:
    kept = {name: value for name, value in columns().items() if name not in ("difficulty", "hints_text")}
    (row,) = read_rows(write_rows(tmp_path / "rows.jsonl", [kept | {"created_at": None, "further": 1}]))

    assert (row.difficulty, row.hints_text, row.created_at) == ("", "", "")


@pytest.mark.parametrize("suffix", FORMATS)
def test_an_older_copy_is_refused_with_all_that_is_missing_and_what_to_do(tmp_path: Path, suffix: str) -> None:
    old = {k: v for k, v in columns().items() if k not in ("eval_script", "log_parser", "eval_type", "image")}
    message = refusal(write_rows(tmp_path / f"rows{suffix}", [old, old]))

    assert message.count("\n") == 0
    assert "row 'acme__adder-1'" in message
    assert "has no eval_script, log_parser, eval_type, image" in message
    assert "SWE-bench/SWE-bench_Verified" in message


@pytest.mark.parametrize("name", REQUIRED)
def test_every_column_that_grading_needs_must_have_a_value(tmp_path: Path, name: str) -> None:
    assert f"has no {name}" in refusal(write_rows(tmp_path / "rows.jsonl", [columns() | {name: None}]))


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"base_commit": "--upload-pack=x"}, "'acme__adder-1': base_commit: "),
        ({"version": 4.3}, "'acme__adder-1': version: "),
        ({"FAIL_TO_PASS": "[not json"}, "'acme__adder-1': FAIL_TO_PASS: "),
        ({"PASS_TO_PASS": "[1]"}, "'acme__adder-1': PASS_TO_PASS"),
        ({"eval_type": "vote"}, "'acme__adder-1': eval_type: "),
        ({"FAIL_TO_PASS": "[" * 100_000}, "'acme__adder-1': FAIL_TO_PASS: "),
        ({"PASS_TO_PASS": "[" * 100_000 + "]" * 100_000}, "nested too deep"),
        ({"image": ""}, "'acme__adder-1': image: "),
        ({"image": " "}, "'acme__adder-1': image: "),
        ({"image": "Acme Adder"}, "'acme__adder-1': image: "),
        ({"image": "acme/adder:latest\n"}, "'acme__adder-1': image: "),
        ({"image": "acme/adder@sha256:1"}, "'acme__adder-1': image: "),
        ({"image": "--privileged"}, "'acme__adder-1': image: "),
        ({"eval_script": "pytest\n"}, "'acme__adder-1': eval_script: it does not print"),
        ({"eval_script": f": '{END}'\npytest\n: '{START}'\n"}, "eval_script: it does not print"),
        ({"eval_script": EVAL_SCRIPT.replace("\n", "\r\n")}, "'acme__adder-1': eval_script: its lines end in CR LF"),
        ({"image_assets": {"test_patch": []}}, "binary assets are not supported"),
    ],
)
def test_what_cannot_be_graded_is_refused_by_id_and_column(tmp_path: Path, changed: dict[str, Any], what: str) -> None:
    message = refusal(write_rows(tmp_path / "rows.jsonl", [columns("acme__adder-2"), columns(**changed)]))

    assert what in message
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize("name", ["", "a/b", "..", ".a", "-a", "a b", "a\n", "a\x00", "a\x1b[2J", "ä", "a" * 9 + "\\"])
def test_an_id_that_is_no_plain_name_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    message = refusal(write_rows(tmp_path / "rows.jsonl", [columns(instance_id=name, image="acme/adder")]))

    assert f"{name!r}: instance_id: " in message
    assert message.isprintable()


@pytest.mark.parametrize(
    "image", ["adder", "acme/a__b.c--d:V1", "localhost:5000/acme/adder:1", "ghcr.io/acme/adder@sha256:" + "0" * 64]
)
def test_any_reference_that_docker_takes_is_an_image(image: str) -> None:
    assert Row.model_validate(columns(image=image)).image == image


def test_a_patch_within_the_script_may_have_cr_line_ends(tmp_path: Path) -> None:
    script = EVAL_SCRIPT.replace(f": '{START}'", f"git apply - <<'EOF'\n+a\r\nEOF\n: '{START}'")
    (row,) = read_rows(write_rows(tmp_path / "rows.jsonl", [columns(eval_script=script)]))

    assert row.eval_script == script


def test_a_row_without_its_id_is_told_by_its_number_and_not_called_an_older_copy(tmp_path: Path) -> None:
    nameless = {name: value for name, value in columns().items() if name != "instance_id"}
    message = refusal(write_rows(tmp_path / "rows.jsonl", [columns(), nameless]))

    assert "row 2 of " in message
    assert "has no instance_id (every row needs" in message


def test_a_torn_line_is_told_by_its_number(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", some_columns())
    path.write_bytes(path.read_bytes()[:-20])

    assert "line 6 is no whole JSON: " in refusal(path)


def test_every_unfit_row_is_told_but_no_endless_list(tmp_path: Path) -> None:
    message = refusal(write_rows(tmp_path / "rows.jsonl", [columns(f"a__b-{n}", image="") for n in range(30)]))

    assert message.startswith("rows of ")
    assert "cannot be used: 30" in message
    assert message.endswith("... and 20 more")


def test_an_id_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    assert "'acme__adder-1': it is there twice" in refusal(write_rows(tmp_path / "r.json", [columns(), columns()]))


@pytest.mark.parametrize(
    ("name", "data", "what"),
    [
        ("rows.csv", b"a,b\n", "its name ends in .parquet or .jsonl or .json"),
        ("rows.json", b"{}", "is no list of rows"),
        ("rows.json", b"[]", "has no rows"),
        ("rows.jsonl", b"", "has no rows"),
        ("rows.jsonl", b"[1]\n", "is no list of rows"),
        ("rows.jsonl", b'{"a": 1}\n{"b"', "cannot read the data set"),
        ("rows.parquet", b"PAR1 but not really", "cannot read the data set"),
    ],
)
def test_a_file_that_is_something_else_is_refused(tmp_path: Path, name: str, data: bytes, what: str) -> None:
    (tmp_path / name).write_bytes(data)

    assert what in refusal(tmp_path / name)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    assert "no data set file" in refusal(tmp_path / "rows.jsonl")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(suffix=st.sampled_from(FORMATS), data=st.binary(max_size=200))
def test_junk_is_refused_and_nothing_else_happens(tmp_path: Path, suffix: str, data: bytes) -> None:
    path = tmp_path / f"junk{suffix}"
    path.write_bytes(data)
    with pytest.raises(ConfigError):
        read_rows(path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda leaf: st.lists(leaf, max_size=3)
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(changed=st.dictionaries(st.sampled_from(sorted(columns())), JSON, max_size=4))
def test_any_value_in_any_column_is_read_or_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([columns() | changed]))
    try:
        (row,) = read_rows(path)
    except ConfigError:
        return

    assert Row.model_validate(row.model_dump()) == row


def test_parquet_without_its_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_rows(tmp_path / "rows.parquet", [columns()])
    monkeypatch.setattr(module, "import_module", absent)

    assert refusal(path).endswith("(pip install 'agentcompass[swebench]')")


def absent(name: str) -> None:
    raise ModuleNotFoundError(name)
