"""How the log of a failed build is told."""

from agentcompass.adapters.support.build_logs import LINES_TOLD, end_of_log


def test_the_last_line_comes_first_and_colours_are_left_out() -> None:
    log = ["Step 1", "\x1b[91m  E: no such package\x1b[0m", "  "]

    assert end_of_log(log) == "; its log ends: E: no such package\n  Step 1\n    E: no such package"


def test_only_the_end_is_told() -> None:
    told = end_of_log(str(number) for number in range(100)).splitlines()

    assert (told[0], told[1], len(told)) == ("; its log ends: 99", "  70", 1 + LINES_TOLD)


def test_no_log_is_nothing() -> None:
    assert end_of_log(["", "\x1b[0m"]) == ""
