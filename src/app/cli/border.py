"""The border of the command line, where errors end: the user's in one line, ours with a traceback."""

import io
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from ...domain.errors import AgentCompassError, ResultsUnwritable
from ...domain.one_line import printable
from ..garbage import collect_rarely
from .lazy import LazyGroup

EXIT_BROKEN = 1
EXIT_WRONG = 2
EXIT_INTERRUPTED = 130

app = typer.Typer(
    cls=LazyGroup,
    name="agentcompass",
    add_completion=False,
    rich_markup_mode=None,  # drawing help with rich costs as much as all the rest of it
    help="Run any agent benchmark, with any agent harness, on any model, in any sandbox.",
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: what the user did wrong is a line on stderr, for each fault, and exit code 2."""
    collect_rarely()
    _print_whatever_comes()
    given = sys.argv[1:] if arguments is None else arguments
    sys.exit(_exit_code(given or ["--help"]))


def _print_whatever_comes() -> None:
    """A letter that the terminal's encoding lacks is its escape, rather than the end of a run that is done."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # not for every start

        typer.echo(version("agentcompass"))
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def _exit_code(arguments: Sequence[str]) -> int:
    try:
        code = app(list(arguments), prog_name="agentcompass", standalone_mode=False)
    except ResultsUnwritable as exc:
        return _told(str(exc), EXIT_BROKEN)
    except AgentCompassError as exc:
        return _told(str(exc), EXIT_WRONG)
    except typer.TyperException as exc:
        return _told(exc.format_message() + _help_hint(exc), EXIT_WRONG)
    except (typer.Abort, KeyboardInterrupt):
        return _told("interrupted", EXIT_INTERRUPTED)
    except Exception:  # noqa: BLE001 - the border: a bug of ours is shown whole, and never as the user's fault
        from ..logs import redacted_now  # not for every start

        typer.echo(redacted_now(traceback.format_exc()), err=True, nl=False)
        return EXIT_BROKEN
    return code if isinstance(code, int) else 0


def _told(message: str, code: int) -> int:
    lines = [printable(line.strip()) for line in message.splitlines() if line.strip()]
    typer.echo("\n  ".join(["error: " + (lines or ["?"])[0], *lines[1:]]), err=True)
    return code


def _help_hint(exc: Exception) -> str:
    context = getattr(exc, "ctx", None)
    return f" (see {context.command_path} --help)" if context is not None else ""
