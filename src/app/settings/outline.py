"""The outline of the settings: which sections there are, whose names are known, where a secret may not be."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...domain.suggest import did_you_mean, nearest
from .models import ModelSettings, RunSettings
from .problems import SHARED_SECRET, Problem, problem_at
from .provenance import Layer
from .shape import known_keys
from .variables import NAMED_SECTIONS, SECTIONS, VariableText

_SECRET_NAME = re.compile(r"(^|_)(api_key|token|token_id|secret|token_secret|password)$", re.IGNORECASE)


def outline_problems(layers: Sequence[Layer], adapters: Mapping[str, list[str]]) -> list[Problem]:
    """Unknown sections, sections of unknown adapters, and what looks like a secret in a shared file."""
    return [problem for layer in layers for problem in _of_layer(layer, adapters)]


def _of_layer(layer: Layer, adapters: Mapping[str, list[str]]) -> Iterator[Problem]:
    for section, values in layer.values.items():
        if section not in SECTIONS:
            yield problem_at((section,), layer.origins, f"unknown section; {_meant(section)}")
        elif section in NAMED_SECTIONS:
            yield from _of_named(layer, section, values, adapters[section])


def _of_named(layer: Layer, section: str, values: Any, known: list[str]) -> Iterator[Problem]:
    if values is not None and not isinstance(values, dict):
        yield problem_at((section,), layer.origins, f"expected a mapping of names of {section}")
        return
    for name, below in (values or {}).items():
        path = (section, name)
        if name not in known and ":" not in name:
            yield problem_at(path, layer.origins, f"unknown name; {did_you_mean(name, known)}")
        elif below is not None and not isinstance(below, dict | VariableText):
            yield problem_at(path, layer.origins, "expected a mapping of settings")
        elif layer.shared and isinstance(below, dict):
            yield from _shared_secrets(layer, path, below)


def _shared_secrets(layer: Layer, path: tuple[str, ...], values: dict[str, Any]) -> Iterator[Problem]:
    for key, value in values.items():
        if isinstance(value, str) and value and _SECRET_NAME.search(key):
            yield problem_at((*path, key), layer.origins, SHARED_SECRET)


def _meant(section: str) -> str:
    ours = {
        key: f"{name}.{key}"
        for name, model in (("run", RunSettings), ("model", ModelSettings))
        for key in known_keys(model)
    }
    near = nearest(section, SECTIONS) or [ours[key] for key in nearest(section, ours)]
    return f"did you mean {near[0]!r}?" if near else did_you_mean(section, SECTIONS)
