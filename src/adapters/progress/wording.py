"""How numbers and outcomes are worded, the same in every display."""

from ...domain.attempt import AttemptKey, AttemptRecord, Status
from ...domain.events import AttemptRetried, Event, RunInterrupted
from ...domain.one_line import one_line
from ...domain.run import Rate, Spent
from .tally import Tally

MAX_CHARS = 400
"""Of a line about an attempt or a warning."""


def duration(seconds: float) -> str:
    """`0:07`, `12:30`, `1:02:03`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def score(rate: Rate | None) -> str:
    """`score 62.5 % [51.2, 72.9]`: the share of graded attempts that are correct, with its 95 % interval."""
    if rate is None or rate.value is None:
        return "no score yet"
    interval = f" [{rate.interval.low * 100:.1f}, {rate.interval.high * 100:.1f}]" if rate.interval else ""
    return f"score {rate.value * 100:.1f} %{interval}"


def tokens(spent: Spent) -> str:
    """Input and output tokens together: `950`, `12.3k`, `≥ 4.1M` where that is not all; `unknown` where nothing is."""
    known = [count for count in (spent.usage.input_tokens, spent.usage.output_tokens) if count is not None]
    return _at_least(_short(sum(known)), spent.attempts_without_tokens) if known else "unknown"


def _short(total: int) -> str:
    if total < 1000:
        return str(total)
    return f"{total / 1000:.1f}k" if total < 1_000_000 else f"{total / 1_000_000:.1f}M"


def cost(spent: Spent) -> str:
    """`$1.23`, `≥ $1.23` where that is not all, or `unknown`, which is not zero."""
    cost_usd = spent.usage.cost_usd
    return "unknown" if cost_usd is None else _at_least(f"${cost_usd:.2f}", spent.attempts_without_cost)


def _at_least(text: str, unknown_for: int) -> str:
    return f"≥ {text}" if unknown_for else text


def label(key: AttemptKey) -> str:
    """`task #attempt`."""
    return f"{one_line(key.task_id)} #{key.attempt}"


def outcome(record: AttemptRecord) -> str:
    """`correct`, `incorrect (step_limit)`, `run_error: start: ...`, in one line."""
    if record.status is Status.COMPLETED:
        verdict = "correct" if record.correct else "incorrect"
        return f"{verdict} ({record.exit_reason})" if record.exit_reason else verdict
    return f"{record.status}: {one_line(record.error)}" if record.error else str(record.status)


def state(tally: Tally) -> str:
    """The whole run in one line."""
    parts = [f"{tally.done}/{tally.selected}", score(tally.accuracy)]
    if tally.errors:
        parts.append(f"{tally.errors} error{'s' if tally.errors > 1 else ''}")
    if tally.cancelled:
        parts.append(f"{tally.cancelled} cancelled")
    parts += [f"tokens {tokens(tally.spent)}", f"cost {cost(tally.spent)}", duration(tally.elapsed_s)]
    return " · ".join(parts)


def warning(event: Event) -> str | None:
    """What must not be missed about `event`, or None."""
    if isinstance(event, AttemptRetried):
        return f"{label(event.key)}: try {event.try_number} failed, trying again: {one_line(event.error)}"
    if isinstance(event, RunInterrupted):
        doing = (
            "stopping the running attempts" if event.hard else "waiting for the running attempts; again to stop them"
        )
        return f"{event.reason}: {doing}"
    return None
