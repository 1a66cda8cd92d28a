"""Token counts of every dialect, brought to one."""

from typing import Any

import pytest
from agentcompass.adapters.models.openai_wire import read_usage
from agentcompass.domain.model import NO_USAGE, Price, Usage
from hypothesis import given
from hypothesis import strategies as st


def counts(usage: Usage) -> tuple[int | None, ...]:
    """(input, cache read, cache write, output, reasoning)"""
    return (
        usage.input_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.output_tokens,
        usage.reasoning_tokens,
    )


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 5}, (10, None, None, 5, None)),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 8},
                "completion_tokens_details": {"reasoning_tokens": 3},
            },
            (10, 8, None, 5, 3),
        ),
        ({"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": None}, (10, None, None, 5, None)),
        (
            {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 0}},
            (10, 0, None, 5, None),
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 5, "prompt_cache_hit_tokens": 8, "prompt_cache_miss_tokens": 2},
            (10, 8, None, 5, None),
        ),
        ({"prompt_tokens": 10, "completion_tokens": 5, "cached_tokens": 4}, (10, 4, None, 5, None)),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "cache_read_input_tokens": 4,
                "cache_creation_input_tokens": 2,
            },
            (10, 4, 2, 5, None),
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cache_write_tokens": 3}},
            (10, None, 3, 5, None),
        ),
        ({"prompt_tokens": 10.0, "completion_tokens": 5.0}, (10, None, None, 5, None)),
        ({"prompt_tokens": "10", "completion_tokens": -1}, (None, None, None, None, None)),
        ({"prompt_tokens": True, "completion_tokens": 5}, (None, None, None, 5, None)),
    ],
)
def test_each_dialect_is_read(told: dict[str, Any], expected: tuple[int | None, ...]) -> None:
    assert counts(read_usage(told)) == expected


@pytest.mark.parametrize("told", [None, {}, [], "x", 0, {"prompt_tokens": 0, "completion_tokens": 0}])
def test_what_is_not_told_is_unknown(told: Any) -> None:
    assert read_usage(told) == Usage()


def test_a_prompt_of_no_tokens_is_unknown_though_the_reply_is_counted() -> None:
    assert counts(read_usage({"prompt_tokens": 0, "completion_tokens": 7}))[0] is None


def test_a_reply_of_words_and_no_tokens_is_unknown() -> None:
    told = {"prompt_tokens": 9, "completion_tokens": 0}

    assert read_usage(told, said_something=True).output_tokens is None
    assert read_usage(told, said_something=False).output_tokens == 0


def test_cached_tokens_that_are_counted_apart_are_part_of_the_input() -> None:
    told = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "cache_read_input_tokens": 900,
        "cache_creation_input_tokens": 90,
    }

    assert counts(read_usage(told)) == (1000, 900, 90, 5, None)


def test_reasoning_that_is_counted_apart_is_part_of_the_output() -> None:
    details = {"reasoning_tokens": 70}
    told = {"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 100, "completion_tokens_details": details}

    assert counts(read_usage(told)) == (10, None, None, 90, 70)


def test_reasoning_that_is_counted_within_is_not_added() -> None:
    details = {"reasoning_tokens": 15}
    told = {"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30, "completion_tokens_details": details}

    assert read_usage(told).output_tokens == 20


def test_an_unknown_count_has_no_cost() -> None:
    price = Price(input=1, output=1)

    assert price.cost_usd(read_usage({"prompt_tokens": 10})) is None


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
_NAMES = st.sampled_from(
    [
        "prompt_tokens",
        "completion_tokens",
        "total_tokens",
        "prompt_tokens_details",
        "completion_tokens_details",
        "cached_tokens",
        "reasoning_tokens",
        "cache_read_input_tokens",
    ]
)
_USAGE = st.dictionaries(_NAMES, _JSON | st.dictionaries(_NAMES, _JSON))


@given(_USAGE)
def test_any_usage_is_read_and_no_count_is_negative(told: dict[str, Any]) -> None:
    usage = read_usage(told)

    assert all(count is None or count >= 0 for count in counts(usage))
    assert usage.cost_usd is None


@given(_USAGE)
def test_the_input_is_never_less_than_what_was_cached(told: dict[str, Any]) -> None:
    usage = read_usage(told)

    if usage.input_tokens is not None:
        assert usage.input_tokens >= (usage.cache_read_tokens or 0) + (usage.cache_write_tokens or 0)


def test_a_call_that_told_nothing_makes_the_sum_unknown_and_leaves_what_is_known_of_it() -> None:
    told, silent = Usage(input_tokens=10, output_tokens=2, cache_read_tokens=4, cost_usd=1), Usage(output_tokens=3)

    assert told.plus(silent) == Usage(output_tokens=5, cache_read_tokens=4)
    assert told.plus_known(silent) == Usage(input_tokens=10, output_tokens=5, cache_read_tokens=4, cost_usd=1)


def test_the_sum_of_no_calls_leaves_what_is_unknown_unknown() -> None:
    assert NO_USAGE.plus(Usage()) == Usage()
    assert Usage().plus(NO_USAGE) == Usage()
    assert NO_USAGE.plus(Usage(input_tokens=3)).output_tokens is None
