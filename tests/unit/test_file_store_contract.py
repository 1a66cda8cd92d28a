"""Both result stores keep the promises of the port."""

import json
import os
from pathlib import Path

import pytest
from agentcompass.adapters.results.file_store import FileResultStore
from agentcompass.adapters.results.layout import steps_path
from agentcompass.domain.attempt import AttemptKey, Step
from agentcompass.domain.ports import ResultStore
from agentcompass.domain.redaction import Redactor
from agentcompass.testing.fakes import MemoryResultStore
from agentcompass.testing.result_store import ResultStoreContract


class TestFileResultStore(ResultStoreContract):
    @pytest.fixture(autouse=True)
    def _storage(self, tmp_path: Path) -> None:
        self.results_dir = tmp_path

    def store(self) -> ResultStore:
        return FileResultStore(self.results_dir, Redactor())

    def abandon(self, store: ResultStore) -> None:
        assert isinstance(store, FileResultStore)
        assert store._run is not None
        os.close(store._run.lock._descriptor)  # what the kernel does to a killed process

    def steps_of(self, store: ResultStore, key: AttemptKey) -> list[Step]:
        lines = steps_path(self.results_dir / "name" / "id", key).read_text().split("\n")
        assert lines.pop() == ""
        return [Step.model_validate(json.loads(line)) for line in lines]


class TestMemoryResultStore(ResultStoreContract):
    @pytest.fixture(autouse=True)
    def _storage(self) -> None:
        self.memory = MemoryResultStore()

    def store(self) -> ResultStore:
        return self.memory

    def abandon(self, store: ResultStore) -> None:
        self.memory.locked = False

    def steps_of(self, store: ResultStore, key: AttemptKey) -> list[Step]:
        return self.memory.steps_of(key)
