"""What each failure of the SDK means: again, never, or the user's mistake."""

import modal
import pytest
from agentcompass.adapters.environments.modal.errors import FAILURES, start_error, use_error
from agentcompass.domain.errors import AgentCompassError, ConfigError, SandboxBusy, SandboxFailed, SandboxStartFailed
from grpclib.const import Status
from grpclib.exceptions import GRPCError, StreamTerminatedError

E = modal.exception
TABLE: list[tuple[BaseException, type[AgentCompassError], str]] = [
    (E.ServiceError("unavailable"), SandboxBusy, ""),
    (E.InternalError("oops"), SandboxBusy, ""),
    (E.ConnectionError("no route"), SandboxBusy, ""),
    (ConnectionResetError("reset"), SandboxBusy, ""),
    (TimeoutError(), SandboxBusy, ""),
    (StreamTerminatedError("connection lost"), SandboxBusy, ""),
    (GRPCError(Status.UNAVAILABLE, "gone"), SandboxBusy, ""),
    (E.ResourceExhaustedError("Sandbox creation rate limit (5/s) exceeded"), SandboxBusy, "create_rate"),
    (E.ResourceExhaustedError("Insufficient capacity to create sandbox."), SandboxBusy, "task_concurrency"),
    (E.ResourceExhaustedError("the workspace's spend limit is reached"), SandboxStartFailed, "billing"),
    (E.ConflictError("app is being stopped"), SandboxBusy, ""),
    (E.InvalidError("bad region"), SandboxStartFailed, ""),
    (E.AuthError("Token validation failed"), ConfigError, "modal token info"),
    (E.PermissionDeniedError("no"), SandboxStartFailed, "role"),
    (E.NotFoundError("no such secret"), SandboxStartFailed, "secrets"),
    (E.AlreadyExistsError("name is taken"), SandboxStartFailed, ""),
    (E.UnimplementedError("not on V2"), SandboxStartFailed, ""),
    (E.VersionError("too old"), SandboxStartFailed, "pip install --upgrade modal"),
    (E.ImageBuildError("Image build failed", "im-1"), SandboxStartFailed, "Dockerfile"),
    (E.ImageBuildError("terminated due to external shut-down. Please try again.", "im-1"), SandboxBusy, ""),
]


@pytest.mark.parametrize(("error", "kind", "hint"), TABLE, ids=lambda value: str(value)[:40] if value else "")
def test_a_failed_start_is_told_by_its_kind(error: BaseException, kind: type[AgentCompassError], hint: str) -> None:
    told = start_error(error, "creation")

    assert type(told) is kind
    assert told.message.startswith("creation: ")
    assert hint in told.hint


@pytest.mark.parametrize(("error", "kind", "hint"), TABLE, ids=lambda value: str(value)[:40] if value else "")
def test_every_such_failure_is_caught(error: BaseException, kind: type[AgentCompassError], hint: str) -> None:
    assert isinstance(error, FAILURES)


def test_a_failed_call_is_told_on_one_line() -> None:
    told = use_error(E.ServiceError("one\n  two\x1b[2J"), "exec")

    assert type(told) is SandboxFailed
    assert told.message == "exec: one two\\x1b[2J"


def test_a_time_out_without_words_is_told_all_the_same() -> None:
    assert use_error(TimeoutError(), "exec").message == "exec: no answer in time"
