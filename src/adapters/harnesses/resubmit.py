"""resubmit: hands in what an earlier run's agent had handed in, so that it is graded again without an agent."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import JsonValue, field_validator

from ...domain.attempt import AttemptContext, ExitReason, HarnessResult, is_whole
from ...domain.errors import ConfigError, HarnessFailed
from ...domain.local_path import LocalPath, local_path
from ...domain.naming import file_name
from ...domain.ports import Model, Sandbox
from ...domain.task import PreparedTask, Submission
from ...domain.value import Parameters


class ResubmitParameters(Parameters):
    """Which submissions."""

    run: LocalPath | None = None
    """Folder of the run that stored them: RESULTS_DIR/RUN_NAME/RUN_ID. Needed."""

    @field_validator("run")
    @classmethod
    def _stored(cls, value: Path | None) -> Path | None:
        if value is None:
            return None
        folder = local_path(value).absolute()
        if not (folder / "details").is_dir():
            raise ValueError(f"no run is stored in {str(folder)!r}")
        return folder


class ResubmitHarness:
    """Hands in the stored submission of the same task and attempt, byte for byte."""

    Parameters: ClassVar[type[Parameters]] = ResubmitParameters
    needs_sandbox: ClassVar[bool] = False
    needs_model: ClassVar[bool] = False

    def __init__(self, parameters: ResubmitParameters) -> None:
        """Raises ConfigError: no run is named."""
        if parameters.run is None:
            raise ConfigError("harness resubmit: no run given", hint="set the harness parameter run to a run's folder")
        self._run = parameters.run

    def exposes_model(self) -> bool:
        """No."""
        return False

    def files(self) -> Mapping[str, JsonValue]:
        """None."""
        return {}

    async def run(
        self, task: PreparedTask, sandbox: Sandbox | None, model: Model | None, context: AttemptContext
    ) -> HarnessResult:
        """As the port says.

        Raises:
            HarnessFailed: none is stored, its bytes are not those recorded, or an error cut the agent's work short.
        """
        return await asyncio.to_thread(self._stored, context)

    def _stored(self, context: AttemptContext) -> HarnessResult:
        record = self._record(context)
        _refuse_unfinished(record)
        path = self._run / "logs" / context.log_dir.name / "submission"
        try:
            content = path.read_bytes()
        except OSError as exc:
            raise HarnessFailed(f"run {str(self._run)!r} has no submission of this attempt: {exc}") from exc
        if Submission(content=content).sha256 != record.get("submission_sha256"):
            raise HarnessFailed(f"{str(path)!r} is not what was recorded: its sha256 differs")
        return HarnessResult(
            exit_reason=_exit_reason(record.get("exit_reason")),
            submission=content,
            final_answer=str(record.get("final_answer", "")),
            extra={"resubmitted_from": str(self._run)},
        )

    def _record(self, context: AttemptContext) -> dict[str, Any]:
        path = self._run / "details" / f"{file_name(context.task_id)}.json"
        try:
            record = json.loads(path.read_bytes())["attempts"][str(context.attempt)]
        except (OSError, ValueError, KeyError, TypeError) as exc:
            raise HarnessFailed(f"run {str(self._run)!r} has no attempt {context.attempt} of this task") from exc
        if not isinstance(record, dict):
            raise HarnessFailed(f"{str(path)!r} cannot be read")
        return record


def _refuse_unfinished(record: Mapping[str, Any]) -> None:
    status = str(record.get("status"))
    if not is_whole(status, record.get("exit_reason")):
        error = record.get("error") or "no reason is stored"
        raise HarnessFailed(f"the agent's work of this attempt is not whole: it is {status!r} ({error})")


def _exit_reason(stored: object) -> ExitReason:
    try:
        return ExitReason(str(stored or ExitReason.FINISHED.value))
    except ValueError as exc:
        raise HarnessFailed(f"the stored attempt's exit_reason {stored!r} is not known") from exc
