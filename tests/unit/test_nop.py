"""nop: the contract, and that it touches nothing."""

from pathlib import Path

from agentcompass.adapters.harnesses.nop import NopHarness, NopParameters
from agentcompass.domain.attempt import ExitReason
from agentcompass.domain.ports import Harness
from agentcompass.testing.fakes import FakeEnvironment
from agentcompass.testing.harness import HarnessContract, Recording, prepared_task


class TestNopKeepsTheContract(HarnessContract):
    def make(self) -> Harness:
        return NopHarness(NopParameters())

    def answer(self, request: object) -> str:
        return ""

    async def test_it_leaves_the_sandbox_alone(self, tmp_path: Path) -> None:
        async with self.sandbox(FakeEnvironment(), "task-1") as sandbox:
            result = await self.make().run(prepared_task(), sandbox, None, Recording(tmp_path).context)

        assert result.exit_reason is ExitReason.FINISHED
        assert (sandbox.execs, sandbox.files) == (0, {})

    async def test_it_needs_neither_sandbox_nor_model(self, tmp_path: Path) -> None:
        result = await self.make().run(prepared_task(), None, None, Recording(tmp_path).context)

        assert result.exit_reason is ExitReason.FINISHED
        assert not NopHarness.needs_sandbox
        assert not NopHarness.needs_model
