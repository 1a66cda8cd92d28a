"""A trajectory's steps, recorded as they happen."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from ....domain.attempt import AssistantContent, Step, StepMetric
from ....domain.model import ModelResponse
from ..agent_thread import LoopCalls


class StepLog:
    """One step for each reply: opened by `replied`, filled by `acted`, recorded by `close`.

    What is open when the agent is cut or broken is recorded by `flush`.
    """

    def __init__(self, calls: LoopCalls, record_step: Callable[[Step], Awaitable[None]]) -> None:
        self._calls = calls
        self._record_step = record_step
        self._number = 0
        self._open: dict[str, Any] | None = None
        self._metric: dict[str, float | int | None] = {}
        self._outputs: list[str] = []

    def replied(self, response: ModelResponse, prompts: tuple[str, str] | None) -> None:
        """A reply came; `prompts` are the system and user texts where they are new."""
        system, user = prompts or (None, None)
        message = response.message
        content = AssistantContent(
            content=message.content, reasoning_content=message.reasoning_content, tool_calls=message.tool_calls
        )
        self._number += 1
        self._open = {"system_prompt": system, "user_content": user, "assistant_content": content, "timestamp": _now()}
        self._outputs = []
        self._metric = {
            "prompt_tokens_len": response.usage.input_tokens,
            "completion_tokens_len": response.usage.output_tokens,
            "llm_infer_ms": round(response.latency_s * 1000, 3),
        }

    def acted(self, output: str, seconds: float) -> None:
        """An action of this reply ran and printed `output`."""
        self._outputs.append(output)
        self._metric["env_action_ms"] = round((self._metric.get("env_action_ms") or 0) + seconds * 1000, 3)

    def close(self, observation: str | None = None) -> None:
        """In the agent's thread: record the step, with what the model is shown, else with its actions' outputs."""
        step = self._take(observation)
        if step is not None:
            self._calls(lambda: self._record_step(step))

    async def flush(self) -> None:
        """In the event loop, when the thread has ended: record what was open."""
        step = self._take(None)
        if step is not None:
            await self._record_step(step)

    def _take(self, observation: str | None) -> Step | None:
        if self._open is None:
            return None
        if observation is None and self._outputs:
            observation = "\n".join(self._outputs)
        metric = StepMetric.model_validate(self._metric)
        step = Step(step_id=self._number, observation=observation, metric=metric, **self._open)
        self._open = None
        return step


def _now() -> str:
    return datetime.now(UTC).isoformat()
