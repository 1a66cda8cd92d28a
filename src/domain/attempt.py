"""One try of one task: its steps, its outcome, its record on disk."""

from collections.abc import Awaitable, Callable
from enum import StrEnum
from pathlib import Path

from pydantic import Field, JsonValue, ValidationInfo, field_validator

from .model import NO_USAGE, ModelEndpoint, ToolCall, Usage
from .value import Value

SCHEMA_VERSION = 1


class Stage(StrEnum):
    """The stages of an attempt, in order."""

    START = "start"
    PREPARE = "prepare"
    AGENT = "agent"
    COLLECT = "collect"
    GRADE = "grade"
    STOP = "stop"


class Status(StrEnum):
    """How an attempt ended."""

    COMPLETED = "completed"
    """Graded: it has a score."""
    RUN_ERROR = "run_error"
    """An error before grading."""
    EVAL_ERROR = "eval_error"
    """An error in grading."""
    CANCELLED = "cancelled"


class ExitReason(StrEnum):
    """How the agent's work ended; each of these is collected and graded."""

    SUBMITTED = "submitted"
    FINISHED = "finished"
    """It ended by itself without a submission of its own."""
    STEP_LIMIT = "step_limit"
    COST_LIMIT = "cost_limit"
    TIME_LIMIT = "time_limit"
    CONTEXT_EXCEEDED = "context_exceeded"
    FORMAT_ERRORS = "format_errors"
    OUTPUT_LENGTH = "output_length"
    """The reply was cut at max_tokens too often."""
    AGENT_ERROR = "agent_error"
    """The agent program ended with a non-zero status."""


def is_whole(status: str, exit_reason: str | None) -> bool:
    """Whether the agent's work came to its end, as the record of its attempt says.

    What an error cut short is stored too, as it stood: a grade of it would be a score that nobody earned.
    """
    return status == Status.COMPLETED or (status != Status.RUN_ERROR and exit_reason is not None)


class AssistantContent(Value):
    """What the model said in a step."""

    content: str = ""
    reasoning_content: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()


class StepMetric(Value):
    """Tokens and milliseconds of one step; None is unknown."""

    prompt_tokens_len: int | None = None
    completion_tokens_len: int | None = None
    llm_infer_ms: float | None = None
    env_action_ms: float | None = None


class Step(Value):
    """One line of a trajectory. The two prompts are set where they are new: in the first step, as a rule."""

    step_id: int = Field(ge=1)
    system_prompt: str | None = None
    user_content: str | None = None
    assistant_content: AssistantContent = AssistantContent()
    observation: str | None = None
    metric: StepMetric = StepMetric()
    timestamp: str
    """ISO 8601, UTC."""


class HarnessResult(Value):
    """What a harness says of its own run. What the agent did to the sandbox is the benchmark's to collect."""

    exit_reason: ExitReason
    submission: bytes | None = None
    """What the agent handed in by its own protocol, byte for byte."""
    final_answer: str = ""
    extra: dict[str, JsonValue] = Field(default_factory=dict)
    """Stored in the attempt's `extra["harness"]` (versions, counts)."""


class AttemptContext:
    """What an attempt lends its harness and benchmark: a log folder, a step recorder, its ids.

    `log_dir` exists. `record_step` is durable when it returns. `endpoint` is for harnesses whose agent program calls
    the model by itself.
    """

    def __init__(
        self,
        *,
        run_id: str,
        task_id: str,
        attempt: int,
        log_dir: Path,
        time_limit_s: float,
        record_step: Callable[[Step], Awaitable[None]],
        endpoint: ModelEndpoint | None = None,
    ) -> None:
        self.run_id = run_id
        self.task_id = task_id
        self.attempt = attempt
        self.log_dir = log_dir
        self.time_limit_s = time_limit_s
        self.record_step = record_step
        self.endpoint = endpoint


class Failure(Value):
    """Why an attempt has no score."""

    stage: Stage
    kind: str
    """The error's class name."""
    limit: str | None = None
    """The setting whose limit was reached, where it was one."""
    elapsed_s: float
    transient: bool


class SandboxRecord(Value):
    """A sandbox that an attempt used."""

    environment: str
    id: str
    purpose: str = "agent"
    image: str | None = None
    image_digest: str | None = None


class EarlierTry(Value):
    """A try of this attempt that ended in an error and was followed by another."""

    error: str
    failure: Failure
    started_at: str | None = None
    ended_at: str
    usage: Usage = NO_USAGE


class AttemptKey(Value):
    """Which attempt."""

    task_id: str
    attempt: int = Field(ge=1)


class AttemptRecord(Value):
    """An attempt as stored: `details/TASK.json`, `attempts["N"]`. Unknown is null, never 0."""

    schema_version: int = SCHEMA_VERSION
    status: Status
    correct: bool = False
    score: float | None = Field(default=None, allow_inf_nan=False, validate_default=True)
    """None unless completed, and never then."""
    error: str = ""
    """Empty when completed."""
    exit_reason: ExitReason | None = None
    failure: Failure | None = None
    final_answer: str = ""
    submission_sha256: str | None = None
    usage: Usage = NO_USAGE
    timings: dict[str, float] = Field(default_factory=dict)
    """Seconds by stage, and `total`."""
    started_at: str
    ended_at: str
    sandboxes: tuple[SandboxRecord, ...] = ()
    tries: tuple[EarlierTry, ...] = ()
    trajectory: str | None = None
    """Path of the steps, relative to the run's folder; None when there were none."""
    artifacts: tuple[str, ...] = ()
    """Paths kept beside the record, relative to the run's folder."""
    extra: dict[str, JsonValue] = Field(default_factory=dict)

    @field_validator("score")
    @classmethod
    def _graded_has_a_score(cls, score: float | None, info: ValidationInfo) -> float | None:
        if score is None and info.data.get("status") is Status.COMPLETED:
            raise ValueError("a completed attempt has none")
        return score
