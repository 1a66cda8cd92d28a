"""The settings: all layers read, checked and merged before anything starts.

Each setting comes from the highest layer that has it: config/defaults.yaml < private files < environment variables
< flags. Callers hand the environment over as `environ`; nothing here looks at the process's own.
"""

from .alone import load_benchmark, load_environment, load_results_dir
from .effective import Settings, Used, cache_dir
from .layers import Flags
from .loading import load_settings, section_model

__all__ = [
    "Flags",
    "Settings",
    "Used",
    "cache_dir",
    "load_benchmark",
    "load_environment",
    "load_results_dir",
    "load_settings",
    "section_model",
]
