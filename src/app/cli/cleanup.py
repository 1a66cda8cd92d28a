"""`agentcompass cleanup`."""

from typing import Annotated

import typer

from ...domain.one_line import one_line
from . import options

app = typer.Typer(add_completion=False)
Env = Annotated[str | None, typer.Option("--env", "-e", metavar="NAME", help="Only this environment.")]
RunId = Annotated[str | None, typer.Option("--run-id", metavar="ID", help="Only sandboxes of this run.")]


@app.command("cleanup")
def cleanup(
    env: Env = None, run_id: RunId = None, env_params: options.EnvironmentParams = None, config: options.Config = None
) -> None:
    """Stop sandboxes that dead runs left behind; those of live runs are not touched."""
    from ..maintenance import swept

    found = swept(env, run_id, config or [], env_params)
    for reason in found.unreached:
        typer.echo(f"passed over: {one_line(reason)}", err=True)
    for sandbox in found.sandboxes:
        outcome = f"NOT stopped: {sandbox.error}" if sandbox.error else "stopped"
        named = f"{sandbox.environment}: {sandbox.id} (run {sandbox.run_id}, task {sandbox.task_id})"
        typer.echo(one_line(f"{named}: {outcome}"))
    failed = sum(bool(sandbox.error) for sandbox in found.sandboxes)
    typer.echo(f"{len(found.sandboxes) - failed} stopped, {failed} could not be stopped")
    if failed:
        raise typer.Exit(1)
