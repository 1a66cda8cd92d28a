"""Commands in a working directory that the agent may have removed."""

import secrets
import tempfile
from pathlib import Path, PurePosixPath

import structlog

from ....domain.errors import SandboxFailed
from ....domain.ports import Sandbox
from ....domain.sandbox import Command, ExecResult
from ..script_ends import last_line

log = structlog.get_logger()
_OPEN = "chmod 0777 ."
_OPEN_LIMIT_S = 60.0


async def exec_in_working_directory(sandbox: Sandbox, command: Command) -> ExecResult:
    """A script in the working directory, made again where the agent has removed it, or in / where it cannot be made.

    What began is never run again: the script is made to tell so, on a line that the result does not show.

    Raises:
        SandboxLost, SandboxFailed: as they came.
    """
    began = f"agentcompass-began-{secrets.token_hex(8)}\n"
    telling = command.model_copy(update={"script": f"echo {began.strip()} >&2\n{command.script}"})
    result = await sandbox.exec(telling)
    if _did_not_begin(result, began):
        log.warning("working_directory.missing", message=last_line(result.stderr))
        if await _made(sandbox):
            result = await sandbox.exec(telling)
        if _did_not_begin(result, began):
            result = await sandbox.exec(telling.model_copy(update={"cwd": PurePosixPath("/")}))
    return _without(began, result)


def _did_not_begin(result: ExecResult, began: str) -> bool:
    return result.exit_code == 1 and began not in result.stderr


def _without(line: str, result: ExecResult) -> ExecResult:
    if line not in result.stderr:
        return result
    left = {"stderr": result.stderr.replace(line, "", 1), "stderr_bytes": max(0, result.stderr_bytes - len(line))}
    return result.model_copy(update=left)


async def _made(sandbox: Sandbox) -> bool:
    """Only the sandbox knows where it is, and puts relative paths there."""
    with tempfile.TemporaryDirectory() as empty:
        try:
            await sandbox.upload(Path(empty), PurePosixPath("."))
        except SandboxFailed as exc:
            log.warning("working_directory.not_made", error=str(exc))
            return False
    await _open_to_all(sandbox)
    return True


async def _open_to_all(sandbox: Sandbox) -> None:
    """What is copied in belongs to root, and nobody knows any more whose the old one was."""
    for user in (None, "root"):
        if (await sandbox.exec(Command(script=_OPEN, user=user, timeout_s=_OPEN_LIMIT_S))).ok:
            return
