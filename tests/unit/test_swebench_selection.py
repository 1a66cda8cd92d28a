"""Choosing instances."""

from typing import Any

import pytest
from agentcompass.adapters.benchmarks.swebench.known_bad import KNOWN_BAD
from agentcompass.adapters.benchmarks.swebench.parameters import SweBenchParameters
from agentcompass.adapters.benchmarks.swebench.rows import Row
from agentcompass.adapters.benchmarks.swebench.selection import select_rows
from agentcompass.domain.errors import ConfigError
from agentcompass.domain.task import TaskSelection
from hypothesis import given
from hypothesis import strategies as st
from swebench_fakes import some_columns

ROWS = [Row.model_validate(row) for row in some_columns()]
IDS = [row.instance_id for row in ROWS]


def chosen(ids: tuple[str, ...] = (), limit: int | None = None, **parameters: Any) -> list[str]:
    selection = TaskSelection(sample_ids=ids, limit=limit)
    return [row.instance_id for row in select_rows(ROWS, selection, SweBenchParameters(**parameters))]


def refusal(ids: tuple[str, ...] = (), **parameters: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        chosen(ids, **parameters)
    return str(raised.value)


def test_nothing_asked_for_is_everything_in_order() -> None:
    assert chosen() == IDS


def test_ids_are_taken_in_the_order_asked_for_and_once() -> None:
    assert chosen((IDS[3], IDS[0], IDS[3])) == [IDS[3], IDS[0]]


def test_an_unknown_id_is_refused_with_its_nearest() -> None:
    assert "has no instance 'acme__adder-11' (did you mean 'acme__adder-1'" in refusal(("acme__adder-11",))


@pytest.mark.parametrize("repo", ["acme/parser", ["acme/parser"], ("acme/parser", "acme/parser")])
def test_a_repository_may_be_one_or_several(repo: object) -> None:
    assert chosen(repo=repo) == ["acme__parser-3", "acme__parser-5"]


def test_repositories_keep_the_order_of_the_data() -> None:
    assert chosen(repo=["umbrella/web", "acme/parser"]) == ["acme__parser-3", "umbrella__web-4", "acme__parser-5"]


def test_an_unknown_repository_or_difficulty_is_refused_with_its_nearest() -> None:
    assert "has no repository 'acme/parsr' (did you mean 'acme/parser'" in refusal(repo="acme/parsr")
    assert "has no difficulty '1-4 hour' (did you mean '1-4 hours'" in refusal(difficulty=["1-4 hour"])


def test_difficulty_and_repository_apply_together() -> None:
    assert chosen(difficulty="1-4 hours") == ["acme__parser-3", "acme__parser-5"]
    assert chosen(repo="acme/adder", difficulty="<15 min fix", limit=2) == ["acme__adder-1", "acme__adder-2"]


def test_a_selection_that_leaves_nothing_is_refused() -> None:
    assert refusal(repo="acme/adder", difficulty="1-4 hours").startswith("no instance is left")
    assert refusal(offset=6).startswith("no instance is left")


def test_offset_and_limit_cut_a_window() -> None:
    assert chosen(offset=2, limit=3) == IDS[2:5]


def test_a_seed_shuffles_before_the_window_is_cut() -> None:
    shuffled = chosen(seed=7)

    assert sorted(shuffled) == sorted(IDS)
    assert shuffled != IDS
    assert chosen(seed=7, offset=1, limit=2) == shuffled[1:3]
    assert chosen(seed=8) != shuffled


def test_the_order_of_a_seed_does_not_depend_on_what_else_is_selected() -> None:
    within = [name for name in chosen(seed=3) if "adder" in name]

    assert chosen(seed=3, repo="acme/adder") == within


@given(seed=st.none() | st.integers(), offset=st.integers(0, 5), limit=st.integers(1, 10))
def test_windows_side_by_side_are_the_whole(seed: int | None, offset: int, limit: int) -> None:
    whole = chosen(seed=seed)

    assert chosen(seed=seed, offset=offset, limit=limit) == whole[offset : offset + limit]


def test_every_known_bad_instance_has_a_reason() -> None:
    assert all(reason for reason in KNOWN_BAD.values())
    assert "psf__requests-6028" not in KNOWN_BAD
