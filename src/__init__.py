"""AgentCompass: any agent benchmark, any agent harness, any model, any sandbox.

    request = build_run_request(benchmark=..., harness=..., model=..., environment=...)
    outcome = run_evaluation_request(request)

Each name is imported when it is first used, so that `import agentcompass` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .app.requests import build_run_request
    from .app.sdk import run_evaluation_request, run_evaluation_request_async
    from .domain.errors import AgentCompassError, ConfigError
    from .domain.run import RunRequest

    __version__: str

__all__ = [
    "AgentCompassError",
    "ConfigError",
    "RunRequest",
    "__version__",
    "build_run_request",
    "run_evaluation_request",
    "run_evaluation_request_async",
]

_HOMES = {
    "AgentCompassError": ".domain.errors",
    "ConfigError": ".domain.errors",
    "RunRequest": ".domain.run",
    "build_run_request": ".app.requests",
    "run_evaluation_request": ".app.sdk",
    "run_evaluation_request_async": ".app.sdk",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("agentcompass")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
