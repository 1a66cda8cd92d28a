"""What a run goes by in the end, and the request made of it."""

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from ...domain.local_path import expanded
from ...domain.model import ModelEndpoint
from ...domain.run import RunRequest
from .models import ModelSettings, RunSettings, without_task_keys
from .section import Section


@dataclass(frozen=True)
class Used:
    """What a run uses, each by name or `module:Class`; no environment asks for that of the section `run`."""

    benchmark: str
    harness: str
    model: str
    environment: str | None = None


@dataclass(frozen=True)
class Settings:
    """The effective settings of one run; each section knows where its values come from."""

    used: Used
    run: RunSettings
    model: ModelSettings
    """Its `params` are in the section `model_params`."""
    sections: Mapping[str, Section] = field(repr=False)
    """`run`, `model`, `model_params`, `benchmark`, `harness`, `environment`."""
    environ: Mapping[str, str] = field(repr=False)

    @property
    def results_dir(self) -> Path:
        """Where runs are kept."""
        return expanded(self.run.results_dir)

    @property
    def data_dir(self) -> Path:
        """Where benchmarks cache their data: as set, or agentcompass in the user's cache folder."""
        return data_dir(self.run, self.environ)

    def request(self, *, reuse: bool = True) -> RunRequest:
        """The run asked for; name and id are made up where none is set."""
        tasks, benchmark_params = without_task_keys(self.sections["benchmark"].values)
        return RunRequest(
            benchmark=self.used.benchmark,
            harness=self.used.harness,
            environment=self.used.environment or "",
            model=ModelEndpoint(
                name=self.used.model,
                base_url=self.model.base_url,
                api_key=self.model.api_key,
                protocol=self.model.api_protocol,
            ),
            selection=tasks.selection,
            k=tasks.k,
            benchmark_params=benchmark_params,
            harness_params=self.sections["harness"].values,
            model_params=self.sections["model_params"].values,
            environment_defaults=self.sections["environment"].defaults,
            environment_params=self.sections["environment"].explicit,
            enabled_recipes=self.run.enabled_recipes,
            task_concurrency=self.run.task_concurrency,
            max_retries=self.run.max_retries,
            run_name=self.run.run_name or _default_run_name(self.used),
            run_id=self.run.run_id or _new_run_id(),
            reuse=reuse,
        )


def data_dir(run: RunSettings, environ: Mapping[str, str]) -> Path:
    """Where benchmarks cache their data: as set, or agentcompass in the user's cache folder."""
    return expanded(run.data_dir or cache_dir(environ))


def cache_dir(environ: Mapping[str, str]) -> Path:
    """agentcompass in the user's cache folder: $XDG_CACHE_HOME where it is absolute, else ~/.cache."""
    cache = Path(environ.get("XDG_CACHE_HOME", ""))
    return (cache if cache.is_absolute() else Path("~/.cache")) / "agentcompass"


def _default_run_name(used: Used) -> str:
    name = "-".join((used.benchmark, used.harness, used.model))
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).lstrip("._-")[:100] or "run"


def _new_run_id() -> str:
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
