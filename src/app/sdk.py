"""A run from Python: the functions behind `import agentcompass` and behind the command line."""

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..adapters.progress import make_progress
from ..domain.ports import Progress
from ..domain.run import RunRequest
from .container import Container, Places
from .logs import Logs, logging_to
from .plugins import closing
from .requests import run_settings
from .run_evaluation import RunOutcome
from .run_log import LoggedProgress
from .settings.effective import data_dir as cached_data


def run_evaluation_request(
    request: RunRequest,
    *,
    results_dir: Path | str | None = None,
    data_dir: Path | str | None = None,
    timeout_seconds: float | None = None,
    progress: str | Progress | None = None,
) -> Mapping[str, Any]:
    """Run `request` to its end, and return `paths` (`run_info`, `summary`, `details`), `summary` and `exit_code`.

    `progress` is the name of a display on stderr (auto, rich, plain, json, none) or a `Progress` of your own.
    An argument that is None is as the `config` files and AGENTCOMPASS_ variables say that the request was built from;
    where they say nothing: the folder results, the user's cache folder, no limit, no display.

    Raises:
        ConfigError: nothing was started.
    """
    return asyncio.run(
        run_evaluation_request_async(
            request, results_dir=results_dir, data_dir=data_dir, timeout_seconds=timeout_seconds, progress=progress
        )
    )


async def run_evaluation_request_async(
    request: RunRequest,
    *,
    results_dir: Path | str | None = None,
    data_dir: Path | str | None = None,
    timeout_seconds: float | None = None,
    progress: str | Progress | None = None,
) -> Mapping[str, Any]:
    """As `run_evaluation_request`, for a running event loop."""
    run = run_settings(request)
    places = Places(
        run.results_dir.expanduser() if results_dir is None else Path(results_dir),
        Path(data_dir) if data_dir else cached_data(run, os.environ),
    )
    outcome = await evaluate(
        request,
        places,
        timeout_seconds=run.timeout_seconds if timeout_seconds is None else timeout_seconds,
        progress=run.progress if progress is None else progress,
        log_level=run.log_level,
    )
    return {
        "paths": outcome.paths,
        "summary": outcome.summary.model_dump(mode="json"),
        "exit_code": outcome.exit_code,
    }


async def evaluate(
    request: RunRequest,
    places: Places,
    *,
    timeout_seconds: float | None = None,
    progress: str | Progress = "none",
    log_level: str = "warning",
) -> RunOutcome:
    """Wire the request's adapters, run it, and let their connections go."""
    container = Container(request=request, places=places)
    redactor = container.redactor()
    with logging_to(Logs(level=log_level, redact=redactor.value)) as logs:
        if isinstance(progress, str):
            display = make_progress(progress, sys.stderr, redact=redactor.text)
            logs.show_with(display.print_line)
            progress = display
        container.progress.override(LoggedProgress(logs, progress))
        async with closing(container.environment(), container.model()):
            return await container.evaluation().run(timeout_seconds)
