"""What happens in a run, as it happens; the input of every progress display."""

from .attempt import AttemptKey, AttemptRecord, Stage
from .run import Rate, RunSummary, Spent
from .value import Value


class Event(Value):
    """Base of all events."""


class RunStarted(Event):
    """The run's folder is open. Of `selected` attempts `kept` are graded already; `accuracy` and `spent` are theirs."""

    run_name: str
    run_id: str
    title: str
    """`benchmark / harness / model / environment`."""
    selected: int
    kept: int
    folder: str
    accuracy: Rate | None = None
    spent: Spent = Spent()


class StageEntered(Event):
    """An attempt is in this stage now."""

    key: AttemptKey
    stage: Stage
    try_number: int


class AttemptRetried(Event):
    """A try ended in a transient error; another follows."""

    key: AttemptKey
    try_number: int
    error: str


class AttemptEnded(Event):
    """An attempt is stored. `accuracy` is the run's so far, over graded attempts, as is what it has `spent`."""

    key: AttemptKey
    record: AttemptRecord
    accuracy: Rate
    spent: Spent = Spent()


class RunInterrupted(Event):
    """A signal came. `hard`: running attempts are being cut; else they may finish."""

    hard: bool
    reason: str


class RunEnded(Event):
    """All is written. `summary` is None when the run broke."""

    summary: RunSummary | None
    folder: str
