"""Prompts, limits and the action mode: the package's own config files, with the user's parameters over them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, field_validator

from ....domain.errors import ConfigError
from ....domain.model import Price
from ....domain.suggest import did_you_mean
from ....domain.value import Parameters
from .package import checked_regex, checked_template, package_folder

DEFAULT_CONFIG = "mini"
TEXT_TWIN = {"mini": "mini_textbased", "swebench": "swebench_backticks"}
"""The package's config that says the same as another in text mode."""
DEFAULT_COMMAND_LIMIT_S = 30.0
"""The package's own default."""
UNAME = ("system", "node", "release", "version", "machine")
_ACTION_REGEX = r"```mswea_bash_command\s*\n(.*?)\n```"
_OBSERVATION = "{{output.exception_info}}\n<returncode>{{output.returncode}}</returncode>\n{{output.output}}"
_TEMPLATES = ("system_template", "instance_template", "observation_template", "format_error_template")
_JINJA_BLOCK = re.compile(r"\{[{%].*?[%}]\}", re.DOTALL)


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
    timeout: float | None = Field(default=None, gt=0)
    """Seconds that one command may take."""
    system_template: str | None = None
    instance_template: str | None = None
    observation_template: str | None = None
    format_error_template: str | None = None
    action_regex: str | None = None
    """Finds the command in a reply, in text mode."""
    env: dict[str, str] = Field(default_factory=dict)
    """Variables of every command, over the config's and the benchmark's."""
    interpreter: tuple[str, ...] | None = None
    """What runs a command, which becomes its last argument; None is bash."""
    max_output_bytes: int = Field(default=256 * 1024, gt=0)
    """Kept of each command's output; the templates show the model less."""

    @field_validator(*_TEMPLATES)
    @classmethod
    def _template(cls, value: str | None) -> str | None:
        return value if value is None else checked_template(value)

    @field_validator("action_regex")
    @classmethod
    def _regex(cls, value: str | None) -> str | None:
        return value if value is None else checked_regex(value)


@dataclass(frozen=True)
class AgentSettings:
    """One config, resolved."""

    name: str
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
        ConfigError: no such config, or it lacks a prompt.
    """
    name = parameters.config or _in_mode(wanted or DEFAULT_CONFIG, parameters.action_mode)
    config = _read(name)
    agent, model = _section(config, "agent", name), _section(config, "model", name)
    environment = _section(config, "environment", name)
    agent |= _given(parameters, "step_limit", "cost_limit", "max_consecutive_format_errors", *_TEMPLATES[:2])
    model |= _given(parameters, "action_regex", *_TEMPLATES[2:])
    for key in _TEMPLATES[:2]:
        if not isinstance(agent.get(key), str):
            raise ConfigError(f"mini-swe-agent config {name!r} has no agent.{key}", hint=f"set {key}")
    _refuse_broken(agent | model, name)
    agent.pop("output_path", None)
    observation = str(model.get("observation_template", _OBSERVATION))
    texts = (agent["system_template"], agent["instance_template"], observation)
    interpreter = parameters.interpreter or tuple(environment.get("interpreter", ()))
    return AgentSettings(
        name=name,
        agent=agent,
        observation_template=observation,
        format_error_template=str(model.get("format_error_template", "{{ error }}")),
        text_mode=_is_text_mode(parameters, agent, model),
        action_regex=str(model.get("action_regex", _ACTION_REGEX)),
        env={str(key): str(value) for key, value in (environment.get("env") or {}).items()},
        user_env=dict(parameters.env),
        command_limit_s=float(parameters.timeout or environment.get("timeout", DEFAULT_COMMAND_LIMIT_S)),
        interpreter=() if interpreter == ("bash", "-c") else interpreter,
        max_output_bytes=parameters.max_output_bytes,
        needs_uname=any(map(_names_machine, texts)),
        explicit_cost_limit=parameters.cost_limit,
    )


def _refuse_broken(texts: Mapping[str, Any], name: str) -> None:
    for key, check in {**dict.fromkeys(_TEMPLATES, checked_template), "action_regex": checked_regex}.items():
        try:
            check(str(texts.get(key, "")))
        except ValueError as exc:
            raise ConfigError(f"mini-swe-agent config {name!r}: {key}: {exc}") from exc


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


def _section(config: Mapping[str, Any], key: str, name: str) -> dict[str, Any]:
    section = config.get(key) or {}
    if not isinstance(section, dict):
        raise ConfigError(f"mini-swe-agent config {name!r}: {key} is no mapping")
    return dict(section)


def _read(name: str) -> dict[str, Any]:
    path = _find(name)
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as exc:
        raise ConfigError(f"mini-swe-agent config {name!r} cannot be read: {exc}") from exc
    if not isinstance(config, dict):
        raise ConfigError(f"mini-swe-agent config {name!r} is no mapping")
    return config


def _find(name: str) -> Path:
    root = package_folder() / "config"
    shipped = {
        path.stem: path for folder in (root, root / "extra", root / "benchmarks") for path in folder.glob("*.yaml")
    }
    stem = name.removesuffix(".yaml")
    if stem in shipped:
        return shipped[stem]
    if (path := Path(name).expanduser()).is_file():
        return path
    hint = did_you_mean(stem, shipped, otherwise=f"a file, or one of {', '.join(sorted(shipped))}")
    raise ConfigError(f"no mini-swe-agent config {name!r}", hint=hint)
