"""The JSON schema of a settings file, for `config schema` and editors."""

from typing import Any, TypeAlias

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from ...domain.errors import ConfigError
from ..catalog import Catalog, Kind
from .loading import section_model
from .models import ModelSettings, RunSettings
from .variables import NAMED_SECTIONS

Path: TypeAlias = tuple[str, ...]


def schema(catalog: Catalog) -> dict[str, Any]:
    """One object of all sections; an adapter that cannot be loaded is any object, with the reason as `$comment`."""
    models, missing = _models(catalog)
    refs, definitions = models_json_schema([(model, "validation") for model in models.values()])
    found: dict[Path, Any] = {path: refs[model, "validation"] for path, model in models.items()} | missing
    named = {section: _object(_below(found, section)) for section in NAMED_SECTIONS if section != Kind.MODELS}
    protocols = list(_below(found, Kind.MODELS.value).values())
    definitions["$defs"]["ModelSettings"]["properties"]["params"] |= {"anyOf": protocols}
    return {**_object({"run": found["run",], "model": found["model",], **named}), **definitions}


def _models(catalog: Catalog) -> tuple[dict[Path, type[BaseModel]], dict[Path, dict[str, Any]]]:
    models: dict[Path, type[BaseModel]] = {("run",): RunSettings, ("model",): ModelSettings}
    missing: dict[Path, dict[str, Any]] = {}
    for kind in Kind:
        for name in catalog.names(kind):
            try:
                models[kind.value, name] = section_model(kind, catalog.load(kind, name))
            except ConfigError as exc:
                missing[kind.value, name] = {"type": "object", "$comment": str(exc)}
    return models, missing


def _below(found: dict[Path, Any], section: str) -> dict[str, Any]:
    return {path[1]: each for path, each in found.items() if len(path) > 1 and path[0] == section}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}
