"""How layers of settings merge."""

from typing import Any

import pytest
from agentcompass.domain.errors import ConfigError
from agentcompass.domain.merging import merged
from hypothesis import given
from hypothesis import strategies as st

KEYS = st.sampled_from("abcd")
LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)


def shaped(depth: int) -> st.SearchStrategy[dict[str, Any]]:
    """Mappings where a key is a mapping or a plain value by its name, so that any two of them fit together."""
    if depth == 0:
        return st.dictionaries(KEYS.map(str.upper), LEAVES, max_size=3)
    below = st.dictionaries(KEYS, shaped(depth - 1), max_size=3)
    plain = st.dictionaries(KEYS.map(str.upper), LEAVES, max_size=3)
    return st.tuples(below, plain).map(lambda both: {**both[0], **both[1]})


LAYERS = shaped(2)


@given(LAYERS)
def test_an_empty_layer_changes_nothing(layer: dict[str, Any]) -> None:
    assert merged(layer, {}) == layer == merged({}, layer)


@given(LAYERS, LAYERS, LAYERS)
def test_the_grouping_of_layers_does_not_matter(first: Any, second: Any, third: Any) -> None:
    assert merged(merged(first, second), third) == merged(first, merged(second, third))


@given(LAYERS, LAYERS)
def test_the_higher_layer_wins_at_every_leaf(lower: dict[str, Any], higher: dict[str, Any]) -> None:
    def holds(result: Any, wanted: Any) -> bool:
        if isinstance(wanted, dict):
            return all(holds(result[key], value) for key, value in wanted.items())
        return bool(result == wanted)

    assert holds(merged(lower, higher), higher)


@given(LAYERS, LAYERS)
def test_what_only_the_lower_layer_has_stays(lower: dict[str, Any], higher: dict[str, Any]) -> None:
    result = merged(lower, higher)

    assert all(result[key] == value for key, value in lower.items() if key not in higher)
    assert result.keys() == lower.keys() | higher.keys()


@given(LAYERS, LAYERS)
def test_no_part_of_an_input_is_shared_with_the_result(lower: dict[str, Any], higher: dict[str, Any]) -> None:
    def containers(value: Any) -> set[int]:
        if isinstance(value, dict):
            return {id(value)}.union(*(containers(item) for item in value.values()))
        return {id(value)} if isinstance(value, list) else set()

    assert not containers(merged(lower, higher)) & (containers(lower) | containers(higher))


def test_a_list_replaces_a_list() -> None:
    assert merged({"a": [1, 2, 3]}, {"a": [4]}) == {"a": [4]}


@pytest.mark.parametrize(("lower", "higher"), [({"a": {"b": 1}}, {"a": 2}), ({"a": None}, {"a": {"b": 1}})])
def test_a_mapping_and_a_plain_value_do_not_merge(lower: dict[str, Any], higher: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="^a: one layer has a mapping here"):
        merged(lower, higher)
