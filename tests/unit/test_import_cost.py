"""What help and `import agentcompass` leave alone."""

import json
import subprocess
import sys
from functools import cache

import pytest

SDKS = {"docker", "modal", "openai", "minisweagent", "dependency_injector"}
HEAVY = SDKS | {"yaml", "structlog", "tenacity"}
SCRIPT = """
import contextlib, io, json, sys
with contextlib.redirect_stdout(io.StringIO()):
    try:
        {statement}
    except SystemExit as exc:
        assert not exc.code, exc.code
print(json.dumps(sorted({{name.partition(".")[0] for name in sys.modules}})))
"""


@cache
def imported(statement: str) -> frozenset[str]:
    """The top-level modules there are after a statement, in a process of its own."""
    command = [sys.executable, "-c", SCRIPT.format(statement=statement)]
    return frozenset(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_imports_no_adapter_and_nothing_it_needs(arguments: list[str]) -> None:
    assert not imported(f"from agentcompass.app.cli import main; main({arguments!r})") & HEAVY


@pytest.mark.parametrize("command", ["run", "config", "list", "tasks", "doctor", "results", "cleanup"])
def test_the_help_of_a_command_imports_no_sdk(command: str) -> None:
    statement = f"from agentcompass.app.cli import main; main([{command!r}, '--help'])"

    assert not imported(statement) & SDKS


@pytest.mark.parametrize("command", ["run", "config", "list", "tasks", "doctor", "cleanup"])
def test_the_help_of_a_command_imports_no_models_of_settings(command: str) -> None:
    statement = f"from agentcompass.app.cli import main; main([{command!r}, '--help'])"

    assert not imported(statement) & (HEAVY | {"pydantic"})


def test_importing_the_package_imports_nothing_else() -> None:
    assert not imported("import agentcompass") & (HEAVY | {"pydantic", "typer", "rich"})


def test_building_a_request_loads_no_sdk_of_adapters_that_it_does_not_use() -> None:
    statement = (
        "import agentcompass; agentcompass.build_run_request("
        "benchmark='quickstart', harness='nop', model='none', environment='host_process')"
    )

    assert not imported(statement) & SDKS
