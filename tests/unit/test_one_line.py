"""Text that stays on its line, and within its length."""

import pytest
from agentcompass.domain.one_line import cut, one_line


@pytest.mark.parametrize(("text", "kept"), [("", ""), ("abcd", "abcd"), ("abcde", "abc…")])
def test_a_text_is_cut_to_its_length_the_ellipsis_included(text: str, kept: str) -> None:
    assert cut(text, 4) == kept


def test_white_space_is_folded_and_what_a_terminal_obeys_is_escaped() -> None:
    assert one_line(" a\n\t b\x1b[2J ") == "a b\\x1b[2J"
