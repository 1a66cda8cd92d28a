"""A run's request from Python: the same layers and checks as on the command line."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from ..domain.run import RunRequest
from .catalog import Catalog
from .settings import Flags, Used, load_settings


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
    return load_settings(used, config=paths, flags=flags, environ=os.environ, catalog=Catalog()).request(reuse=reuse)
