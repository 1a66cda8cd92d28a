"""The sections that are ours: `run`, `model`, and the keys that every benchmark shares."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import Field, SecretStr, create_model, field_validator

from ...domain.local_path import LocalPath, expanded
from ...domain.run import RunLabel
from ...domain.task import TaskSelection
from ...domain.value import Parameters


class RunSettings(Parameters):
    """How a run is carried out and where it is kept."""

    environment: str = "docker"
    """Where sandboxes run when no --env is given: a name or module:Class."""
    task_concurrency: int = Field(default=4, ge=1)
    """Attempts at the same time."""
    max_retries: int = Field(default=1, ge=0)
    """Re-runs of an attempt after an infrastructure error."""
    timeout_seconds: float | None = Field(default=None, gt=0)
    """Limit of the whole run, in seconds; null is none."""
    results_dir: LocalPath = Path("results")
    """Where runs are kept: RESULTS_DIR/RUN_NAME/RUN_ID."""
    data_dir: LocalPath | None = None
    """Where benchmarks cache their data; null is agentcompass in the user's cache folder."""
    run_name: RunLabel | None = None
    """null is BENCHMARK-HARNESS-MODEL."""
    run_id: RunLabel | None = None
    """null is a new one: the time and six random digits."""
    progress: Literal["auto", "rich", "plain", "json", "none"] = "auto"
    """The display on stderr."""
    enabled_recipes: tuple[str, ...] | None = None
    """Names of the recipes that may apply; null is every one, [] none."""
    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    """Log lines on stderr; run.log has all of them."""

    @field_validator("results_dir", "data_dir")
    @classmethod
    def _at_a_home(cls, folder: Path | None) -> Path | None:
        if folder is not None:
            expanded(folder)
        return folder


class ModelSettings(Parameters):
    """The endpoint that answers, and its parameters."""

    base_url: str | None = None
    """null is the protocol's own default endpoint."""
    api_key: SecretStr | None = None
    """Never in a file of the repository: use AGENTCOMPASS_MODEL__API_KEY or a private file."""
    api_protocol: str = "openai-chat"
    """What the endpoint speaks: a name of `list models`, or module:Class."""
    params: dict[str, Any] = Field(default_factory=dict)
    """Parameters of that protocol: temperature, max_tokens, ..."""


class TaskKeys(Parameters):
    """What every benchmark's section may say of its tasks."""

    sample_ids: tuple[str, ...] = ()
    """Ids of the tasks to run, in this order; [] is all."""
    limit: int | None = Field(default=None, gt=0)
    """Keep the first so many; null is all."""
    k: int = Field(default=1, ge=1)
    """Attempts of each task, for pass@k."""

    @property
    def selection(self) -> TaskSelection:
        """Which tasks to run."""
        return TaskSelection(sample_ids=self.sample_ids, limit=self.limit)


class NoParameters(Parameters):
    """A recipe is a pure function: its section has no keys."""


def without_task_keys(values: Mapping[str, Any]) -> tuple[TaskKeys, dict[str, Any]]:
    """A benchmark's values in two: the keys that all share, and its own."""
    shared = {name: value for name, value in values.items() if name in TaskKeys.model_fields}
    own = {name: value for name, value in values.items() if name not in shared}
    return TaskKeys.model_validate(shared), own


def benchmark_section(parameters: type[Parameters]) -> type[Parameters]:
    """A benchmark's own parameters together with the keys that all share."""
    combined: Any = create_model(parameters.__name__, __base__=(TaskKeys, parameters), __doc__=parameters.__doc__)
    return cast(type[Parameters], combined)
