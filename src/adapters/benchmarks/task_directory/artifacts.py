"""What is kept of an agent's sandbox beside its grade: its logs, and the artifacts that the task names."""

import shlex
from pathlib import Path, PurePosixPath

import structlog
from pydantic import JsonValue

from ....domain.errors import SandboxFailed
from ....domain.ports import Sandbox
from ....domain.sandbox import Command
from .sandbox_logs import SIZE_FUNCTION, fetched, keep_deadline, read_size, size_call
from .task_toml import CollectHook, TaskToml
from .working_directory import exec_in_working_directory

log = structlog.get_logger()
MAX_ARTIFACT_BYTES = 256 * 1024 * 1024
AGENT_FOLDERS = {PurePosixPath("/logs/agent"): "agent", PurePosixPath("/logs/artifacts"): "artifacts"}
"""Kept of every attempt, under this name beside it."""
_MEASURE_LIMIT_S = 60.0


async def collect_artifacts(sandbox: Sandbox, config: TaskToml, log_dir: Path) -> dict[str, JsonValue]:
    """Run the collect hooks, then fetch what is there: one call, and one more for each path that holds something.

    Best effort: returns, for each path that the task names, `kept` or why it is not. /logs/agent and
    /logs/artifacts always belong to it, and are told only when they could not be fetched.

    Raises:
        SandboxLost: as it came.
    """
    for hook in config.verifier.collect:
        await _run_hook(sandbox, hook)
    sources = _sources(config)
    measuring = Command(script=_script(list(sources)), timeout_s=_MEASURE_LIMIT_S)
    try:
        measured = await exec_in_working_directory(sandbox, measuring)
    except SandboxFailed as exc:
        log.warning("artifacts.not_measured", error=str(exc))
        return {}
    deadline = keep_deadline()
    report: dict[str, JsonValue] = {}
    for number, (source, target) in enumerate(sources.items()):
        size = read_size(measured.stdout, str(number))
        reason = await fetched(sandbox, source, log_dir / target, size, MAX_ARTIFACT_BYTES, deadline=deadline)
        if number >= len(AGENT_FOLDERS) or reason not in ("", "missing", "empty"):
            report[str(source)] = reason or "kept"
    return report


def _sources(config: TaskToml) -> dict[PurePosixPath, str]:
    """Relative ones are so to the sandbox's working directory; they are kept as below the one of task.toml."""
    sources = dict(AGENT_FOLDERS)
    for artifact in config.artifacts:
        kept_as = PurePosixPath(config.environment.workdir or "/") / artifact.source
        target = artifact.destination or str(kept_as).lstrip("/")
        sources.setdefault(PurePosixPath(artifact.source), f"artifacts/{target}")
    return sources


def _script(sources: list[PurePosixPath]) -> str:
    lines = [size_call(str(number), _quoted(source), MAX_ARTIFACT_BYTES) for number, source in enumerate(sources)]
    return SIZE_FUNCTION + "".join(lines)


def _quoted(source: PurePosixPath) -> str:
    begin = '"${AGENTCOMPASS_ROOT:-}"' if source.is_absolute() else "./"
    return begin + shlex.quote(str(source))


async def _run_hook(sandbox: Sandbox, hook: CollectHook) -> None:
    command = Command(script=hook.command, user=hook.user, timeout_s=hook.timeout_sec)
    try:
        result = await exec_in_working_directory(sandbox, command)
    except SandboxFailed as exc:
        log.warning("collect_hook.failed", command=hook.command, error=str(exc))
        return
    if not result.ok:
        log.warning("collect_hook.failed", command=hook.command, exit_code=result.exit_code, timed_out=result.timed_out)
