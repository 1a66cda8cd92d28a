"""One problem of a benchmark, from its data to its grade."""

import hashlib
from enum import StrEnum
from pathlib import Path, PurePosixPath

from pydantic import Field, JsonValue

from .sandbox import Command
from .value import Value

KNOWN_BAD = "known_bad"
"""In a task's `metadata`: why its own reference solution may fail; a summary tells it where the task has failed."""


class TaskSelection(Value):
    """Which tasks of a benchmark to run."""

    sample_ids: tuple[str, ...] = ()
    """Upstream ids, in the order asked for; empty is all. An unknown one is refused, naming its nearest neighbours."""
    limit: int | None = Field(default=None, gt=0)
    """Keep the first so many."""


class StageBudgets(Value):
    """Seconds that each stage of an attempt may take; `names` are the settings to raise, for messages."""

    start_s: float = Field(default=900, gt=0)
    """Pull or build, and start."""
    prepare_s: float = Field(default=300, gt=0)
    agent_s: float = Field(default=3600, gt=0)
    collect_s: float = Field(default=300, gt=0)
    grade_s: float = Field(default=1800, gt=0)
    names: dict[str, str] = Field(default_factory=dict)
    """Stage -> what the limit is called where the user sets it, as in `agent.timeout_sec`; else `STAGE_timeout_s`."""

    def seconds(self, stage: str) -> float:
        """The budget of `stage`."""
        return float(getattr(self, f"{stage}_s"))

    def name(self, stage: str) -> str:
        """What the user calls that budget."""
        return self.names.get(stage, f"{stage}_timeout_s")


class Task(Value):
    """One problem, by its upstream id. `metadata` is upstream's own; recipes read it."""

    id: str
    category: str = ""
    instruction: str
    budgets: StageBudgets = StageBudgets()
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    path: Path | None = None
    """The task's folder, where it has one."""
    checksum: str = ""
    """Of the task's data; a resumed run whose data changed is refused."""


class Solution(Value):
    """The reference solution: files to put into the sandbox, then a command to run. Only `oracle` applies it."""

    files: tuple[tuple[Path | bytes, PurePosixPath], ...] = ()
    """(local file or folder, or bytes) -> absolute target."""
    command: Command


class PreparedTask(Value):
    """A task whose sandbox is ready for an agent."""

    task: Task
    instruction: str
    workspace_root: PurePosixPath | None = None
    agent_user: str | None = None
    agent_env: dict[str, str] = Field(default_factory=dict)
    solution: Solution | None = None
    extra: dict[str, JsonValue] = Field(default_factory=dict)
    """What `prepare` found and later stages need (the base tree, say)."""


class Submission(Value):
    """What the agent leaves to be graded; `content` None means the sandbox's own state."""

    content: bytes | None = None
    extra: dict[str, JsonValue] = Field(default_factory=dict)

    @property
    def sha256(self) -> str | None:
        """Hex digest of the content; the same in the sandbox, stored and graded."""
        return None if self.content is None else hashlib.sha256(self.content).hexdigest()


class GradingMode(StrEnum):
    """Where a submission is graded."""

    FRESH = "fresh"
    """In a new sandbox."""
    SAME = "same"
    """In the agent's sandbox, as the agent left it."""
    NONE = "none"
    """Without a sandbox."""


class Grade(Value):
    """A verdict that the benchmark stands behind. That the verifier could not run is an error instead."""

    score: float = Field(allow_inf_nan=False)
    correct: bool
    extra: dict[str, JsonValue] = Field(default_factory=dict)
    """Stored as the attempt's `extra` (`verify_log`, `eval_raw_data`)."""
