"""The five ports, and the three that a run itself needs.

Each adapter class names its settings section as `Parameters`, a subclass of `domain.value.Parameters`, and is built
from an instance of it (see each port). A lifetime is an `async with`. What the world did is a result; what a
provider failed to do is an error of `domain.errors`. Whatever else a method raises, also an exit or a cancellation
that nobody asked for, is taken for its own fault.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Protocol

from pydantic import JsonValue

from .attempt import AttemptContext, AttemptKey, AttemptRecord, HarnessResult, Step
from .events import Event
from .model import ModelRequest, ModelResponse, Price
from .run import RunInfo, RunSummary
from .sandbox import Capabilities, Check, Command, ExecResult, SandboxOwner, SandboxSpec, SweepSelector, SweptSandbox
from .task import Grade, GradingMode, PreparedTask, Submission, Task, TaskSelection
from .value import Parameters


class Sandbox(Protocol):
    """One running machine, alive from `Environment.open`'s enter to its exit. Calls may run side by side.

    Paths that are relative begin at the workspace root. Where absolute ones are not those that commands see, as in a
    folder, every command has the variable AGENTCOMPASS_ROOT: put before a path, it makes the one that commands see.
    """

    @property
    def id(self) -> str:
        """The provider's own id."""

    @property
    def image(self) -> str | None:
        """What it runs, as a user would name it; None where there is no image."""

    @property
    def image_digest(self) -> str | None:
        """The content of that image, where the provider tells."""

    async def exec(self, command: Command) -> ExecResult:
        """Run one command, once, to its end; never retried behind the caller's back.

        The call returns when the command's first process has ended, whatever daemons it left. One that outlives
        `timeout_s` is killed with all its children (`timed_out`, with what it had printed). Of each stream at most
        `max_output_bytes` are kept, head and tail, cut at character boundaries (`truncated`), and gigabytes may pass.
        Text is decoded once, as UTF-8 with replacement. Scripts and arguments of any length work. A program that does
        not exist is exit code 127, one that is not executable 126. Without its `cwd` nothing runs, with exit code 1. A
        script is run by bash, by sh where there is none. Cancelling the call kills the command likewise.

        Raises:
            SandboxLost: the sandbox died under it.
            SandboxFailed: the provider failed the call.
        """

    async def upload(self, source: Path, target: PurePosixPath) -> None:
        """Copy a local file to the path `target`, or a folder's content into it; parents are made, modes kept.

        Owned by root where there is one, and readable as their modes say. Symbolic links stay links.

        Raises:
            FileNotFoundError: no `source`.
            SandboxLost, SandboxFailed: as for exec.
        """

    async def download(self, source: PurePosixPath, target: Path) -> None:
        """Copy a file to the local path `target`, or a folder's content into it. Nothing is written outside `target`.

        Raises:
            FileNotFoundError: no `source` in the sandbox.
            SandboxLost, SandboxFailed: as for exec.
        """

    async def read_bytes(self, path: PurePosixPath, max_bytes: int) -> bytes:
        """The whole file.

        Raises:
            FileNotFoundError: no such file.
            ValueError: it is larger than `max_bytes`, or no regular file.
            SandboxLost, SandboxFailed: as for exec.
        """

    async def write_bytes(self, path: PurePosixPath, data: bytes, mode: int = 0o644) -> None:
        """Create or replace a file; parents are made. Raises as `upload`."""

    async def kill_processes(self) -> None:
        """Kill every process that commands have left running; the sandbox and its files stay. Raises as exec."""


class Environment(Protocol):
    """A provider of sandboxes. Built as `Class(parameters)`; nothing is contacted before the first call."""

    name: ClassVar[str]
    capabilities: ClassVar[Capabilities]
    Parameters: ClassVar[type[Parameters]]
    """Fields named as those of `SandboxSpec` are sandbox parameters: a recipe may set them, the user overrides it."""

    def secrets(self) -> Collection[str]:
        """Credentials found outside the parameters, so that they are masked wherever anything is written.

        Raises:
            ConfigError: there are none, or they are unfit; nothing has been started yet.
        """

    async def check(self) -> list[Check]:
        """What `doctor` shows: is the provider there, which one, who are we; never raises, at most 10 s.

        A run asks once, before it starts anything, and is refused by a check that is neither ok nor advice: one that
        says that no sandbox can start.
        """

    def open(self, spec: SandboxSpec, owner: SandboxOwner) -> AbstractAsyncContextManager[Sandbox]:
        """Start a sandbox, and stop it on exit, on every path, also when cancelled in the middle of creation.

        It carries `owner` and its expiry as labels from the moment it exists, and ends by itself after `spec.timeout`.
        Start-up is retried on `retryable` errors. A failed stop is logged as `sandbox.leaked`, never raised.

        Raises (on enter):
            ConfigError: the spec asks for what this environment cannot do.
            SandboxStartFailed: it cannot start as specified.
            SandboxBusy: still busy after the retries.
        """

    async def sweep(self, selector: SweepSelector) -> list[SweptSandbox]:
        """Stop what `selector` selects, among sandboxes that this tool labelled; one failure does not end the sweep."""

    async def close(self) -> None:
        """Let connections go. Sandboxes are not touched. A failure is logged by the caller; it ends nothing."""


class Model(Protocol):
    """An endpoint that answers. Built as `Class(parameters, endpoint)` with a `ModelEndpoint`."""

    Parameters: ClassVar[type[Parameters]]

    @property
    def name(self) -> str:
        """As the user gave it."""

    @property
    def price(self) -> Price | None:
        """None when unknown: cost is then null."""

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """One answer to the whole conversation; retried inside on 429, 5xx and lost connections only.

        Raises:
            ModelBusy: still failing after the retries.
            ModelRefused: refused for good (401, 400, unknown model).
            ContextExceeded: the conversation is too long.
            BudgetSpent: the account has no money left.
        """

    async def close(self) -> None:
        """Let connections go; as `Environment.close`."""


class Harness(Protocol):
    """An agent program. Built as `Class(parameters)`; one instance serves all attempts, side by side."""

    Parameters: ClassVar[type[Parameters]]
    needs_sandbox: ClassVar[bool]
    needs_model: ClassVar[bool]

    def exposes_model(self) -> bool:
        """Whether the agent program is given the endpoint and calls it by itself: what it spends is then unknown."""

    def files(self) -> Mapping[str, JsonValue]:
        """The content of local files that make the agent, a SHA-256 each (never a path): part of the run's identity.

        Raises:
            ConfigError: one cannot be read.
        """

    async def run(
        self, task: PreparedTask, sandbox: Sandbox | None, model: Model | None, context: AttemptContext
    ) -> HarnessResult:
        """Work on the task until it is submitted or a limit is reached; each step goes to `context.record_step`.

        The caller cancels the call at the agent's time limit. Limits and the agent's own failures are results.

        Raises:
            HarnessFailed: the harness broke.
            SandboxLost, SandboxFailed, ModelBusy, ModelRefused, BudgetSpent: as they came.
        """


class Benchmark(Protocol):
    """A source of tasks and their verdicts. Built as `Class(parameters, data_dir)`; `data_dir` may cache data.

    No sandbox is opened that nobody needs. `prepare` and `collect` have one where the harness needs it or grading is
    SAME. `grade` has that one where grading is SAME, a new one where it is FRESH and the submission is not empty
    (`content` is not b""); else `sandbox` is None.
    """

    name: ClassVar[str]
    grading: ClassVar[GradingMode]
    Parameters: ClassVar[type[Parameters]]

    async def load_tasks(self, selection: TaskSelection) -> Sequence[Task]:
        """The selected tasks, validated whole, in upstream's order (or as `sample_ids` asks).

        Raises:
            ConfigError: unknown id (with its nearest), missing data, a field of a task that is not supported.
        """

    def dataset(self) -> Mapping[str, JsonValue]:
        """After load_tasks: what the data is (path, revision); stored in run_info, and part of the run's identity."""

    async def prepare(self, task: Task, sandbox: Sandbox | None, context: AttemptContext) -> PreparedTask:
        """Make the sandbox ready for an agent: what it must not see is gone, and that is checked."""

    async def collect(
        self, task: PreparedTask, sandbox: Sandbox | None, result: HarnessResult | None, context: AttemptContext
    ) -> Submission:
        """The agent's work, byte for byte. `result` is None when the agent was cut at a limit."""

    async def grade(
        self, task: PreparedTask, submission: Submission, sandbox: Sandbox | None, context: AttemptContext
    ) -> Grade:
        """The verdict.

        Raises:
            VerifierFailed: the verifier could not run, or left no verdict.
            BenchmarkBroken: the data or grader is broken.
            SandboxLost, SandboxFailed: as they came.
        """


class Recipe(Protocol):
    """What a (benchmark, environment) pair needs that neither should know of the other. A pure function, no I/O."""

    benchmarks: ClassVar[frozenset[str]]
    environments: ClassVar[frozenset[str] | None]
    """None is every environment."""

    def __call__(self, task: Task, capabilities: Capabilities) -> Mapping[str, Any]:
        """The fields of `SandboxSpec` that the task's metadata decides, for an environment of these `capabilities`.

        Raises:
            ConfigError: the task cannot run in such an environment.
        """


class ResultStore(Protocol):
    """Where a run is kept. Every call is durable when it returns.

    One that the disk refuses, or does not end, raises ResultsUnwritable; what was stored before is whole.
    """

    async def open(self, run: RunInfo) -> Iterator[tuple[AttemptKey, AttemptRecord]]:
        """Create the run's folder or take it up again, and lock it; yields, once, what is stored there.

        Taking up alone changes nothing that is stored: that the run was started once more is noted when an attempt
        begins.

        Raises:
            ConfigError: another identity is stored there (the keys that differ), the run is live in another process, or
                what is stored cannot be read now; the last also while it is yielded.
        """

    def begin_attempt(self, key: AttemptKey) -> Path:
        """A new try of `key` begins: earlier steps and logs are kept aside. Returns its log folder, made."""

    async def append_step(self, key: AttemptKey, step: Step) -> None:
        """Add a line to the attempt's trajectory."""

    async def save_attempt(self, key: AttemptKey, category: str, record: AttemptRecord) -> None:
        """Add an attempt to its task's file. A graded one is never replaced by one that is not."""

    async def save_summary(self, summary: RunSummary) -> Mapping[str, Path]:
        """Write the summaries and the end of run_info.json; returns the paths `run_info`, `summary`, `details`."""

    async def close(self) -> None:
        """Unlock. Called on every path."""


class Progress(Protocol):
    """A display. Never raises, never blocks for long; one that does raise misses that event, and the run goes on."""

    def on(self, event: Event) -> None:
        """Show `event`. RunStarted comes first; RunEnded comes last, on every path."""
