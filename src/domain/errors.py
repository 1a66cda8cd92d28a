"""The error tree; the class decides what happens next, never a name or a message.

AgentCompassError
 |- ConfigError           the user's input is wrong; nothing was started (exit 2)
 |- SandboxBusy           nothing was created, try the call again            retryable, transient
 |- SandboxStartFailed    this sandbox cannot start as specified (no such image, build failed)
 |- SandboxLost           the sandbox died under us                                     transient
 |- SandboxFailed         the provider failed a call on a live sandbox                  transient
 |- StageTimeout          a stage outlived its budget                                   transient
 |- ModelBusy             429, 5xx, no connection                            retryable, transient
 |- ModelRefused          the endpoint refuses this request (401, 400, unknown model)
 |- ContextExceeded       the conversation no longer fits the model
 |- BudgetSpent           the endpoint says that the account's money is gone
 |- HarnessFailed         the agent program itself broke
 |- ResultsUnwritable     the machine refuses what a run is to store; the run ends
 |- BenchmarkBroken       our task data or grader broke, not the agent
    |- VerifierFailed     the verifier could not run or gave no verdict                 transient
"""

from collections.abc import Mapping
from typing import ClassVar


class AgentCompassError(Exception):
    """Base of all errors. `message` says what failed, `hint` what to do now, `context` ids for the log (no secrets)."""

    retryable: ClassVar[bool] = False
    """The same call may be made again at once: it left nothing behind."""
    transient: ClassVar[bool] = False
    """A new try of the whole attempt may go better."""

    def __init__(self, message: str, *, hint: str = "", context: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.context = dict(context or {})

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class ConfigError(AgentCompassError, ValueError):
    """The command or its settings are wrong."""


class SandboxBusy(AgentCompassError):
    """The provider created nothing and may do so later."""

    retryable = True
    transient = True


class SandboxStartFailed(AgentCompassError):
    """The sandbox cannot start as specified; trying again would fail the same way."""


class SandboxLost(AgentCompassError, ConnectionError):
    """The sandbox died: killed, out of memory, end of its lifetime, removed from outside."""

    transient = True


class SandboxFailed(AgentCompassError):
    """The provider failed a call although the sandbox is alive."""

    transient = True


class StageTimeout(AgentCompassError, TimeoutError):
    """A stage outlived its budget. `limit` names the setting, `limit_s` its value, `elapsed_s` the measured time."""

    transient = True

    def __init__(self, limit: str, limit_s: float, elapsed_s: float) -> None:
        message = f"limit {limit} of {limit_s:g} s reached after {elapsed_s:.1f} s"
        super().__init__(message, hint=f"raise {limit}")
        self.limit, self.limit_s, self.elapsed_s = limit, limit_s, elapsed_s


class ModelBusy(AgentCompassError):
    """The endpoint is overloaded or out of reach."""

    retryable = True
    transient = True


class ModelRefused(AgentCompassError):
    """The endpoint refuses this request for good."""


class ContextExceeded(AgentCompassError):
    """The conversation is longer than the model's context."""


class BudgetSpent(AgentCompassError):
    """The account behind the endpoint has no money left."""


class HarnessFailed(AgentCompassError):
    """The agent program broke; this says nothing about the task."""


class ResultsUnwritable(AgentCompassError):
    """A disk, a mount or a limit of the machine keeps a result from being stored; what was stored before is whole."""


class BenchmarkBroken(AgentCompassError):
    """The task's data or its grader is broken."""


class VerifierFailed(BenchmarkBroken):
    """The verifier could not run or left no verdict that can be read: an error, never a zero."""

    transient = True
