"""`agentcompass run`."""

import os
import signal
import threading

import typer

from . import options

app = typer.Typer(add_completion=False)
NO_FLAGS = ("benchmark", "harness", "model", "environment", "config", "dry_run")
"""Arguments of `run` that are no field of `Flags`; every other one is the field of its name."""


@app.command("run")
def run(
    benchmark: options.Benchmark,
    harness: options.Harness,
    model: options.Model,
    environment: options.Environment = None,
    config: options.Config = None,
    benchmark_params: options.BenchmarkParams = None,
    harness_params: options.HarnessParams = None,
    environment_params: options.EnvironmentParams = None,
    model_params: options.ModelParams = None,
    model_base_url: options.ModelBaseUrl = None,
    model_api_key: options.ModelApiKey = None,
    model_api_protocol: options.ModelApiProtocol = None,
    task_concurrency: options.TaskConcurrency = None,
    max_retries: options.MaxRetries = None,
    timeout_seconds: options.TimeoutSeconds = None,
    results_dir: options.ResultsDir = None,
    data_dir: options.DataDir = None,
    run_name: options.RunName = None,
    run_id: options.RunId = None,
    progress: options.Progress = None,
    enabled_recipes: options.EnabledRecipes = None,
    log_level: options.LogLevel = None,
    dry_run: options.DryRun = False,
) -> None:
    """Run a benchmark with a harness on a model; started again with the same name and id, it resumes.

    Exit codes: 0 every selected attempt was graded, 1 some were not, 2 nothing was started, 130 interrupted.
    """
    given = dict(locals())  # here, where it holds the arguments and nothing else
    _hear_ctrl_c()
    from ..settings import Flags, Used, load_settings  # `--help` needs none of the settings' models

    flags = Flags(**{name: value for name, value in given.items() if name not in NO_FLAGS})
    used = Used(benchmark, harness, model, environment)
    settings = load_settings(used, config=config or [], flags=flags, environ=os.environ)
    if dry_run:
        from ..dry_run import dry_run_text

        typer.echo(dry_run_text(settings))
        return
    from ..running import run_to_end  # every adapter's port comes with it, and `--help` needs none

    report, exit_code = run_to_end(settings)
    typer.echo(report)
    raise typer.Exit(exit_code)


def _hear_ctrl_c() -> None:
    """From the start, also where a shell has it ignored: as `Interrupts.installed`, before there is a run."""
    is_deaf = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if is_deaf and threading.current_thread() is threading.main_thread():  # no other can take signals
        signal.signal(signal.SIGINT, signal.default_int_handler)
