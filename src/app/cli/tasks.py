"""`agentcompass tasks`."""

import json
import os

import typer

from . import options

app = typer.Typer(add_completion=False)


@app.command("tasks")
def tasks(
    benchmark: options.Benchmark,
    benchmark_params: options.BenchmarkParams = None,
    config: options.Config = None,
    data_dir: options.DataDir = None,
    as_json: options.AsJson = False,
) -> None:
    """List the tasks of a benchmark, one per line."""
    from ..settings import Flags  # `--help` needs none of the settings' models
    from ..task_list import load_task_list

    flags = Flags(benchmark_params=benchmark_params, data_dir=data_dir)
    found = load_task_list(benchmark, config or [], flags, os.environ)
    if as_json:
        typer.echo(json.dumps([task.model_dump(mode="json") for task in found], indent=2))
        return
    for task in found:
        typer.echo(f"{task.id}\t{task.category}" if task.category else task.id)
