"""The command `agentcompass`. Each sub-command is a module here, imported when it is called."""

from .border import main

__all__ = ["main"]
