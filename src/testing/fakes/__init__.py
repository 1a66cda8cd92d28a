"""In-memory adapters of every port: cheap enough for thousands of attempts, and importable by `module:Class`."""

from .benchmark import FakeBenchmark
from .environment import FakeEnvironment
from .harness import FakeHarness
from .model import FakeModel, ScriptExhausted, reply
from .progress import RecordingProgress
from .results import MemoryResultStore
from .sandbox import FakeSandbox

__all__ = [
    "FakeBenchmark",
    "FakeEnvironment",
    "FakeHarness",
    "FakeModel",
    "FakeSandbox",
    "MemoryResultStore",
    "RecordingProgress",
    "ScriptExhausted",
    "reply",
]
