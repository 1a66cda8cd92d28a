"""Stretches of time: their union, in any order and of any number."""

from datetime import UTC, datetime

import pytest
from agentcompass.domain.spans import Spans
from hypothesis import given
from hypothesis import strategies as st


def moment(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).isoformat(timespec="milliseconds")


def union(stretches: list[tuple[int, int]]) -> Spans:
    spans = Spans()
    for start, end in stretches:
        spans.add(moment(start), moment(end))
    return spans


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 20)).map(lambda one: (one[0], sum(one)))))
def test_each_second_counts_once(stretches: list[tuple[int, int]]) -> None:
    seconds = {second for start, end in stretches for second in range(start, end)}

    assert union(stretches).total_s() == (len(seconds) if stretches else None)


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(200, 400)), min_size=1))
def test_it_reaches_from_the_first_start_to_the_last_end(stretches: list[tuple[int, int]]) -> None:
    spans = union(stretches)

    assert spans.first == moment(min(start for start, _ in stretches))
    assert spans.last == moment(max(end for _, end in stretches))


@pytest.mark.parametrize("gap", [0, 1])
def test_many_stretches_are_counted_as_few(gap: int) -> None:
    stretches = [(start * (2 + gap), start * (2 + gap) + 2) for start in range(5000)]

    assert union(stretches).total_s() == 10_000


def test_many_that_overlap_take_no_memory() -> None:
    spans = union([(start, start + 5) for start in range(5000)])

    assert len(spans._spans) < 1100


@pytest.mark.parametrize("text", ["", "yesterday", "2025-13-01"])
def test_what_is_no_time_is_passed_over(text: str) -> None:
    spans = Spans()
    spans.add(text, moment(3))
    spans.add(moment(3), text)

    assert (spans.first, spans.total_s()) == (None, None)
