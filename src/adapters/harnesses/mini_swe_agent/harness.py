"""mini-swe-agent: the package's own, unmodified agent, on our model and sandbox."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

import structlog
from pydantic import JsonValue

from ....domain.attempt import AttemptContext, ExitReason, HarnessResult
from ....domain.errors import ContextExceeded, HarnessFailed
from ....domain.ports import Model, Sandbox
from ....domain.task import PreparedTask
from ....domain.value import Parameters
from ...support.cleanup import cleaned_up
from ..agent_thread import LoopCalls, run_in_thread
from ..program import redactor
from .config import AgentSettings, MiniSweAgentParameters, refuse_unwatched, resolve_settings
from .environment import SandboxEnvironment
from .model import PortModel
from .package import load_package
from .steps import StepLog

log = structlog.get_logger()
CONFIG_KEY = "mini_swe_agent_config"
"""In `PreparedTask.extra`: the config that the benchmark's published numbers were made with."""
TRAJECTORY = "mini-swe-agent.traj.json"
FLUSH_LIMIT_S = 30.0


class MiniSweAgentHarness:
    """mini-swe-agent's own agent loop, in the task's sandbox, on your model.

    Prompts, limits and parsing are the package's.
    """

    Parameters: ClassVar[type[Parameters]] = MiniSweAgentParameters
    needs_sandbox: ClassVar[bool] = True
    needs_model: ClassVar[bool] = True

    def __init__(self, parameters: MiniSweAgentParameters) -> None:
        """Raises ConfigError: the package is missing, or there is no such config."""
        self._parameters = parameters
        self._settings = cache(lambda wanted: resolve_settings(parameters, wanted))
        self._settings(None)

    def exposes_model(self) -> bool:
        """No: it asks the model port."""
        return False

    def files(self) -> Mapping[str, JsonValue]:
        """`config_sha256` where the config is a file of the user's."""
        digest = self._settings(None).config_sha256
        return {} if digest is None else {"config_sha256": digest}

    async def run(
        self, task: PreparedTask, sandbox: Sandbox | None, model: Model | None, context: AttemptContext
    ) -> HarnessResult:
        """As the port says; also raises ConfigError for a cost limit that cannot be watched."""
        if sandbox is None or model is None:
            raise HarnessFailed("harness mini_swe_agent needs a sandbox and a model")
        refuse_unwatched(self._parameters.cost_limit, model.price)
        wanted = None if self._parameters.config else task.extra.get(CONFIG_KEY)
        settings = self._settings(wanted if isinstance(wanted, str) else None)
        attempt = _Attempt(task, sandbox, model, context, settings)
        try:
            return await run_in_thread(attempt.work, name=f"mini-swe-agent {context.task_id}.{context.attempt}")
        finally:
            await cleaned_up(attempt.flush(), FLUSH_LIMIT_S, f"last step of {context.task_id}.{context.attempt}")


class _Attempt:
    def __init__(
        self, task: PreparedTask, sandbox: Sandbox, model: Model, context: AttemptContext, settings: AgentSettings
    ) -> None:
        self._task, self._sandbox, self._model, self._context = task, sandbox, model, context
        self._settings = settings
        self._steps: StepLog | None = None

    async def flush(self) -> None:
        if self._steps is not None:
            await self._steps.flush()

    def work(self, calls: LoopCalls) -> HarnessResult:
        """In the thread: the package's agent, from its first prompt to its end."""
        package, settings = load_package(), self._settings
        steps = self._steps = StepLog(calls, self._context.record_step)
        model = PortModel(self._model, settings, package, calls, steps)
        environment = SandboxEnvironment(self._sandbox, self._task, settings, package, calls, steps)
        limit = settings.cost_limit(self._model.price)
        agent = package.agent(model, environment, **settings.agent | {"cost_limit": limit})
        try:
            status = str(agent.run(self._task.instruction).get("exit_status", ""))
            reason = _exit_reason(status, agent, model)
        except ContextExceeded:
            status, reason = "ContextExceeded", ExitReason.CONTEXT_EXCEEDED
        finally:
            self._save(agent, environment.env)
        submission = environment.submission
        return HarnessResult(
            exit_reason=reason,
            submission=submission,
            final_answer=(submission or b"").decode("utf-8", "replace"),
            extra={
                "version": package.version,
                "config": settings.name,
                "n_calls": agent.n_calls,
                "exit_status": status,
            },
        )

    def _save(self, agent: Any, env: Mapping[str, str]) -> None:
        text = redactor(self._context, env).text(json.dumps(agent.save(None), indent=2, default=str))
        try:
            (self._context.log_dir / TRAJECTORY).write_text(text, encoding="utf-8")
        except OSError as exc:
            log.warning("trajectory.not_saved", file=TRAJECTORY, error=str(exc))


def _exit_reason(status: str, agent: Any, model: PortModel) -> ExitReason:
    if status == "LimitsExceeded":
        by_steps = 0 < agent.config.step_limit <= agent.n_calls
        return ExitReason.STEP_LIMIT if by_steps else ExitReason.COST_LIMIT
    if status == "RepeatedFormatError":
        mostly_cut = 2 * sum(model.cut_replies) > len(model.cut_replies)
        return ExitReason.OUTPUT_LENGTH if mostly_cut else ExitReason.FORMAT_ERRORS
    return {"Submitted": ExitReason.SUBMITTED, "TimeExceeded": ExitReason.TIME_LIMIT}.get(status, ExitReason.FINISHED)
