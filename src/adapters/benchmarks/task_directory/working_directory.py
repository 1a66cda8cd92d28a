"""Commands in a working directory that the agent may have removed."""

import tempfile
from pathlib import Path, PurePosixPath

import structlog

from ....domain.errors import SandboxFailed
from ....domain.ports import Sandbox
from ....domain.sandbox import Command, ExecResult
from ..script_ends import last_line

log = structlog.get_logger()


async def exec_in_working_directory(sandbox: Sandbox, command: Command) -> ExecResult:
    """In the working directory, made again where the agent has removed it, or in / where it cannot be made.

    What began is never run again.

    Raises:
        SandboxLost, SandboxFailed: as they came.
    """
    result = await sandbox.exec(command)
    if result.exit_code != 1 or result.stdout or await _begins(sandbox, command):
        return result
    log.warning("working_directory.missing", message=last_line(result.stderr))
    made = await _made(sandbox) and await _begins(sandbox, command)
    return await sandbox.exec(command if made else command.model_copy(update={"cwd": PurePosixPath("/")}))


async def _begins(sandbox: Sandbox, command: Command) -> bool:
    """Whether a status of 1 is the command's own: without the working directory nothing begins."""
    return (await sandbox.exec(command.model_copy(update={"script": ":", "argv": ()}))).exit_code != 1


async def _made(sandbox: Sandbox) -> bool:
    """Only the sandbox knows where it is, and puts relative paths there."""
    with tempfile.TemporaryDirectory() as empty:
        try:
            await sandbox.upload(Path(empty), PurePosixPath("."))
        except SandboxFailed as exc:
            log.warning("working_directory.not_made", error=str(exc))
            return False
    return True
