"""A command group that knows its commands by name and help text, and imports one when it is called."""

import importlib
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("run", "Run a benchmark with a harness on a model."),
    "list": ("list", "List benchmarks, harnesses, environments, models or recipes."),
    "tasks": ("tasks", "List the tasks of a benchmark."),
    "doctor": ("doctor", "Check that environments are ready for use."),
    "config": ("config", "Show and check the settings."),
    "results": ("results", "List and show results."),
    "cleanup": ("cleanup", "Stop sandboxes that dead runs left behind."),
}
"""Name -> module of this package, whose `app` is a Typer of one or more commands; and the line in `--help`."""


class LazyGroup(TyperGroup):
    """For help it shows stubs; only a command that is called is imported."""

    _has_options = True

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of `--help`."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A stub with the help text."""
        if cmd_name not in COMMANDS:
            return None
        return TyperCommand(cmd_name, help=COMMANDS[cmd_name][1])

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Arguments that begin with a command have none of the group's own options, whose parsing costs as much."""
        self._has_options = not (args and args[0] in COMMANDS)
        return super().parse_args(ctx, args)

    def get_params(self, ctx: Any) -> Any:
        """The group's own options, where they may occur."""
        return super().get_params(ctx) if self._has_options else []

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command itself."""
        if args and args[0] in COMMANDS:
            return args[0], _imported(args[0]), args[1:]
        self.commands = {name: self.get_command(ctx, name) for name in COMMANDS}  # for "did you mean"
        return super().resolve_command(ctx, args)


def _imported(name: str) -> Any:
    module, description = COMMANDS[name]
    app: typer.Typer = importlib.import_module(f".{module}", __package__).app
    app.rich_markup_mode = None  # as the group's: plain text, at a third of the cost
    command = get_command(app)
    command.name = name
    command.help = command.help or description
    return command
