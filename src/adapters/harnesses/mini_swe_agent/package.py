"""The mini-swe-agent package, imported when it is first used and without its side effects."""

import importlib
import importlib.util
import logging
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ....domain.errors import ConfigError

HINT = "pip install 'agentcompass[mini-swe-agent]'"
_lock = threading.Lock()
_loaded: list["Package"] = []


@dataclass(frozen=True)
class Package:
    """What is used of it."""

    version: str
    agent: Callable[..., Any]
    """DefaultAgent(model, env, **config)."""
    submitted: type[Exception]
    format_error: type[Exception]
    bash_tool: dict[str, Any]
    parse_tool_calls: Callable[..., list[dict[str, Any]]]
    parse_text: Callable[..., list[dict[str, Any]]]
    template: Callable[[str], Any]
    """Compiles a template as the package does, which is slow, but once for each text."""


def package_folder() -> Path:
    """Where the package is installed; it is not imported.

    Raises:
        ConfigError: it is not installed.
    """
    spec = importlib.util.find_spec("minisweagent")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError("harness mini_swe_agent needs the package mini-swe-agent, which is not installed", hint=HINT)
    return Path(spec.submodule_search_locations[0])


def checked_template(source: str) -> str:
    """`source`, where it is a template; without the package there is nothing to tell by.

    Raises:
        ValueError: its syntax is wrong.
    """
    if importlib.util.find_spec("jinja2") is None:
        return source
    jinja2 = importlib.import_module("jinja2")
    try:
        jinja2.Environment().parse(source)
    except jinja2.TemplateSyntaxError as exc:
        raise ValueError(f"no template: line {exc.lineno}: {exc.message}") from exc
    except RecursionError as exc:
        raise ValueError("no template: nested too deeply") from exc
    return source


def checked_regex(pattern: str) -> str:
    """`pattern`, where it is a regular expression; else ValueError."""
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as exc:
        raise ValueError(f"{pattern!r} is no regular expression: {exc}") from exc
    return pattern


def load_package() -> Package:
    """The package, imported once.

    Raises:
        ConfigError: it is missing, or of a version that this adapter does not know.
    """
    with _lock:
        if not _loaded:
            package_folder()
            try:
                with _without_side_effects():
                    _loaded.append(_imported())
            except (ImportError, AttributeError) as exc:
                raise ConfigError(f"the installed mini-swe-agent cannot be used: {exc}", hint=HINT) from exc
        return _loaded[0]


def _imported() -> Package:
    exceptions = importlib.import_module("minisweagent.exceptions")
    tool_calls = importlib.import_module("minisweagent.models.utils.actions_toolcall")
    text = importlib.import_module("minisweagent.models.utils.actions_text")
    jinja2 = importlib.import_module("jinja2")
    return Package(
        version=importlib.import_module("minisweagent").__version__,
        agent=importlib.import_module("minisweagent.agents.default").DefaultAgent,
        submitted=exceptions.Submitted,
        format_error=exceptions.FormatError,
        bash_tool=tool_calls.BASH_TOOL,
        parse_tool_calls=tool_calls.parse_toolcall_actions,
        parse_text=text.parse_regex_actions,
        template=cache(lambda source: jinja2.Template(source, undefined=jinja2.StrictUndefined)),
    )


@contextmanager
def _without_side_effects() -> Iterator[None]:
    """When imported, the package prints, makes a folder in the user's home, loads a .env file and logs to stdout."""
    with tempfile.TemporaryDirectory(prefix="agentcompass-") as folder:
        wanted = {"MSWEA_SILENT_STARTUP": "1", "MSWEA_GLOBAL_CONFIG_DIR": folder}
        before = {name: os.environ.get(name) for name in wanted}
        os.environ.update(wanted)
        handlers = list(logging.getLogger("minisweagent").handlers)
        try:
            yield
        finally:
            logging.getLogger("minisweagent").handlers[:] = handlers
            for name, value in before.items():
                os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)
