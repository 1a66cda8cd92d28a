"""`agentcompass run`."""

import os

import typer

from . import options

app = typer.Typer(add_completion=False)


@app.command("run")
def run(
    benchmark: options.Benchmark,
    harness: options.Harness,
    model: options.Model,
    env: options.Environment = None,
    config: options.Config = None,
    benchmark_params: options.BenchmarkParams = None,
    harness_params: options.HarnessParams = None,
    env_params: options.EnvironmentParams = None,
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
    from ..settings import Used, load_settings  # `--help` needs none of the settings' models
    from ..settings_layers import Flags

    flags = Flags(
        benchmark_params=benchmark_params,
        harness_params=harness_params,
        environment_params=env_params,
        model_params=model_params,
        model_base_url=model_base_url,
        model_api_key=model_api_key,
        model_api_protocol=model_api_protocol,
        task_concurrency=task_concurrency,
        max_retries=max_retries,
        timeout_seconds=timeout_seconds,
        results_dir=results_dir,
        data_dir=data_dir,
        run_name=run_name,
        run_id=run_id,
        progress=progress,
        enabled_recipes=enabled_recipes,
        log_level=log_level,
    )
    used = Used(benchmark, harness, model, env)
    settings = load_settings(used, config=config or [], flags=flags, environ=os.environ)
    from ..dry_run import dry_run_text  # adapters come with these two, and `--help` needs none
    from ..running import run_to_end

    if dry_run:
        typer.echo(dry_run_text(settings))
        return
    report, exit_code = run_to_end(settings)
    typer.echo(report)
    raise typer.Exit(exit_code)
