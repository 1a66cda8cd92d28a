"""`python -m agentcompass`."""

from .app.cli import main

main()
