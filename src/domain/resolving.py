"""From a task, a recipe and the user's parameters to one SandboxSpec."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from .errors import ConfigError
from .merging import merged
from .sandbox import Capabilities, Network, SandboxSpec
from .task import GradingMode, StageBudgets
from .value import first_fault

SPEC_FIELDS = frozenset(SandboxSpec.model_fields)
IMAGE_FIELDS = ("image", "named_image", "build")
LIFETIME_SLACK_S = 300.0
"""For what no budget covers: start-up calls, uploads, a slow stop."""


def lifetime_s(budgets: StageBudgets, grading: GradingMode, purpose: str) -> float:
    """Seconds that a sandbox must live: the budgets of the stages it serves, plus slack."""
    agent = budgets.start_s + budgets.prepare_s + budgets.agent_s + budgets.collect_s
    grade = budgets.grade_s if grading is GradingMode.SAME else 0.0
    needed = budgets.start_s + budgets.grade_s if purpose == "grade" else agent + grade
    return needed + LIFETIME_SLACK_S


def resolve_spec(
    defaults: Mapping[str, Any], recipe: Mapping[str, Any], explicit: Mapping[str, Any], needed_s: float
) -> SandboxSpec:
    """defaults < recipe < explicit, each reduced to the fields of SandboxSpec; `timeout` defaults to `needed_s`.

    A layer that names an image by any of IMAGE_FIELDS replaces the choice of the layers below.

    Raises:
        ConfigError: layers that do not fit together.
    """
    layers: dict[str, Any] = {}
    for layer in (defaults, recipe, explicit):
        fields = {key: value for key, value in layer.items() if key in SPEC_FIELDS}
        if any(fields.get(name) is not None for name in IMAGE_FIELDS):
            layers = {key: value for key, value in layers.items() if key not in IMAGE_FIELDS}
        layers = merged(layers, fields)
    if layers.get("timeout") is None:
        layers["timeout"] = needed_s
    try:
        return SandboxSpec(**layers)
    except ValidationError as exc:
        raise ConfigError(first_fault(exc), hint="see docs/environments") from None


def unsupported(spec: SandboxSpec, capabilities: Capabilities) -> list[str]:
    """The fields of `spec` that an environment of these capabilities cannot honour."""
    wanted = {
        "image": spec.image is not None and not capabilities.images,
        "named_image": spec.named_image is not None and not capabilities.named_images,
        "build": spec.build is not None and spec.image is None and not capabilities.builds,
        "gpu": spec.gpu is not None and "gpu" not in capabilities.resources,
        "user": spec.user is not None and not capabilities.users,
        "network": spec.network is not Network.PUBLIC and spec.network not in capabilities.networks,
    }
    return [name for name, missing in wanted.items() if missing]


def refuse_unsupported(name: str, spec: SandboxSpec, capabilities: Capabilities, able: Iterable[str] = ()) -> None:
    """Raise ConfigError when environment `name` cannot honour `spec`; `able` names environments that could."""
    missing = unsupported(spec, capabilities)
    if missing:
        others = " or ".join(f"--env {other}" for other in able)
        wanted = ", ".join(f"{field}={getattr(spec, field)!s}" for field in missing)
        raise ConfigError(f"environment {name} cannot honour {wanted}", hint=f"use {others}" if others else "")
