"""The end of an image build's log, as its error tells it."""

import re
from collections.abc import Iterable

LINES_TOLD = 30
_LONGEST_LAST_LINE = 200
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def end_of_log(lines: Iterable[str]) -> str:
    """To be put behind an error's message: the last line, which often is the reason, and on lines of their own the
    last `LINES_TOLD`. Empty where there are none."""
    told = [plain for line in lines if (plain := _COLOURS.sub("", line).rstrip())][-LINES_TOLD:]
    if not told:
        return ""
    return f"; its log ends: {told[-1].strip()[:_LONGEST_LAST_LINE]}" + "".join(f"\n  {line}" for line in told)
