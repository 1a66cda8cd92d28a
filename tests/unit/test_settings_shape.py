"""What annotations say of keys and texts, and the nearest name."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from agentcompass.app.settings.provenance import LayerKind, Origin, dotted, origin_of, stacked
from agentcompass.app.settings.shape import child, known_keys, takes, takes_null, takes_text
from agentcompass.domain.suggest import did_you_mean, nearest
from pydantic import BaseModel, Field, SecretStr


class Inner(BaseModel):
    """Keys of a setting."""

    size: int = 0
    named: str = Field(default="", alias="name")


class Word(StrEnum):
    """Words."""

    ONE = "one"


@pytest.mark.parametrize(
    ("annotation", "key", "expected"),
    [
        (Inner, "size", int),
        (Inner, "name", str),
        (Inner, "no_such", Any),
        (Inner | None, "size", int),
        (Annotated[Inner | None, "note"], "size", int),
        (dict[str, int], "any", int),
        (Mapping[str, Inner], "any", Inner),
        (tuple[str, ...], 3, str),
        (list[Inner], 0, Inner),
        (frozenset[int], 0, int),
        (list[str], "key", Any),
        (dict, "any", Any),
        (int, "any", Any),
    ],
)
def test_the_annotation_below_a_key_is_found(annotation: Any, key: str | int, expected: Any) -> None:
    assert child(annotation, key) == expected


def test_the_known_keys_are_those_that_settings_use() -> None:
    assert known_keys(Inner | None) == ["size", "name"]
    assert known_keys(dict[str, int]) == []


@pytest.mark.parametrize("annotation", [str, str | None, SecretStr, Path, Word, Literal["a"], str | list[str]])
def test_text_settings_take_text(annotation: Any) -> None:
    assert takes_text(annotation)


@pytest.mark.parametrize("annotation", [int, bool | None, list[str], Literal[1], Inner, Any])
def test_other_settings_do_not(annotation: Any) -> None:
    assert not takes_text(annotation)


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (str | int, 5, True),
        (str | float, 5, True),
        (str, 5, False),
        (str | None, True, False),
        (str | bool, True, True),
        (str | list[str], ["a"], True),
        (str, ["a"], False),
        (str | int, "x", False),
    ],
)
def test_a_value_that_is_no_text_is_taken_where_its_type_is_named(annotation: Any, value: Any, expected: bool) -> None:
    assert takes(annotation, value) is expected


def test_null_is_told_from_the_annotation() -> None:
    assert takes_null(int | None)
    assert not takes_null(int)


def test_case_and_dashes_do_not_matter_for_the_nearest_name() -> None:
    assert nearest("Mini-SWE-Agent", ["oracle", "mini_swe_agent"]) == ["mini_swe_agent"]


def test_without_a_near_name_all_are_told_up_to_a_dozen() -> None:
    assert did_you_mean("zz", ["b", "a"]) == "known: a, b"
    assert did_you_mean("zz", [f"name{n:02}" for n in range(13)]).endswith("name11, ...")
    assert did_you_mean("zz", []) == "there is none to choose from"


def test_several_near_names_are_told_where_more_than_one_is_asked_for() -> None:
    known = ["task-11", "task-12", "other"]

    assert did_you_mean("task-1", known, count=3) == "did you mean 'task-12' or 'task-11'?"
    assert did_you_mean("zz", known, otherwise="see the list") == "see the list"


def test_a_higher_layer_hides_the_origins_below_what_it_replaces() -> None:
    low, high = Origin(LayerKind.FILE, "f:1"), Origin(LayerKind.FLAG, "--p")

    origins = stacked({("a",): low, ("a", "b"): low, ("c",): low}, {("a",): high})

    assert origin_of(origins, ("a", "b")) == high
    assert origin_of(origins, ("c", "d")) == low
    assert origin_of(origins, ("x",)) is None


def test_a_path_is_one_line_whatever_its_keys_are() -> None:
    assert dotted(("a", "b\n", 0, "c")) == "a.b\\n[0].c"
