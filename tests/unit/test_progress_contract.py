"""Every display, by its name, keeps the promises of the port."""

from typing import TextIO

import pytest
from agentcompass.adapters.progress import NAMES, make_progress
from agentcompass.domain.ports import Progress
from agentcompass.testing.progress import ProgressContract


class TestEveryDisplay(ProgressContract):
    @pytest.fixture(params=NAMES, autouse=True)
    def _name(self, request: pytest.FixtureRequest) -> None:
        self.name = request.param

    def make(self, stream: TextIO) -> Progress:
        return make_progress(self.name, stream)
