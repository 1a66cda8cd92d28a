"""One program that runs in the sandbox from its start to its end: its limit, its output, its one step."""

import asyncio
import time
from collections.abc import Mapping
from datetime import UTC, datetime

from ...domain.attempt import AssistantContent, AttemptContext, ExitReason, Step, StepMetric
from ...domain.redaction import Redactor, variable_secrets
from ...domain.sandbox import ExecResult

MAX_OUTPUT_BYTES = 8 * 1024 * 1024
TAIL_CHARS = 10_000
NO_ENV: Mapping[str, str] = {}


class Deadline:
    """The agent's time limit, from its construction on, less a margin in which a program that is cut can still be
    heard: the attempt itself is cancelled at the limit, and its output would be lost."""

    def __init__(self, limit_s: float) -> None:
        self._ends = time.monotonic() + limit_s - min(2.0, 0.05 * limit_s)

    def left_s(self, most: float = float("inf")) -> float:
        """Seconds left, more than 0, at most `most`."""
        return min(max(self._ends - time.monotonic(), 0.01), most)


def text_of(result: ExecResult) -> str:
    """All that was printed, with a note where something is missing."""
    text = result.stdout
    if result.stderr:
        text += f"{'' if not text or text.endswith(chr(10)) else chr(10)}[stderr]\n{result.stderr}"
    if result.truncated:
        printed = result.stdout_bytes + result.stderr_bytes
        text = f"[output truncated: of {printed} bytes only the first and last are kept]\n{text}"
    return text


def outcome(result: ExecResult) -> str:
    """`exit code 1 after 2.0 s`, or that its time limit was reached."""
    if result.timed_out:
        return f"time limit reached after {result.duration_s:.1f} s"
    return f"exit code {result.exit_code} after {result.duration_s:.1f} s"


def exit_reason(result: ExecResult, *, failed: ExitReason) -> ExitReason:
    """`finished` for exit code 0, `failed` for another, `time_limit` where it was cut."""
    if result.timed_out:
        return ExitReason.TIME_LIMIT
    return ExitReason.FINISHED if result.ok else failed


def redactor(context: AttemptContext, env: Mapping[str, str]) -> Redactor:
    """Masks what the attempt's files must not hold: the endpoint's key, and the secrets among variables."""
    endpoint = context.endpoint
    key = endpoint.api_key.get_secret_value() if endpoint is not None and endpoint.api_key is not None else ""
    return Redactor([key, *variable_secrets(env)])


async def write_log(context: AttemptContext, name: str, text: str, env: Mapping[str, str] = NO_ENV) -> None:
    """Write `text`, secrets of the endpoint and of `env` masked, to the attempt's log `name`."""
    data = redactor(context, env).text(text).encode("utf-8", "backslashreplace")
    await asyncio.to_thread((context.log_dir / name).write_bytes, data)


async def record_program(
    context: AttemptContext, instruction: str, said: str, result: ExecResult, env: Mapping[str, str] = NO_ENV
) -> None:
    """Record the program's run as step 1, with the tail of its output, masked likewise."""
    text = redactor(context, env).text(text_of(result))
    tail = text if len(text) <= TAIL_CHARS else f"[...]\n{text[-TAIL_CHARS:]}"
    step = Step(
        step_id=1,
        user_content=instruction,
        assistant_content=AssistantContent(content=said),
        observation=f"{tail}{'' if not tail or tail.endswith(chr(10)) else chr(10)}[{outcome(result)}]",
        metric=StepMetric(env_action_ms=round(result.duration_s * 1000, 3)),
        timestamp=datetime.now(UTC).isoformat(),
    )
    await context.record_step(step)
