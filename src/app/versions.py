"""Which software a run used."""

import platform
from importlib.metadata import PackageNotFoundError, version

_PACKAGES = ("agentcompass", "docker", "modal", "openai", "mini-swe-agent", "swebench")


def versions() -> dict[str, str]:
    """Python, the platform, and the packages that can move a score, as installed."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
