"""A run's request from Python: the same layers and checks as on the command line."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import PrivateAttr, SecretStr

from ..domain.run import RunRequest
from .catalog import Catalog
from .settings import Flags, Settings, Used, load_settings
from .settings.models import RunSettings


class ConfiguredRequest(RunRequest):
    """A request that knows, beside what is run, how its settings would have it carried out."""

    _run: RunSettings = PrivateAttr()

    @classmethod
    def of(cls, settings: Settings, *, reuse: bool) -> "ConfiguredRequest":
        """The request that `settings` make."""
        request = cls.model_construct(**dict(settings.request(reuse=reuse)))
        is_set = "progress" in settings.sections["run"].explicit
        request._run = settings.run if is_set else settings.run.model_copy(update={"progress": "none"})
        return request


def run_settings(request: RunRequest) -> RunSettings:
    """How `request` is to be carried out where the caller does not say: without a display, unless one is set."""
    return request._run if isinstance(request, ConfiguredRequest) else RunSettings(progress="none")


def build_run_request(
    *,
    benchmark: str,
    harness: str,
    model: str,
    environment: str | None = None,
    benchmark_params: Mapping[str, Any] | None = None,
    harness_params: Mapping[str, Any] | None = None,
    environment_params: Mapping[str, Any] | None = None,
    model_params: Mapping[str, Any] | None = None,
    model_base_url: str | None = None,
    model_api_key: str | SecretStr | None = None,
    model_api_protocol: str | None = None,
    task_concurrency: int | None = None,
    max_retries: int | None = None,
    enabled_recipes: Sequence[str] | None = None,
    run_name: str | None = None,
    run_id: str | None = None,
    reuse: bool = True,
    config: Sequence[str | Path] = (),
) -> RunRequest:
    """The request of one run: defaults.yaml < `config` files < AGENTCOMPASS_ variables < these arguments.

    An argument that is None is not given. `reuse` resumes a stored run of the same name and id; False refuses it.
    What the layers say of `results_dir`, `data_dir`, `timeout_seconds`, `progress` and `log_level` goes with it.

    Raises:
        ConfigError: anything wrong in any layer, in one line.
    """
    flags = Flags(
        benchmark_params=benchmark_params,
        harness_params=harness_params,
        environment_params=environment_params,
        model_params=model_params,
        model_base_url=model_base_url,
        model_api_key=model_api_key,
        model_api_protocol=model_api_protocol,
        task_concurrency=task_concurrency,
        max_retries=max_retries,
        run_name=run_name,
        run_id=run_id,
        enabled_recipes=enabled_recipes,
        as_options=False,
    )
    used = Used(benchmark=benchmark, harness=harness, model=model, environment=environment)
    paths = [Path(path) for path in config]
    settings = load_settings(used, config=paths, flags=flags, environ=os.environ, catalog=Catalog())
    return ConfiguredRequest.of(settings, reuse=reuse)
