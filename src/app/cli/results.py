"""`agentcompass results`: which runs are stored, what came of one, and what can be made of it."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from ...adapters.results.reading import find_run, find_task, read_run, read_runs, read_tasks
from ...adapters.results.swebench_export import ExportFormat, export_run
from ...adapters.results.views import run_json, run_list, run_page, task_page
from ...domain.local_path import expanded
from ...domain.one_line import one_line, printable
from ..settings import Flags, load_results_dir
from . import options
from .options import AsJson, Config, ResultsDir

NO_FLAGS = ("run", "environment", "config")
"""Arguments of `regrade` that are no field of `Flags`; every other one is the field of its name."""
app = typer.Typer(help="List, show, export and regrade results.", add_completion=False, no_args_is_help=True)


Run = Annotated[
    str, typer.Argument(help="A run's folder, its RUN_NAME/RUN_ID, or a run id that only one run has.", metavar="RUN")
]
Format = Annotated[
    ExportFormat,
    typer.Option("--format", help="A file of predictions, or the log folders that SWE-bench's grader leaves."),
]
Output = Annotated[Path, typer.Option("--output", "-o", metavar="PATH", help="The file, or the folder of logs/.")]
RegradeId = Annotated[
    str | None,
    typer.Option("--run-id", metavar="ID", help="Of the new run; else RUN's own id and -regrade. It resumes."),
]
Attempt = Annotated[int, typer.Option("--attempt", min=1, metavar="N", help="Which attempt of each task.")]
Task = Annotated[str | None, typer.Argument(help="A task's id: show its attempts.", metavar="[TASK]")]


@app.command("list")
def list_runs(results_dir: ResultsDir = None, config: Config = None, as_json: AsJson = False) -> None:
    """List the stored runs, one per line. Exit code 1: some could not be read; stderr names them."""
    folder = _folder(results_dir, config)
    runs, unreadable = read_runs(folder)
    for reason in unreadable:
        typer.echo(f"left out {printable(reason)}", err=True)
    if as_json:
        typer.echo(json.dumps([run_json(run) for run in runs], indent=2))
    elif runs:
        typer.echo(run_list(runs))
    elif not unreadable:
        typer.echo(f"no runs in {str(folder)!r}", err=True)
    raise typer.Exit(1 if unreadable else 0)


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


@app.command("export")
def export(
    run: Run,
    output: Output,
    form: Format,
    attempt: Attempt = 1,
    results_dir: ResultsDir = None,
    config: Config = None,
) -> None:
    """Write a run for SWE-bench's own tools. Exit code 1: some instances are left out or missing; stderr tells."""
    stored = read_run(find_run(_folder(results_dir, config), run))
    exported = export_run(stored, form, attempt, expanded(output))
    for instance, reason in exported.left_out.items():
        typer.echo(f"left out {one_line(instance)}: {one_line(reason)}", err=True)
    for reason in exported.unfinished:
        typer.echo(f"not whole: {reason}", err=True)
    typer.echo(f"{exported.written} instances written to {str(output)!r}")
    raise typer.Exit(1 if exported.left_out or exported.unfinished else 0)


@app.command("regrade")
def regrade(
    run: Run,
    environment: options.Environment = None,
    config: Config = None,
    environment_params: options.EnvironmentParams = None,
    task_concurrency: options.TaskConcurrency = None,
    max_retries: options.MaxRetries = None,
    results_dir: ResultsDir = None,
    data_dir: options.DataDir = None,
    run_id: RegradeId = None,
    progress: options.Progress = None,
) -> None:
    """Grade a run's stored submissions again, without an agent, as a run of its own: RUN_ID-regrade."""
    given = dict(locals())  # here, where it holds the arguments and nothing else
    from .. import regrade as regrading  # every adapter's port comes with it, and `--help` needs none

    flags = Flags(**{name: value for name, value in given.items() if name not in NO_FLAGS})
    stored = read_run(find_run(_folder(results_dir, config), run))
    report, exit_code = regrading.regrade(stored, environment, config or [], flags, os.environ)
    typer.echo(report)
    raise typer.Exit(exit_code)


def _folder(results_dir: str | None, config: list[Path] | None) -> Path:
    return load_results_dir(Flags(results_dir=results_dir), config=config or [], environ=os.environ)
