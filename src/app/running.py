"""A run in the foreground of a terminal."""

import asyncio

from ..adapters.results.report import final_report
from .container import Places, run_folder
from .garbage import collect_as_usual
from .open_files import allow_many_open_files
from .sdk import evaluate
from .settings import Settings


def run_to_end(settings: Settings) -> tuple[str, int]:
    """Run what `settings` ask for; the table for stdout, and the exit code."""
    collect_as_usual()
    allow_many_open_files()
    request = settings.request()
    places = Places(settings.results_dir, settings.data_dir)
    outcome = asyncio.run(
        evaluate(
            request,
            places,
            timeout_seconds=settings.run.timeout_seconds,
            progress=settings.run.progress,
            log_level=settings.run.log_level,
        )
    )
    return final_report(outcome.summary, run_folder(request, places)), outcome.exit_code
