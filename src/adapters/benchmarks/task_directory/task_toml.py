"""task.toml of the task-directory format: every field, each honoured or refused by name."""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, StrictInt, StrictStr, ValidationError
from pydantic_core import ErrorDetails

from ....domain.suggest import nearest
from ....domain.value import Value
from .task_fields import (
    VARIABLE,
    AbsolutePath,
    Delay,
    HostList,
    Image,
    Linux,
    MiB,
    NetworkMode,
    NoGpus,
    NoPatterns,
    Number,
    Seconds,
    Shared,
    Size,
    TaskName,
    User,
    Variables,
    Version,
    refused,
)


class TaskProblems(Exception):
    """What is wrong with one file, a line each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class TaskSection(Value):
    """[task]: the identity in a registry; recorded, not interpreted."""

    name: TaskName
    version: StrictStr | None = None
    description: StrictStr = ""
    authors: tuple[dict[str, StrictStr], ...] = ()
    keywords: tuple[StrictStr, ...] = ()


class AgentSection(Value):
    """[agent]"""

    timeout_sec: Seconds | None = None
    user: User | None = None
    network_mode: NetworkMode | None = None
    allowed_hosts: HostList = None


class CollectHook(Value):
    """[[verifier.collect]]: run after the agent has ended, before artifacts are taken; a failure is logged only."""

    command: Annotated[StrictStr, Field(min_length=1)]
    service: Literal["main"] = "main"
    timeout_sec: Seconds = 60
    user: User | None = None


class VerifierSection(Value):
    """[verifier]"""

    timeout_sec: Seconds = 600
    env: Variables = Field(default_factory=dict)
    user: User | None = None
    network_mode: NetworkMode | None = None
    allowed_hosts: HostList = None
    environment_mode: Shared = "shared"
    environment: Annotated[None, refused("a separate verifier environment")] = None
    collect: tuple[CollectHook, ...] = ()


class HealthCheck(Value):
    """[environment.healthcheck]: must pass before the agent starts; `retries` failures in a row are an error."""

    command: Annotated[StrictStr, Field(min_length=1)]
    interval_sec: Delay = 5
    timeout_sec: Seconds = 30
    start_period_sec: Delay = 0
    start_interval_sec: Delay = 5
    retries: Annotated[StrictInt, Field(ge=1, le=1000)] = 3

    @property
    def longest_s(self) -> float:
        """Seconds after which it has passed or failed, at the latest."""
        return self.start_period_sec + (self.retries + 1) * (self.interval_sec + self.timeout_sec)


class EnvironmentSection(Value):
    """[environment]"""

    build_timeout_sec: Seconds = 600
    docker_image: Image | None = None
    os: Linux = "linux"
    cpus: Number | None = None
    memory: Size = None
    memory_mb: MiB | None = None
    storage: Size = None
    storage_mb: MiB | None = None
    gpus: NoGpus = None
    gpu_types: Annotated[None, refused("GPU types")] = None
    tpu: Annotated[None, refused("TPUs")] = None
    env: Variables = Field(default_factory=dict)
    workdir: AbsolutePath | None = None
    network_mode: NetworkMode | None = None
    allowed_hosts: HostList = None
    allow_internet: Annotated[bool, Field(strict=True)] | None = None
    mcp_servers: Annotated[None, refused("MCP servers")] = None
    skills_dir: Annotated[None, refused("a folder of skills")] = None
    healthcheck: HealthCheck | None = None

    @property
    def network(self) -> str:
        """`public` or `no-network`; `network_mode` outranks the older `allow_internet`."""
        return self.network_mode or ("no-network" if self.allow_internet is False else "public")

    @property
    def memory_mib(self) -> int | None:
        """The limit, by either name."""
        return self.memory_mb or self.memory

    @property
    def storage_mib(self) -> int | None:
        """A request, by either name: recorded and shown, as container engines cannot enforce it."""
        return self.storage_mb or self.storage


class SolutionSection(Value):
    """[solution]"""

    env: Variables = Field(default_factory=dict)


class Artifact(Value):
    """A path to keep after the agent has ended, and where to keep it (below the attempt's artifacts)."""

    source: Annotated[StrictStr, Field(min_length=1)]
    destination: StrictStr | None = None
    exclude: NoPatterns = ()
    service: Literal["main"] = "main"


def _artifact(value: Any) -> Any:
    return {"source": value} if isinstance(value, str) else value


class TaskToml(Value):
    """The whole file."""

    schema_version: Version | None = None
    version: Version | None = None
    """The older name of `schema_version`."""
    source: StrictStr | None = None
    artifacts: tuple[Annotated[Artifact, BeforeValidator(_artifact)], ...] = ()
    multi_step_reward_strategy: Annotated[None, refused("multi-step tasks")] = None
    steps: Annotated[None, refused("multi-step tasks")] = None
    task: TaskSection | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    agent: AgentSection = AgentSection()
    verifier: VerifierSection = VerifierSection()
    environment: EnvironmentSection = EnvironmentSection()
    solution: SolutionSection = SolutionSection()


def parse_task_toml(text: str) -> TaskToml:
    """The file's content, checked.

    Raises:
        TaskProblems: each as `:LINE: reason` for broken TOML, else as ` FIELD: reason`.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise TaskProblems([_syntax_problem(str(exc), text)]) from exc
    except (RecursionError, ValueError) as exc:
        raise TaskProblems([f": not TOML: {str(exc) or type(exc).__name__}"]) from exc
    try:
        parsed = TaskToml.model_validate(data)
    except ValidationError as exc:
        raise TaskProblems([_field_problem(error) for error in exc.errors(include_url=False)]) from exc
    problems = list(_conflicts(parsed))
    if problems:
        raise TaskProblems(problems)
    return parsed


def _syntax_problem(message: str, text: str) -> str:
    line = re.search(r"\(at line (\d+), column \d+\)", message)
    number = line[1] if line else str(text.count("\n") + 1)
    return f":{number}: {re.sub(r' *[(]at [^)]*[)]$', '', message)}"


def _field_problem(error: ErrorDetails) -> str:
    path = [part for part in error["loc"] if isinstance(part, int) or VARIABLE.fullmatch(part) or len(part) == 1]
    shown = ".".join(str(part) for part in error["loc"] if not _is_type_tag(part))
    if error["type"] == "extra_forbidden":
        return f" {shown}: unknown field{_nearest([str(part) for part in path])}"
    own = error["type"] == "task_format"
    return f" {shown}: {error['msg'] if own else error['msg'][:1].lower() + error['msg'][1:]}"


def _is_type_tag(part: int | str) -> bool:
    return isinstance(part, str) and ("[" in part or part in {"str", "int", "constrained-str", "constrained-int"})


def _nearest(path: list[str]) -> str:
    *section, name = path or [""]
    known = list(_known_fields(TaskToml))
    prefix = "".join(f"{part}." for part in section if not part.isdigit())
    siblings = [field for field in known if field.startswith(prefix) and "." not in field[len(prefix) :]]
    elsewhere = nearest(prefix + name, siblings) or [field for field in known if field.rpartition(".")[2] == name]
    return f", did you mean {elsewhere[0]!r}?" if elsewhere else ""


def _known_fields(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield prefix + name
        for nested in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(nested, type) and issubclass(nested, BaseModel):
                yield from _known_fields(nested, f"{prefix}{name}.")


_CONFLICTS: tuple[tuple[Callable[[TaskToml], bool], str], ...] = (
    (lambda t: t.version is not None and t.schema_version is not None, " version: schema_version is given too"),
    (
        lambda t: t.environment.memory is not None and t.environment.memory_mb is not None,
        " environment.memory: memory_mb is given too",
    ),
    (
        lambda t: t.environment.storage is not None and t.environment.storage_mb is not None,
        " environment.storage: storage_mb is given too",
    ),
    (
        lambda t: t.agent.network_mode not in (None, t.environment.network),
        " agent.network_mode: a network that differs from the environment's: not supported",
    ),
    (
        lambda t: t.verifier.network_mode not in (None, t.environment.network),
        " verifier.network_mode: a network that differs from the environment's: not supported",
    ),
)


def _conflicts(parsed: TaskToml) -> Iterator[str]:
    yield from (message for conflicting, message in _CONFLICTS if conflicting(parsed))
    for number, artifact in enumerate(parsed.artifacts):
        reason = _artifact_problem(artifact, parsed.environment.workdir)
        if reason:
            yield f" artifacts.{number}: {reason}"


def _artifact_problem(artifact: Artifact, workdir: str | None) -> str:
    source, target = PurePosixPath(artifact.source), PurePosixPath(artifact.destination or "kept")
    if ".." in source.parts or "\0" in artifact.source:
        return f"source {artifact.source!r} has '..'"
    if not source.is_absolute() and workdir is None:
        return f"source {artifact.source!r} is relative and there is no environment.workdir"
    if target.is_absolute() or ".." in target.parts or "\0" in str(target) or str(target) in {".", "manifest.json"}:
        return f"destination {artifact.destination!r} is not a relative path of its own"
    return ""


_REFERENCE = re.compile(r"\$\{([^}]*)\}")
_NAME_AND_DEFAULT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


def interpolated(env: Mapping[str, str], variables: Mapping[str, str], section: str) -> dict[str, str]:
    """`env` with ${NAME} and ${NAME:-default} resolved from `variables`, and from nowhere else.

    Raises:
        TaskProblems: every reference that has neither a variable nor a default.
    """
    problems: list[str] = []

    def resolve(match: re.Match[str]) -> str:
        reference = _NAME_AND_DEFAULT.fullmatch(match[1])
        if reference is None:
            problems.append(f"{match[0]!r} is not of the form ${{NAME}} or ${{NAME:-default}}")
            return ""
        if reference[1] not in variables and reference[2] is None:
            problems.append(f"{match[0]} needs the benchmark parameter variables.{reference[1]}")
        return variables.get(reference[1]) or reference[2] or ""

    result: dict[str, str] = {}
    lines: list[str] = []
    for name, value in env.items():
        result[name] = _REFERENCE.sub(resolve, value)
        lines += [f" {section}.{name}: {problem}" for problem in problems]
        problems.clear()
    if lines:
        raise TaskProblems(lines)
    return result
