"""Prompts, limits and the action mode: the package's own config files, with the user's parameters over them."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, ConfigDict, Field, ValidationError, model_validator

from ....domain.errors import ConfigError
from ....domain.local_path import local_path
from ....domain.model import Price
from ....domain.one_line import one_line
from ....domain.redaction import variable_secrets
from ....domain.sandbox import LONGEST_TIMEOUT_S, Variables
from ....domain.suggest import did_you_mean
from ....domain.value import Parameters, Value, first_fault
from .package import checked_regex, checked_template, package_folder

DEFAULT_CONFIG = "mini"
TEXT_TWIN = {"mini": "mini_textbased", "swebench": "swebench_backticks"}
"""The package's config that says the same as another in text mode."""
DEFAULT_COMMAND_LIMIT_S = 30.0
"""The package's own default."""
UNAME = ("system", "node", "release", "version", "machine")
_ACTION_REGEX = r"```mswea_bash_command\s*\n(.*?)\n```"
_OBSERVATION = "{{output.exception_info}}\n<returncode>{{output.returncode}}</returncode>\n{{output.output}}"
_PROMPTS = ("system_template", "instance_template")
_JINJA_BLOCK = re.compile(r"\{[{%].*?[%}]\}", re.DOTALL)

_UNREADABLE = (OSError, ValueError, LookupError, AttributeError, RecursionError, yaml.YAMLError)
"""What reading a file of YAML raises: PyYAML converts what has an explicit tag without checking it."""

Template = Annotated[str, AfterValidator(checked_template)]
Regex = Annotated[str, AfterValidator(checked_regex)]
CommandLimit = Annotated[float, Field(gt=0, le=LONGEST_TIMEOUT_S)]


class MiniSweAgentParameters(Parameters):
    """None is what the package's config says."""

    config: str | None = None
    """A config of the package (`mini`, `swebench`, ...) or a file; None is the benchmark's choice, else `mini`."""
    action_mode: Literal["tool_call", "text"] | None = None
    """How the model acts: by tool calls, or by one fenced command in its text."""
    step_limit: int | None = Field(default=None, ge=0)
    """Model calls of an attempt; 0 is no limit."""
    cost_limit: float | None = Field(default=None, ge=0)
    """USD of an attempt; 0 is no limit. Needs a model whose price is known."""
    max_consecutive_format_errors: int | None = Field(default=None, ge=0)
    timeout: CommandLimit | None = None
    """Seconds that one command may take."""
    system_template: Template | None = None
    instance_template: Template | None = None
    observation_template: Template | None = None
    format_error_template: Template | None = None
    action_regex: Regex | None = None
    """Finds the command in a reply, in text mode."""
    env: Variables = Field(default_factory=dict)
    """Variables of every command, over the config's and the benchmark's."""
    interpreter: tuple[str, ...] | None = None
    """What runs a command, which becomes its last argument; None is bash."""
    max_output_bytes: int = Field(default=256 * 1024, gt=0)
    """Kept of each command's output; the templates show the model less."""


class Section(Value):
    """Of a config file, checked before anything starts. What is not used is not looked at; null is as if left out."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _mapping(cls, value: object) -> object:
        if not isinstance(value, dict | None):
            raise ValueError("expected a mapping")
        return value or {}


class AgentSection(Section):
    """Those of the package's AgentConfig that a file may set."""

    system_template: Template | None = None
    instance_template: Template | None = None
    step_limit: int | None = None
    cost_limit: float | None = None
    wall_time_limit_seconds: int | None = None
    max_consecutive_format_errors: int | None = None


class ModelSection(Section):
    """How replies are read, and commands shown."""

    observation_template: Template | None = None
    format_error_template: Template | None = None
    action_regex: Regex | None = None


class EnvironmentSection(Section):
    """How commands run."""

    env: Variables | None = None
    timeout: CommandLimit | None = None
    interpreter: list[str] | None = None


class ConfigFile(Section):
    """As the package's own config files are."""

    agent: AgentSection = AgentSection()
    model: ModelSection = ModelSection()
    environment: EnvironmentSection = EnvironmentSection()


@dataclass(frozen=True)
class AgentSettings:
    """One config, resolved."""

    name: str
    config_sha256: str | None
    """Of the user's own file; None where the config is the package's."""
    agent: dict[str, Any]
    """Keyword arguments of the package's agent; `cost_limit` as the config says."""
    observation_template: str
    format_error_template: str
    text_mode: bool
    action_regex: str
    env: dict[str, str]
    user_env: dict[str, str]
    command_limit_s: float
    interpreter: tuple[str, ...]
    """Empty is bash."""
    max_output_bytes: int
    needs_uname: bool
    """A template names the machine that commands run on."""
    explicit_cost_limit: float | None

    def cost_limit(self, price: Price | None) -> float:
        """The limit in USD, 0 for none: the config's own holds only where the price is known.

        Raises:
            ConfigError: the user set a limit that cannot be watched.
        """
        refuse_unwatched(self.explicit_cost_limit, price)
        return float(self.agent.get("cost_limit", 3.0)) if price is not None else 0.0


def refuse_unwatched(cost_limit: float | None, price: Price | None) -> None:
    """Raise ConfigError for a cost limit on a model whose price is not known."""
    if cost_limit and price is None:
        raise ConfigError(
            f"cost_limit {cost_limit:g} cannot be watched: the model's price is not known",
            hint="give the model's price, or use step_limit",
        )


def resolve_settings(parameters: MiniSweAgentParameters, wanted: str | None) -> AgentSettings:
    """The settings of an attempt; `wanted` is the config that the benchmark asks for.

    Raises:
        ConfigError: no such config, it lacks a prompt, or the first of its values that does not fit.
    """
    name = parameters.config or _in_mode(wanted or DEFAULT_CONFIG, parameters.action_mode)
    config, digest = _read(name)
    environment = config.environment
    agent = config.agent.model_dump(exclude_none=True)
    agent |= _given(parameters, "step_limit", "cost_limit", "max_consecutive_format_errors", *_PROMPTS)
    model = config.model.model_dump(exclude_none=True)
    model |= _given(parameters, "observation_template", "format_error_template", "action_regex")
    for key in _PROMPTS:
        if key not in agent:
            raise ConfigError(f"mini-swe-agent config {name!r} has no agent.{key}", hint=f"set {key}")
    observation = model.get("observation_template", _OBSERVATION)
    texts = (agent["system_template"], agent["instance_template"], observation)
    interpreter = parameters.interpreter or tuple(environment.interpreter or ())
    return AgentSettings(
        name=name,
        config_sha256=digest,
        agent=agent,
        observation_template=observation,
        format_error_template=model.get("format_error_template", "{{ error }}"),
        text_mode=_is_text_mode(parameters, agent, model),
        action_regex=model.get("action_regex", _ACTION_REGEX),
        env=dict(environment.env or {}),
        user_env=dict(parameters.env),
        command_limit_s=parameters.timeout or environment.timeout or DEFAULT_COMMAND_LIMIT_S,
        interpreter=() if interpreter == ("bash", "-c") else interpreter,
        max_output_bytes=parameters.max_output_bytes,
        needs_uname=any(map(_names_machine, texts)),
        explicit_cost_limit=parameters.cost_limit,
    )


def _in_mode(name: str, mode: str | None) -> str:
    return TEXT_TWIN.get(name, name) if mode == "text" else name


def _is_text_mode(parameters: MiniSweAgentParameters, agent: Mapping[str, Any], model: Mapping[str, Any]) -> bool:
    if parameters.action_mode is not None:
        return parameters.action_mode == "text"
    return "action_regex" in model or "mswea_bash_command" in agent["system_template"] + agent["instance_template"]


def _names_machine(template: str) -> bool:
    blocks = " ".join(_JINJA_BLOCK.findall(template))
    return any(re.search(rf"\b{name}\b", blocks) for name in UNAME)


def _given(parameters: MiniSweAgentParameters, *names: str) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(parameters, name)) is not None}


def _read(name: str) -> tuple[ConfigFile, str | None]:
    """The config, and the SHA-256 of its file where it is the user's own."""
    path = _find(name)
    try:
        data = path.read_bytes()
        content = yaml.safe_load(data.decode("utf-8"))
    except _UNREADABLE as exc:
        raise ConfigError(f"mini-swe-agent config {name!r} cannot be read: {_told(exc)}") from exc
    try:
        config = ConfigFile.model_validate(content)
    except ValidationError as exc:
        raise ConfigError(f"mini-swe-agent config {name!r}: {one_line(first_fault(exc))}") from None
    if any(variable_secrets(config.environment.env or {})):
        raise ConfigError(
            f"mini-swe-agent config {name!r}: environment.env holds a secret, which would not be masked in results",
            hint="give that variable as `env` of the harness's parameters",
        )
    is_shipped = path.is_relative_to(package_folder())
    return config, None if is_shipped else hashlib.sha256(data).hexdigest()


def _told(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return one_line(f"line {error.problem_mark.line + 1}: {error.problem}")
    return "nested too deeply" if isinstance(error, RecursionError) else one_line(str(error))


def _find(name: str) -> Path:
    """As the package, which looks for a file first; a bare name is the package's own, whatever lies here."""
    root = package_folder() / "config"
    shipped = {
        path.stem: path for folder in (root, root / "extra", root / "benchmarks") for path in folder.glob("*.yaml")
    }
    stem, path = name.removesuffix(".yaml"), local_path(name)
    if path.is_file() and name not in shipped:
        return path
    if stem in shipped:
        return shipped[stem]
    hint = did_you_mean(stem, shipped, otherwise=f"a file, or one of {', '.join(sorted(shipped))}")
    raise ConfigError(f"no mini-swe-agent config {name!r}", hint=hint)
