"""A run: what is asked for, what is recorded of it, what it comes to."""

import re
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, Field, JsonValue

from .attempt import Status
from .model import NO_USAGE, ModelEndpoint, Usage
from .task import TaskSelection
from .value import Value

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def is_path_safe(value: str) -> bool:
    """Whether it can name a folder on every file system."""
    return _NAME.fullmatch(value) is not None


def _path_safe(value: str) -> str:
    if not is_path_safe(value):
        raise ValueError(f"{value!r} is not a name: use letters, digits, '.', '_' and '-', 100 at most")
    return value


RunLabel: TypeAlias = Annotated[str, AfterValidator(_path_safe)]
"""Names a folder, and nothing outside the one it is in."""


class RunRequest(Value):
    """Tasks x attempts under one set of settings, all layers merged.

    Of the environment's parameters the two halves stay apart, because a recipe's values go between them:
    `environment_defaults` < recipe < `environment_params`.
    """

    benchmark: str
    harness: str
    environment: str
    model: ModelEndpoint
    selection: TaskSelection = TaskSelection()
    k: int = Field(default=1, ge=1)
    """Attempts of each task."""
    benchmark_params: dict[str, Any] = Field(default_factory=dict)
    harness_params: dict[str, Any] = Field(default_factory=dict)
    model_params: dict[str, Any] = Field(default_factory=dict)
    environment_defaults: dict[str, Any] = Field(default_factory=dict)
    environment_params: dict[str, Any] = Field(default_factory=dict)
    enabled_recipes: tuple[str, ...] | None = None
    """None is every recipe that applies."""
    task_concurrency: int = Field(default=4, ge=1)
    max_retries: int = Field(default=1, ge=0)
    """Re-runs of an attempt after a transient error."""
    run_name: RunLabel
    run_id: RunLabel
    reuse: bool = True
    """Resume a stored run of the same id; False refuses it."""


class RunInfo(Value):
    """`run_info.json`, and what a resumed run is held against."""

    schema_version: int = 1
    run_name: RunLabel
    run_id: RunLabel
    identity: dict[str, JsonValue]
    """Everything that moves a score; a resume with another identity is refused, naming the keys that differ."""
    request: dict[str, JsonValue]
    """The whole request, secrets masked."""
    versions: dict[str, str] = Field(default_factory=dict)
    dataset: dict[str, JsonValue] = Field(default_factory=dict)
    """What the benchmark says of its data (revision, path)."""
    tasks: int | None = None
    """How many are selected."""
    host: str
    started_at: str
    ended_at: str | None = None


class Interval(Value):
    """A 95 % confidence interval of a rate."""

    low: float
    high: float


class Rate(Value):
    """`correct` of `total`, over tasks' attempts; `value` is None where nothing counts."""

    correct: int
    total: int
    value: float | None
    interval: Interval | None


class Counts(Value):
    """selected = correct + incorrect + errors + cancelled + not_run, always."""

    selected: int
    correct: int
    incorrect: int
    errors: int
    cancelled: int
    not_run: int


class Spent(Value):
    """What attempts have used together."""

    usage: Usage = NO_USAGE
    """The sum of what is known."""
    attempts_without_tokens: int = 0
    """So many have some input or output that is unknown: the sum is a lower bound where this is not 0."""
    attempts_without_cost: int = 0


class Unscored(Value):
    """An attempt that ended without a score."""

    task_id: str
    attempt: int
    status: Status
    error: str
    """Its first words, the stage first."""


class RunSummary(Value):
    """`summary.json`."""

    schema_version: int = 1
    run_name: str
    run_id: str
    benchmark: str
    harness: str
    model: str
    environment: str
    tasks: int
    attempts_per_task: int
    counts: Counts
    accuracy_graded: Rate
    """Over graded attempts."""
    accuracy_selected: Rate
    """Errors, cancelled and not run count as failures."""
    mean_score: float | None = None
    """Mean of the scores of graded attempts (partial credit)."""
    pass_at_k: dict[str, float] = Field(default_factory=dict)
    """k -> unbiased estimate; only where every selected task has at least k graded attempts."""
    by_category: dict[str, Rate] = Field(default_factory=dict)
    """Graded attempts by the tasks' category."""
    errors_by_kind: dict[str, int] = Field(default_factory=dict)
    """`stage: kind` -> count."""
    exit_reasons: dict[str, int] = Field(default_factory=dict)
    unscored: tuple[Unscored, ...] = ()
    """Errors and cancelled attempts, by task."""
    caveats: dict[str, str] = Field(default_factory=dict)
    """Task id -> why its own reference solution may fail; of the tasks with an attempt that is not correct."""
    usage: Usage = NO_USAGE
    """The known sum over all attempts, earlier tries included; null where nothing is known."""
    attempts_without_tokens: int = 0
    """Attempts of which some tokens are unknown: where this is not 0, `usage` is a lower bound."""
    attempts_without_cost: int = 0
    """As for the tokens."""
    timings: dict[str, float] = Field(default_factory=dict)
    """Mean seconds by stage over the attempts that ran it."""
    duration_percentiles: dict[str, float] = Field(default_factory=dict)
    """`p50` and `p90` of the attempts' `total` seconds."""
    wall_s: float | None = None
    """Seconds in which at least one attempt was at work, over all starts of the run; None when nothing ran."""
    started_at: str
    """Of the first attempt."""
    ended_at: str
    """Of the last attempt."""
    interrupted: bool = False


GRADED = frozenset({Status.COMPLETED})
"""What a resume keeps."""
