"""A result store in memory, with the promises of the one on disk."""

import shutil
import tempfile
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from pathlib import Path

from ...domain.attempt import AttemptKey, AttemptRecord, Step
from ...domain.errors import ConfigError
from ...domain.run import GRADED, RunInfo, RunSummary
from ...domain.value import Parameters as AdapterParameters


class MemoryResultStore:
    """Keeps `records`, `categories` and the last steps; a store used again resumes.

    All attempts share one log folder, made by `open` (a temporary one, removed by `close`, unless one is set).
    The paths that `save_summary` returns are names only: nothing is written there.
    """

    class Parameters(AdapterParameters):
        """Where logs go, and how many steps are remembered."""

        folder: Path | None = None
        keep_steps: int = 10_000

    def __init__(self, parameters: Parameters | None = None) -> None:
        self.parameters = parameters or self.Parameters()
        self.run: RunInfo | None = None
        self.summary: RunSummary | None = None
        self.records: dict[AttemptKey, AttemptRecord] = {}
        self.categories: dict[str, str] = {}
        self.tries: Counter[AttemptKey] = Counter()
        self.steps: deque[tuple[AttemptKey, Step]] = deque(maxlen=self.parameters.keep_steps)
        self.step_count = 0
        self.locked = False
        self._folder: Path | None = None

    async def open(self, run: RunInfo) -> Iterator[tuple[AttemptKey, AttemptRecord]]:
        """Lock, and give what is stored."""
        if self.locked:
            raise ConfigError(f"run {run.run_id!r} is live", hint="wait for its end")
        if self.run is not None and self.run.identity != run.identity:
            raise ConfigError(f"run {run.run_id!r} has another identity: {_differing(self.run, run)}")
        self.locked = True
        self.run = run
        self._folder = self.parameters.folder or Path(tempfile.mkdtemp(prefix="agentcompass-memory-"))
        self._folder.mkdir(parents=True, exist_ok=True)
        return iter(list(self.records.items()))

    def begin_attempt(self, key: AttemptKey) -> Path:
        """Count the try, forget earlier steps of the attempt."""
        if key in self.tries:
            kept = [(other, step) for other, step in self.steps if other != key]
            self.steps.clear()
            self.steps.extend(kept)
        self.tries[key] += 1
        return self._opened()

    async def append_step(self, key: AttemptKey, step: Step) -> None:
        """Remember the step."""
        self._opened()
        self.step_count += 1
        self.steps.append((key, step))

    async def save_attempt(self, key: AttemptKey, category: str, record: AttemptRecord) -> None:
        """Keep the record, unless a graded one would be lost."""
        self._opened()
        self.categories[key.task_id] = category
        stored = self.records.get(key)
        if stored is None or stored.status not in GRADED or record.status in GRADED:
            self.records[key] = record

    async def save_summary(self, summary: RunSummary) -> Mapping[str, Path]:
        """Keep the summary."""
        folder = self._opened()
        self.summary = summary
        return {
            "run_info": folder / "run_info.json",
            "summary": folder / "summary.json",
            "details": folder / "details",
        }

    async def close(self) -> None:
        """Unlock; what is stored stays."""
        self.locked = False
        if self._folder is not None and self.parameters.folder is None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None

    def steps_of(self, key: AttemptKey) -> list[Step]:
        """The remembered steps of one attempt, in order."""
        return [step for other, step in self.steps if other == key]

    def _opened(self) -> Path:
        assert self._folder is not None, "the store is not open"
        return self._folder


def _differing(stored: RunInfo, asked: RunInfo) -> str:
    keys = sorted(stored.identity.keys() | asked.identity.keys())
    return ", ".join(key for key in keys if stored.identity.get(key) != asked.identity.get(key))
