"""`agentcompass results`: which runs are stored, and what came of one."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from ...adapters.results.reading import find_run, find_task, read_run, read_tasks, run_folders
from ...adapters.results.views import run_json, run_list, run_page, task_page
from ..catalog import Catalog
from ..settings import base_layers
from ..settings import read_run as read_run_settings
from ..settings_layers import Flags, settings_flags
from .options import AsJson, Config, ResultsDir

app = typer.Typer(help="List and show results.", add_completion=False, no_args_is_help=True)

Run = Annotated[
    str, typer.Argument(help="A run's folder, its RUN_NAME/RUN_ID, or a run id that only one run has.", metavar="RUN")
]
Task = Annotated[str | None, typer.Argument(help="A task's id: show its attempts.", metavar="[TASK]")]


@app.command("list")
def list_runs(results_dir: ResultsDir = None, config: Config = None, as_json: AsJson = False) -> None:
    """List the stored runs, one per line."""
    folder = _folder(results_dir, config)
    runs = [read_run(each) for each in run_folders(folder)]
    if as_json:
        typer.echo(json.dumps([run_json(run) for run in runs], indent=2))
    elif runs:
        typer.echo(run_list(runs))
    else:
        typer.echo(f"no runs in {str(folder)!r}", err=True)


@app.command("show")
def show(
    run: Run, task: Task = None, results_dir: ResultsDir = None, config: Config = None, as_json: AsJson = False
) -> None:
    """Show one run, or the attempts of one of its tasks."""
    stored = read_run(find_run(_folder(results_dir, config), run))
    if task is not None:
        file = find_task(stored.folder, task)
        typer.echo(json.dumps(file.document, indent=2) if as_json else task_page(stored, file))
        return
    tasks = read_tasks(stored.folder)
    if as_json:
        documents = [file.document for file in tasks.tasks]
        page = {"run_info": stored.run_info, "summary": run_json(stored), "tasks": documents}
        typer.echo(json.dumps(page, indent=2))
    else:
        typer.echo(run_page(stored, tasks))


def _folder(results_dir: Path | None, config: list[Path] | None) -> Path:
    """Where runs are kept, as the settings say."""
    if results_dir is not None:
        return results_dir.expanduser()
    catalog = Catalog()
    layers = [*base_layers(config or [], os.environ, catalog), settings_flags(Flags())]
    return Path(read_run_settings(layers, catalog).values["results_dir"]).expanduser()
