"""nop: does nothing, which must score nothing; the other check of a benchmark's set-up."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import JsonValue

from ...domain.attempt import AttemptContext, ExitReason, HarnessResult
from ...domain.ports import Model, Sandbox
from ...domain.task import PreparedTask
from ...domain.value import Parameters


class NopParameters(Parameters):
    """Nothing to set."""


class NopHarness:
    """Does nothing; must score 0 %."""

    Parameters: ClassVar[type[Parameters]] = NopParameters
    needs_sandbox: ClassVar[bool] = False
    needs_model: ClassVar[bool] = False

    def __init__(self, parameters: NopParameters) -> None:
        self._parameters = parameters

    def exposes_model(self) -> bool:
        """No."""
        return False

    def files(self) -> Mapping[str, JsonValue]:
        """None."""
        return {}

    async def run(
        self, task: PreparedTask, sandbox: Sandbox | None, model: Model | None, context: AttemptContext
    ) -> HarnessResult:
        """Ends at once."""
        return HarnessResult(exit_reason=ExitReason.FINISHED)
