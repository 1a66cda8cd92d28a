"""`agentcompass config`: the effective settings, whether they are right, and what they may be."""

import json
import os

import typer

from .options import AsJson, Config

app = typer.Typer(help="Show and check the settings.", add_completion=False)


@app.command("show")
def show(config: Config = None, as_json: AsJson = False) -> None:
    """Print the effective settings, each with the layer it came from; secrets are masked."""
    from ..catalog import Catalog
    from ..settings.report import shown

    lines = shown(config or [], os.environ, Catalog())
    if as_json:
        typer.echo(json.dumps({line.key: line.as_json() for line in lines}, indent=2))
        return
    for line in lines:
        typer.echo(f"{line.key} = {json.dumps(line.value, ensure_ascii=False)}  # {line.layer}: {line.where}")


@app.command("check")
def check_all(config: Config = None) -> None:
    """Check every section, for every installed adapter."""
    from ..catalog import Catalog
    from ..settings.report import check

    report = check(config or [], os.environ, Catalog())
    for note in report.notes:
        typer.echo(f"note: {note}", err=True)
    for problem in report.problems:
        typer.echo(f"error: {problem}", err=True)
    if report.problems:
        raise typer.Exit(2)
    typer.echo("OK")


@app.command("schema")
def print_schema() -> None:
    """Print the JSON schema of all sections."""
    from ..catalog import Catalog
    from ..settings.schema import schema

    typer.echo(json.dumps(schema(Catalog()), indent=2))
