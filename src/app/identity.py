"""What makes two starts the same run: everything that moves a score, nothing else."""

import hashlib
from collections.abc import Collection, Iterable

from pydantic import JsonValue, SecretStr

from ..domain.ports import Benchmark, Harness
from ..domain.resolving import SPEC_FIELDS
from ..domain.run import RunRequest
from ..domain.task import Task
from ..domain.value import Parameters


def identity(
    request: RunRequest,
    harness: Harness,
    benchmark: Benchmark,
    tasks: Iterable[Task],
    parameters: dict[str, Parameters],
) -> dict[str, JsonValue]:
    """The identity of a run; `parameters` are the adapters' own, by section name (`benchmark`, `harness`, ...).

    The endpoint's address is not part of it: an endpoint moves between starts, and run_info.json records each.
    """
    explicit = {"environment": SPEC_FIELDS & request.environment_params.keys()}
    own: dict[str, JsonValue] = {
        f"{section}_params.{name}": value
        for section, values in sorted(parameters.items())
        for name, value in score_moving(values, explicit.get(section, ())).items()
    }
    own |= {f"harness_files.{name}": value for name, value in harness.files().items()}
    chosen: dict[str, JsonValue] = {
        "benchmark": request.benchmark,
        "harness": request.harness,
        "environment": request.environment,
        "model": request.model.name,
        "model_api_protocol": request.model.protocol,
        "sample_ids": list(request.selection.sample_ids),
        "limit": request.selection.limit,
        "k": request.k,
        "enabled_recipes": None if request.enabled_recipes is None else [*sorted(request.enabled_recipes)],
        "dataset": dict(benchmark.dataset()),
        "tasks_sha256": tasks_digest(tasks),
    }
    return own | chosen


def score_moving(parameters: Parameters, explicit: Collection[str] = ()) -> dict[str, JsonValue]:
    """The fields that differ from their defaults, without secrets and those marked `identity: False`.

    Those of `explicit` count at their defaults too: what the user said goes over the recipe, whatever its value.
    """
    dumped = parameters.model_dump(mode="json", include=set(explicit))
    dumped |= parameters.model_dump(mode="json", exclude_defaults=True)
    return {name: value for name, value in dumped.items() if _counts(parameters, name)}


def tasks_digest(tasks: Iterable[Task]) -> str:
    """SHA-256 over the tasks' ids and checksums, in order."""
    digest = hashlib.sha256()
    for task in tasks:
        digest.update(f"{task.id}\0{task.checksum}\0".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _counts(parameters: Parameters, name: str) -> bool:
    if isinstance(getattr(parameters, name), SecretStr):
        return False
    extra = type(parameters).model_fields[name].json_schema_extra
    return not (isinstance(extra, dict) and extra.get("identity") is False)
