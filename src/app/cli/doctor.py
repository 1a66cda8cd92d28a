"""`agentcompass doctor`."""

from typing import Annotated

import typer

from ...domain.one_line import one_line
from . import options

app = typer.Typer(add_completion=False)
Name = Annotated[str | None, typer.Argument(help="A name of `list environments`; else every one.")]


@app.command("doctor")
def doctor(environment: Name = None, config: options.Config = None) -> None:
    """Check that environments are ready for use; exit code 1 when one is not."""
    from ..maintenance import checks

    found = checks([environment] if environment else [], config or [])
    for name, lines in found.items():
        for check in lines:
            verdict = "ok  " if check.ok else "warn" if check.is_advice else "FAIL"
            typer.echo(f"{name}: {verdict} {check.name}: {one_line(check.detail)}")
            if check.hint and not check.ok:
                typer.echo(f"{name}:      -> {one_line(check.hint)}")
    if not all(check.ok or check.is_advice for lines in found.values() for check in lines):
        raise typer.Exit(1)
