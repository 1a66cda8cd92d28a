"""Modal's failures in the words of the domain: one table, one place."""

from collections.abc import Callable
from dataclasses import dataclass

import modal
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError
from h2.exceptions import H2Error

from ....domain.errors import AgentCompassError, ConfigError, SandboxBusy, SandboxFailed, SandboxStartFailed
from ....domain.one_line import one_line

FAILURES = (modal.Error, GRPCError, ProtocolError, H2Error, StreamTerminatedError, OSError, TimeoutError)
"""What a call of the SDK may raise because of the provider or the network."""

_OUTAGE = "Modal or the network is out of order; once it is well, the same command resumes the run"
_Kind = Callable[..., AgentCompassError]
_error = modal.exception


@dataclass(frozen=True)
class _Rule:
    errors: tuple[type[BaseException], ...]
    kind: _Kind
    hint: str = ""
    phrases: tuple[str, ...] = ()
    """Only where the message has one of these."""


_BILLING = ("billing", "spend limit", "spending", "budget", "payment", "credit")
_RULES = (
    _Rule(
        (_error.AuthError,), ConfigError, "`modal token info` tells whether the token is valid, `modal setup` makes one"
    ),
    _Rule((_error.PermissionDeniedError,), SandboxStartFailed, "the token's role does not allow it"),
    _Rule((_error.ResourceExhaustedError,), SandboxStartFailed, "look at the workspace's billing", _BILLING),
    _Rule((_error.ResourceExhaustedError,), SandboxBusy, "lower task_concurrency or create_rate"),
    _Rule((_error.ImageBuildError,), SandboxBusy, "", ("external shut-down", "external shutdown")),
    _Rule(
        (_error.ImageBuildError,),
        SandboxStartFailed,
        "check the image's name and registry credentials, or the Dockerfile",
    ),
    _Rule((_error.VersionError,), SandboxStartFailed, "pip install --upgrade modal"),
    _Rule((_error.AlreadyExistsError,), SandboxStartFailed),
    _Rule(
        (_error.NotFoundError,),
        SandboxStartFailed,
        "check app_name, environment_name, named_image, secrets and volumes",
    ),
    _Rule((_error.ConflictError,), SandboxBusy),
    _Rule((_error.InvalidError, _error.UnimplementedError, _error.ExecutionError), SandboxStartFailed),
    _Rule((_error.RequestSizeError,), SandboxStartFailed),
)


def explanation(error: BaseException) -> str:
    """What was said, on one line."""
    silent = "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
    return one_line(str(error)) or silent


def start_error(error: BaseException, doing: str) -> AgentCompassError:
    """An image or a sandbox could not be had: SandboxBusy where it may go better, the other kinds for good."""
    said = explanation(error)
    lowered = said.lower()
    for rule in _RULES:
        if isinstance(error, rule.errors) and (not rule.phrases or any(each in lowered for each in rule.phrases)):
            return rule.kind(f"{doing}: {said}", hint=rule.hint)
    return SandboxBusy(f"{doing}: {type(error).__name__}: {said}", hint=_OUTAGE)


def use_error(error: BaseException, doing: str) -> SandboxFailed:
    """A call on a sandbox that is alive failed."""
    return SandboxFailed(f"{doing}: {explanation(error)}")
