"""A harness that returns what it was told to."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import ClassVar, TypeAlias

from pydantic import JsonValue

from ...domain.attempt import AssistantContent, AttemptContext, ExitReason, HarnessResult, Step
from ...domain.ports import Model, Sandbox
from ...domain.task import PreparedTask
from ...domain.value import Parameters as AdapterParameters
from .calling import settled

HarnessScript: TypeAlias = Callable[
    [PreparedTask, Sandbox | None, Model | None, AttemptContext], HarnessResult | Awaitable[HarnessResult]
]


class FakeHarnessParameters(AdapterParameters):
    """The fixed result, and how long it takes."""

    exit_reason: ExitReason = ExitReason.SUBMITTED
    submission: str | None = "42"
    final_answer: str = ""
    steps: int = 1
    sleep_s: float = 0


class FakeHarness:
    """Records `steps` steps, sleeps, then gives a fixed result or that of a function (which may raise).

    `runs` counts calls, `running` those not ended yet, `peak_running` the most of them at once.
    """

    needs_sandbox: ClassVar[bool] = True
    needs_model: ClassVar[bool] = False

    Parameters: ClassVar[type[AdapterParameters]] = FakeHarnessParameters

    def __init__(
        self,
        parameters: FakeHarnessParameters | None = None,
        *,
        result: HarnessResult | HarnessScript | None = None,
        needs_sandbox: bool | None = None,
        needs_model: bool | None = None,
        exposes_model: bool = False,
        files: Mapping[str, JsonValue] | None = None,
    ) -> None:
        self.parameters = parameters or FakeHarnessParameters()
        self.result = self._fixed() if result is None else result
        self._exposes_model = exposes_model
        self._files = files or {}
        self.runs = self.running = self.peak_running = 0
        wanted = {"needs_sandbox": needs_sandbox, "needs_model": needs_model}
        vars(self).update({name: value for name, value in wanted.items() if value is not None})  # the port's ClassVars

    def exposes_model(self) -> bool:
        """As told."""
        return self._exposes_model

    def files(self) -> Mapping[str, JsonValue]:
        """As told."""
        return self._files

    def _fixed(self) -> HarnessResult:
        chosen = self.parameters
        submission = None if chosen.submission is None else chosen.submission.encode()
        return HarnessResult(exit_reason=chosen.exit_reason, submission=submission, final_answer=chosen.final_answer)

    async def run(
        self, task: PreparedTask, sandbox: Sandbox | None, model: Model | None, context: AttemptContext
    ) -> HarnessResult:
        """The result, after the steps and the sleep."""
        self.runs += 1
        self.running += 1
        self.peak_running = max(self.peak_running, self.running)
        try:
            for number in range(1, self.parameters.steps + 1):
                await context.record_step(fake_step(number))
            await asyncio.sleep(self.parameters.sleep_s)
            if isinstance(self.result, HarnessResult):
                return self.result
            return await settled(self.result(task, sandbox, model, context))
        finally:
            self.running -= 1


def fake_step(number: int) -> Step:
    """The step of this number."""
    return Step(
        step_id=number,
        assistant_content=AssistantContent(content=f"step {number}"),
        observation="",
        timestamp=datetime.now(UTC).isoformat(),
    )
