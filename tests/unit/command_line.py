"""The command line, in this process."""

import io
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

import pytest
from agentcompass.app.cli import main


class Ended(NamedTuple):
    code: object
    out: str
    err: str


def command(*words: object) -> Ended:
    """Call `agentcompass WORDS` to its end."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return Ended(ended.value.code, out.getvalue(), err.getvalue())
