"""What the package's agent takes for its environment: our Sandbox, called from its thread."""

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any

from ....domain.ports import Sandbox
from ....domain.sandbox import Command, ExecResult
from ....domain.task import PreparedTask
from ..agent_thread import LoopCalls
from .config import UNAME, AgentSettings
from .package import Package
from .steps import StepLog
from .submission import (
    MARKER,
    MAX_SUBMISSION_BYTES,
    NOISE_LINES,
    Capture,
    handed_in,
    is_shell,
    prefixed,
)

UNAME_LIMIT_S = 30.0
NOT_EXACT = (
    "Not submitted: this output is too large or not UTF-8, and could not be taken over byte for byte. "
    f"Submit by `echo {MARKER} && cat FILE`, as the command itself"
)


@dataclass(frozen=True)
class _Printed:
    """What a command printed: as text for the model, and as the bytes that a submission is taken from."""

    text: str
    data: bytes
    exact: bool
    """`data` is the whole output, byte for byte."""


class SandboxEnvironment:
    """The package's Environment protocol over a Sandbox; one of each attempt."""

    def __init__(
        self,
        sandbox: Sandbox,
        task: PreparedTask,
        settings: AgentSettings,
        package: Package,
        calls: LoopCalls,
        steps: StepLog,
    ) -> None:
        self._sandbox, self._task, self._settings, self._package = sandbox, task, settings, package
        self._calls, self._steps = calls, steps
        self.env = settings.env | task.agent_env | settings.user_env
        self.config = SimpleNamespace(cwd=str(task.workspace_root or ""), timeout=settings.command_limit_s)
        self._uname: dict[str, str] | None = None
        self._token = secrets.token_hex(6)
        self._captures = 0
        self.submission: bytes | None = None

    def execute(self, action: dict[str, Any], cwd: str = "") -> dict[str, Any]:
        """Run a command; raises the package's Submitted for a submission."""
        started = time.monotonic()
        if (reason := _unrunnable(action["command"])) is not None:
            output: dict[str, Any] = {"output": "", "returncode": -1, "exception_info": reason}
        else:
            output = self._run(action["command"], cwd)
        self._steps.acted(_plain(output), time.monotonic() - started)
        if self.submission is not None:
            self._submit(self.submission)
        return output

    def _submit(self, answer: bytes) -> None:
        self._steps.close()
        text = answer.decode("utf-8", "replace")
        extra = {"exit_status": "Submitted", "submission": text}
        raise self._package.submitted({"role": "exit", "content": text, "extra": extra})

    def _run(self, command: str, cwd: str) -> dict[str, Any]:
        capture = self._new_capture() if MARKER in command and is_shell(self._settings.interpreter) else None
        result = self._exec(command, cwd, capture)
        printed = self._printed(result, capture)
        answer = handed_in(printed.data, NOISE_LINES if capture else 0) if result.ok else None
        output = self._output(result, printed.text)
        if answer is not None and not printed.exact:
            output["exception_info"] = NOT_EXACT
        else:
            self.submission = answer
        return output

    def _printed(self, result: ExecResult, capture: Capture | None) -> _Printed:
        exact = not result.truncated and "\ufffd" not in result.stdout
        before, own = ("", result.stdout) if capture is None else capture.split(result.stdout)
        before = result.stderr + before  # what is still on stderr came before the two were merged
        if capture is None or (own is not None and exact):
            return _Printed(before + (own or ""), (own or "").encode(), exact)
        data = self._captured(capture)
        if own is None:
            own = _kept(data or b"", self._settings.max_output_bytes)
        whole = data if data is not None else (before + own).encode()
        return _Printed(before + own, whole, exact or data is not None)

    def _new_capture(self) -> Capture:
        self._captures += 1
        name = f"agentcompass-output-{self._token}-{self._captures}"
        return Capture(path=PurePosixPath("/tmp") / name, seal=name)

    def _captured(self, capture: Capture) -> bytes | None:
        try:
            return self._calls(lambda: self._sandbox.read_bytes(capture.path, MAX_SUBMISSION_BYTES))
        except (FileNotFoundError, ValueError):
            return None

    def _exec(self, command: str, cwd: str, capture: Capture | None) -> ExecResult:
        settings = self._settings
        script = prefixed(command, capture) if is_shell(settings.interpreter) else command
        form = {"argv": (*settings.interpreter, script)} if settings.interpreter else {"script": script}
        request = Command.model_validate(
            form
            | {
                "cwd": PurePosixPath(cwd) if cwd else self._task.workspace_root,
                "env": self.env,
                "user": self._task.agent_user,
                "timeout_s": settings.command_limit_s,
                "max_output_bytes": settings.max_output_bytes,
            }
        )
        return self._calls(lambda: self._sandbox.exec(request))

    def _output(self, result: ExecResult, text: str) -> dict[str, Any]:
        if result.truncated:
            printed = result.stdout_bytes + result.stderr_bytes
            text = f"[output truncated: of {printed} bytes only the first and last are shown]\n{text}"
        info = ""
        if result.timed_out:
            limit = self._settings.command_limit_s
            info = f"The command was killed: command limit {limit:g} s reached after {result.duration_s:.1f} s"
        return {"output": text, "returncode": -1 if result.timed_out else result.exit_code, "exception_info": info}

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        """For the package's templates; the machine they may name is the sandbox."""
        if self._uname is None:
            self._uname = self._ask_uname() if self._settings.needs_uname else {}
        return {"cwd": self.config.cwd, "env": self.env, "timeout": self._settings.command_limit_s} | self._uname

    def _ask_uname(self) -> dict[str, str]:
        command = Command(script="uname -s; uname -n; uname -r; uname -v; uname -m", timeout_s=UNAME_LIMIT_S)
        result = self._calls(lambda: self._sandbox.exec(command))
        lines = result.stdout.splitlines() if result.ok else []
        lines = lines[-len(UNAME) :] if len(lines) >= len(UNAME) else ["Linux", "", "", "", ""]
        return dict(zip(UNAME, lines, strict=True))

    def serialize(self) -> dict[str, Any]:
        """For the package's trajectory file."""
        config = {"sandbox": self._sandbox.id, "image": self._sandbox.image, **vars(self.config)}
        return {"info": {"config": {"environment": config, "environment_type": f"{__name__}.SandboxEnvironment"}}}


def _unrunnable(command: str) -> str | None:
    """Why no shell can be given this text."""
    if "\0" in command:
        return "The command was not run: it holds a NUL character"
    try:
        command.encode()
    except UnicodeEncodeError as exc:
        return f"The command was not run: {exc}"
    return None


def _kept(content: bytes, limit: int) -> str:
    if len(content) > limit:
        content = content[: limit // 2] + b"\n[output truncated]\n" + content[-(limit // 2) :]
    return content.decode("utf-8", "replace")


def _plain(output: Mapping[str, Any]) -> str:
    parts = (output["exception_info"], f"<returncode>{output['returncode']}</returncode>", output["output"])
    return "\n".join(part for part in parts if part)
