"""Arguments and options that several commands share. An option not given is None, and overwrites no setting."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

Benchmark: TypeAlias = Annotated[str, typer.Argument(help="A name of `list benchmarks`, or module:Class.")]
Harness: TypeAlias = Annotated[str, typer.Argument(help="A name of `list harnesses`, or module:Class.")]
Model: TypeAlias = Annotated[str, typer.Argument(help="The model's name at its endpoint; `none` where none is needed.")]
Environment: TypeAlias = Annotated[
    str | None,
    typer.Option("--env", "-e", metavar="NAME", help="Where sandboxes run; else the setting run.environment."),
]
Config: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option("--config", metavar="FILE", help="Private settings (YAML); repeatable, the later wins."),
]
BenchmarkParams: TypeAlias = Annotated[
    str | None,
    typer.Option("--benchmark-params", metavar="JSON|@FILE", help="sample_ids, limit, k, and the benchmark's own."),
]
HarnessParams: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--harness-params", metavar="JSON|@FILE", help="The harness's parameters: step_limit, cost_limit, ..."
    ),
]
EnvironmentParams: TypeAlias = Annotated[
    str | None,
    typer.Option("--env-params", metavar="JSON|@FILE", help="The environment's parameters: image, cpu, memory, ..."),
]
ModelParams: TypeAlias = Annotated[
    str | None,
    typer.Option("--model-params", metavar="JSON|@FILE", help="The model's parameters: temperature, max_tokens, ..."),
]
ModelBaseUrl: TypeAlias = Annotated[
    str | None,
    typer.Option("--model-base-url", metavar="URL", help="The endpoint's address."),
]
ModelApiKey: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--model-api-key",
        metavar="KEY",
        help="Its key. Other users of this machine can see it here: AGENTCOMPASS_MODEL__API_KEY is safer.",
    ),
]
ModelApiProtocol: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--model-api-protocol", metavar="NAME", help="What it speaks: a name of `list models`, or module:Class."
    ),
]
TaskConcurrency: TypeAlias = Annotated[
    int | None,
    typer.Option("--task-concurrency", metavar="N", help="Attempts at the same time."),
]
MaxRetries: TypeAlias = Annotated[
    int | None,
    typer.Option("--max-retries", metavar="N", help="Re-runs of an attempt after an infrastructure error."),
]
TimeoutSeconds: TypeAlias = Annotated[
    float | None,
    typer.Option("--timeout-seconds", metavar="S", help="Limit of the whole run."),
]
ResultsDir: TypeAlias = Annotated[
    str | None,
    typer.Option("--results-dir", metavar="DIR", help="Where runs are kept."),
]
DataDir: TypeAlias = Annotated[
    str | None,
    typer.Option("--data-dir", metavar="DIR", help="Where benchmarks cache their data."),
]
RunName: TypeAlias = Annotated[
    str | None,
    typer.Option("--run-name", metavar="NAME", help="Else BENCHMARK-HARNESS-MODEL."),
]
RunId: TypeAlias = Annotated[
    str | None,
    typer.Option("--run-id", metavar="ID", help="With the same --run-name and --run-id a run resumes."),
]
Progress: TypeAlias = Annotated[
    str | None,
    typer.Option("--progress", metavar="auto|rich|plain|json|none", help="The display on stderr."),
]
EnabledRecipes: TypeAlias = Annotated[
    str | None,
    typer.Option("--enabled-recipes", metavar="A,B", help="Recipes that may apply; '' is none."),
]
LogLevel: TypeAlias = Annotated[
    str | None,
    typer.Option("--log-level", metavar="debug|info|warning|error", help="Log lines on stderr."),
]
DryRun: TypeAlias = Annotated[bool, typer.Option("--dry-run", help="Print what would run, and start nothing.")]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]
