"""command: the user's own agent, a command that runs in the task's sandbox."""

import hashlib
import os
import shlex
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import ClassVar

from pydantic import Field, JsonValue

from ...domain.attempt import AttemptContext, ExitReason, HarnessResult
from ...domain.errors import ConfigError, HarnessFailed
from ...domain.local_path import LocalPath, local_path
from ...domain.model import ModelEndpoint
from ...domain.ports import Model, Sandbox
from ...domain.sandbox import Command
from ...domain.task import PreparedTask
from ...domain.value import Parameters
from .program import MAX_OUTPUT_BYTES, Deadline, exit_reason, outcome, record_program, text_of, write_log

LOG, INSTALL_LOG = "agent.txt", "install.txt"
INSTRUCTION_FILE = PurePosixPath("/tmp/agentcompass/instruction.md")
ANSWER_FILE = PurePosixPath("/tmp/agentcompass-answer.txt")
"""Beside, not inside, the instruction's folder, which an agent that is not root cannot write to."""
MAX_ANSWER_BYTES = 16 * 1024 * 1024
TAIL_CHARS = 500
_PATHS = (
    f'export AGENTCOMPASS_INSTRUCTION_FILE="${{AGENTCOMPASS_ROOT:-}}{INSTRUCTION_FILE}" '
    f'AGENTCOMPASS_ANSWER_FILE="${{AGENTCOMPASS_ROOT:-}}{ANSWER_FILE}"; exec 2>&1\n'
)


class CommandParameters(Parameters):
    """What to run, and what it may know.

    The command finds the task in the file `$AGENTCOMPASS_INSTRUCTION_FILE`, and may leave its answer, where the
    benchmark wants one, in `$AGENTCOMPASS_ANSWER_FILE`.
    """

    command: str | tuple[str, ...] = ""
    """A bash script, or a program with its arguments."""
    upload: LocalPath | None = None
    """Local file or folder that is copied into the sandbox first."""
    upload_target: PurePosixPath = PurePosixPath("/opt/agent")
    install: str | None = None
    """A bash script that runs before the command, with a limit of its own."""
    install_user: str | None = None
    """None is root where the task has its agent run as another user, else the sandbox's own user."""
    install_timeout_s: float = Field(default=600, gt=0)
    env: dict[str, str] = Field(default_factory=dict)
    """Variables of the command and of `install`. The values of names such as AGENT_API_KEY are masked as secrets."""
    expose_model: bool = False
    """Give the command the model's address, key and name: OPENAI_BASE_URL and OPENAI_API_KEY (ANTHROPIC_... where that
    is its protocol), and AGENTCOMPASS_MODEL. The agent can then read the key."""


class CommandHarness:
    """Your own agent: a command that runs in the task's sandbox.

    Ends as `finished`, as `agent_error` when the command's exit code is not 0, or as `time_limit`.
    All are graded. What it printed is the log `agent.txt`; the trajectory is one step.
    """

    Parameters: ClassVar[type[Parameters]] = CommandParameters
    needs_sandbox: ClassVar[bool] = True
    needs_model: ClassVar[bool] = False

    def __init__(self, parameters: CommandParameters) -> None:
        """Raises ConfigError: no command is given, or there is nothing at `upload`."""
        if not parameters.command:
            raise ConfigError("harness command has no command to run", hint="set its parameter command")
        if parameters.upload is not None and not local_path(parameters.upload).exists():
            raise ConfigError(f"harness command: nothing to upload at {str(parameters.upload)!r}")
        self._parameters = parameters

    def exposes_model(self) -> bool:
        """As the parameter `expose_model` says."""
        return self._parameters.expose_model

    def files(self) -> Mapping[str, JsonValue]:
        """`upload_sha256`: of the names, modes and bytes of what is uploaded."""
        upload = self._parameters.upload
        try:
            return {} if upload is None else {"upload_sha256": _sha256(local_path(upload).resolve())}
        except OSError as exc:
            raise ConfigError(f"harness command: the upload cannot be read: {exc}") from exc

    async def run(
        self, task: PreparedTask, sandbox: Sandbox | None, model: Model | None, context: AttemptContext
    ) -> HarnessResult:
        """As the port says. An `install` that fails is HarnessFailed."""
        if sandbox is None:
            raise HarnessFailed("harness command needs a sandbox")
        deadline = Deadline(context.time_limit_s)
        env = task.agent_env | self._model_env(context) | self._parameters.env
        await self._set_up(task, sandbox, context, env, deadline)
        await sandbox.write_bytes(INSTRUCTION_FILE, task.instruction.encode("utf-8", "replace"))
        result = await sandbox.exec(self._command(task, env, deadline))
        await write_log(context, LOG, text_of(result), env)
        await record_program(context, task.instruction, self._shown(), result, env)
        answer, problem = await _answer(sandbox)
        return HarnessResult(
            exit_reason=exit_reason(result, failed=ExitReason.AGENT_ERROR),
            final_answer=answer,
            extra={"exit_code": result.exit_code} | ({"answer_error": problem} if problem else {}),
        )

    def _model_env(self, context: AttemptContext) -> dict[str, str]:
        endpoint = context.endpoint if self._parameters.expose_model else None
        return {} if endpoint is None else _endpoint_env(endpoint)

    async def _set_up(
        self, task: PreparedTask, sandbox: Sandbox, context: AttemptContext, env: dict[str, str], deadline: Deadline
    ) -> None:
        chosen = self._parameters
        if chosen.upload is not None:
            await sandbox.upload(local_path(chosen.upload), chosen.upload_target)
        if chosen.install is None:
            return
        limit_s = deadline.left_s(chosen.install_timeout_s)
        command = Command(
            script=f"exec 2>&1\n{chosen.install}",
            env=env,
            user=chosen.install_user or ("root" if task.agent_user else None),
            timeout_s=limit_s,
            max_output_bytes=MAX_OUTPUT_BYTES,
        )
        result = await sandbox.exec(command)
        await write_log(context, INSTALL_LOG, text_of(result), env)
        if not result.ok:
            tail = text_of(result).strip()[-TAIL_CHARS:]
            limit = "install_timeout_s" if limit_s == chosen.install_timeout_s else "what is left of the agent's limit"
            named = f", {limit}: {limit_s:g} s" if result.timed_out else ""
            raise HarnessFailed(f"harness command: install failed ({outcome(result)}{named}): {tail!r}")

    def _command(self, task: PreparedTask, env: dict[str, str], deadline: Deadline) -> Command:
        chosen = self._parameters.command
        script = chosen if isinstance(chosen, str) else f"exec {shlex.join(chosen)}"
        return Command(
            script=_PATHS + script,
            cwd=task.workspace_root,
            env=env,
            user=task.agent_user,
            timeout_s=deadline.left_s(),
            max_output_bytes=MAX_OUTPUT_BYTES,
        )

    def _shown(self) -> str:
        chosen = self._parameters.command
        return chosen if isinstance(chosen, str) else shlex.join(chosen)


async def _answer(sandbox: Sandbox) -> tuple[str, str]:
    """The answer, and why it cannot be taken where the agent left something else than a file of bearable size."""
    try:
        data = await sandbox.read_bytes(ANSWER_FILE, MAX_ANSWER_BYTES)
    except FileNotFoundError:
        return "", ""
    except ValueError as exc:
        return "", str(exc)
    return data.decode("utf-8", "replace"), ""


def _sha256(source: Path) -> str:
    total = hashlib.sha256()
    for name, path in sorted(_below(source)) if source.is_dir() else [(b"", source)]:
        mode = path.lstat().st_mode
        total.update(b"%b\0%o\0%b" % (name, mode, _content_digest(path, mode)))
    return total.hexdigest()


def _below(folder: Path) -> Iterator[tuple[bytes, Path]]:
    for here, folders, files in os.walk(folder, onerror=_raised):
        for path in (Path(here, name) for name in folders + files):
            yield os.fsencode(path.relative_to(folder)), path


def _raised(error: OSError) -> None:
    raise error


def _content_digest(path: Path, mode: int) -> bytes:
    if stat.S_ISREG(mode):
        with path.open("rb") as content:
            return hashlib.file_digest(content, "sha256").digest()
    return hashlib.sha256(os.fsencode(os.readlink(path)) if stat.S_ISLNK(mode) else b"").digest()


def _endpoint_env(endpoint: ModelEndpoint) -> dict[str, str]:
    vendor = "ANTHROPIC" if endpoint.protocol == "anthropic" else "OPENAI"
    env = {"AGENTCOMPASS_MODEL": endpoint.name}
    if endpoint.base_url is not None:
        env[f"{vendor}_BASE_URL"] = endpoint.base_url
    if endpoint.api_key is not None:
        env[f"{vendor}_API_KEY"] = endpoint.api_key.get_secret_value()
    return env
