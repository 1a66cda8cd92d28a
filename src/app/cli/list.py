"""`agentcompass list`: which adapters there are."""

import json
from typing import Annotated

import typer

from .options import AsJson

app = typer.Typer(add_completion=False)


@app.command()
def list_adapters(
    kind: Annotated[str, typer.Argument(help="benchmarks, harnesses, environments, models or recipes.")],
    as_json: AsJson = False,
) -> None:
    """List benchmarks, harnesses, environments, models or recipes."""
    from ..listing import listed, listed_text, named  # the settings' models come with it, and `--help` needs none

    adapters = listed(named(kind))
    typer.echo(json.dumps([each.as_json() for each in adapters], indent=2) if as_json else listed_text(adapters))
