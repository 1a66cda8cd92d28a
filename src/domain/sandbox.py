"""What a sandbox is asked for, what is run in it, and what came of it."""

from datetime import datetime
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from .value import Value

DEFAULT_MAX_OUTPUT_BYTES = 1024 * 1024
LONGEST_TIMEOUT_S = 366 * 24 * 3600


def _settable(variables: dict[str, str]) -> dict[str, str]:
    for name, value in variables.items():
        if not name or "=" in name or "\0" in name:
            raise ValueError(f"{name!r} is no name of an environment variable")
        if "\0" in value:
            raise ValueError(f"the value of {name!r} has a NUL byte, which no environment variable can have")
    return variables


def _text_of_count(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _image_name(name: str) -> str:
    if not name or any(character.isspace() for character in name):
        raise ValueError(f"{name!r} is no name of an image, as in 'debian:12'")
    return name


def _absolute(path: PurePosixPath) -> PurePosixPath:
    if not path.is_absolute():
        raise ValueError(f"{str(path)!r} is not an absolute path")
    return path


ImageName = Annotated[str, AfterValidator(_image_name)]
"""As the registry, or the provider, knows it."""
Variables = Annotated[dict[str, str], AfterValidator(_settable)]
"""Environment variables that can be set."""
AbsolutePath = Annotated[PurePosixPath, AfterValidator(_absolute)]
"""Of a sandbox."""
Gpu = Annotated[str, BeforeValidator(_text_of_count, json_schema_input_type=str | int)]
"""A count may be given as a number."""


class Network(StrEnum):
    """What a sandbox may reach."""

    PUBLIC = "public"
    NONE = "none"


class ImageBuild(Value):
    """An image to be built from a folder; its identity is the folder's content."""

    context: Path
    dockerfile: str = "Dockerfile"
    timeout_s: float = Field(default=600, gt=0, le=LONGEST_TIMEOUT_S)
    limit: str = "build.timeout_s"
    """What `timeout_s` is called where the user sets it."""


class SandboxSpec(Value):
    """One sandbox, wholly described. The names are those of the settings, so that layers merge by key."""

    image: ImageName | None = None
    """Registry image; None where the environment runs without one or builds one."""
    named_image: str | None = None
    """An image published under a name at the provider (Modal)."""
    build: ImageBuild | None = None
    """Build the image when neither `image` nor `named_image` is given."""
    workspace_root: AbsolutePath | None = None
    """Absolute working directory of every command, made if missing; None is the image's own."""
    env_variables: Variables = Field(default_factory=dict)
    """Set for every command. Never secrets."""
    user: str | None = None
    """User of commands that name none; None is the image's own."""
    cpu: float | None = Field(default=None, gt=0)
    """Cores."""
    memory: int | None = Field(default=None, gt=0)
    """MiB."""
    gpu: Gpu | None = None
    """Type and count as in `A100:2`, or a bare count."""
    region: str | None = None
    platform: str | None = None
    """As in `linux/amd64`; None is the engine's own."""
    network: Network = Network.PUBLIC
    timeout: float = Field(default=3600, gt=0, le=LONGEST_TIMEOUT_S)
    """Lifetime in seconds, after which the sandbox ends by itself."""
    idle_timeout: float | None = Field(default=None, gt=0)
    """Seconds without activity after which the provider may end it."""
    directories: tuple[AbsolutePath, ...] = ()
    """Absolute directories made at start, writable by every user."""


class SandboxOwner(Value):
    """Who started a sandbox; written on it as labels or tags, so that what a dead run left can be told and stopped."""

    run_id: str
    task_id: str
    attempt: int
    try_number: int = 1
    purpose: str = "agent"
    """`agent` or `grade`."""
    host: str
    """Identifies the machine and process namespace of `process`."""
    process: str
    """Identifies the process beyond reuse of its pid (pid and start time)."""


class Command(Value):
    """One command: either `argv`, or a `script` for bash (for sh where the sandbox has no bash)."""

    argv: tuple[str, ...] = ()
    script: str | None = None
    cwd: PurePosixPath | None = None
    """None is the sandbox's workspace root."""
    env: dict[str, str] = Field(default_factory=dict)
    user: str | None = None
    """None is the spec's user."""
    stdin: bytes | None = None
    """None is /dev/null."""
    timeout_s: float = Field(gt=0)
    max_output_bytes: int = Field(default=DEFAULT_MAX_OUTPUT_BYTES, gt=0)
    """Of each stream at most this much is kept: head and tail, half each."""

    @model_validator(mode="after")
    def _one_form(self) -> "Command":
        if bool(self.argv) == (self.script is not None):
            raise ValueError("a command is either an argv or a script")
        return self


class ExecResult(Value):
    """What a command did. That it failed or timed out is a result; that the provider failed is an error."""

    exit_code: int | None
    """128 + n after signal n; None when the command timed out."""
    stdout: str
    stderr: str
    truncated: bool = False
    stdout_bytes: int = 0
    """Bytes printed, kept or not."""
    stderr_bytes: int = 0
    timed_out: bool = False
    duration_s: float

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with status 0."""
        return self.exit_code == 0


class Capabilities(Value):
    """What specs an environment can honour; asked before anything starts."""

    images: bool = False
    """Runs registry images."""
    builds: bool = False
    """Builds images from a Dockerfile."""
    named_images: bool = False
    networks: frozenset[Network] = frozenset({Network.PUBLIC})
    users: bool = False
    """Can run a command as another user."""
    resources: frozenset[str] = frozenset()
    """Which of `cpu`, `memory`, `gpu`, `region`, `platform`, `idle_timeout` it enforces."""
    isolated: bool = True
    """Commands cannot touch the runner's own machine."""


class Check(Value):
    """One line of `doctor`."""

    name: str
    ok: bool
    detail: str
    hint: str = ""
    """The next step when not ok."""
    is_advice: bool = False
    """Sandboxes start all the same when it is not ok; any other check that is not ok refuses a run."""
    only_starting: bool = False
    """Says nothing of sandboxes that are there: `cleanup` goes on when it is not ok, as it does with advice."""


class SweepSelector(Value):
    """Which sandboxes to stop: of ended processes or past their expiry, and of one run where `run_id` is set."""

    run_id: str | None = None
    host: str
    """This machine, as in SandboxOwner.host; another machine's sandboxes go by their expiry alone."""
    now: datetime


class SweptSandbox(Value):
    """One sandbox that a sweep stopped, or failed to (`error`)."""

    environment: str
    id: str
    run_id: str
    task_id: str
    error: str = ""
