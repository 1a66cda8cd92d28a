"""A run's summary for people: `summary.md`, and the table on stdout."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ...domain.model import Usage
from ...domain.one_line import cut, one_line
from ...domain.run import Counts, Rate, RunSummary, Unscored
from ...domain.scoring import MAX_ERROR_CHARS

_SHOWN_ROWS = 20
_SHOWN_ERROR_CHARS = 120
_UNSCORED_HEAD = ("Task", "Attempt", "Status", "Error")
_CAVEATS = "Not correct, but known to fail with their reference solution too"


class Row(NamedTuple):
    """One line of the table."""

    name: str
    value: str


def render_table(summary: RunSummary, folder: Path | None = None, *, state: str = "") -> str:
    """The summary as plain text in two columns, for a terminal or a file; `state` says what is odd about it, if so.

    Control characters of names and errors are written as escapes.
    """
    state = state or ("interrupted" if summary.interrupted else "")
    rows = [*_head(summary), *([Row("State", state)] if state else []), *_scores(summary), *_sums(summary)]
    rows += [Row(f"Score of {one_line(name)}", share(rate)) for name, rate in summary.by_category.items()]
    if folder is not None:
        rows.append(Row("Folder", str(folder)))
    return aligned(rows)


def final_report(summary: RunSummary, folder: Path) -> str:
    """`render_table`, and below it what has no score, and the caveats; the first of them where they are many."""
    parts = [render_table(summary, folder)]
    if summary.unscored:
        rows = list(_unscored_rows(summary.unscored, _SHOWN_ERROR_CHARS))
        parts += ["", "Without a score:", aligned([_UNSCORED_HEAD, *rows[:_SHOWN_ROWS]]), *_more(rows)]
    if summary.caveats:
        caveats = list(summary.caveats.items())
        parts += ["", f"{_CAVEATS}:", aligned(caveats[:_SHOWN_ROWS]), *_more(caveats)]
    return "\n".join(parts)


def _more(rows: Sequence[object]) -> list[str]:
    more = len(rows) - _SHOWN_ROWS
    return [f"and {more} more, see summary.md"] if more > 0 else []


def _unscored_rows(entries: Iterable[Unscored], max_chars: int = MAX_ERROR_CHARS) -> Iterator[Sequence[str]]:
    for entry in entries:
        yield entry.task_id, str(entry.attempt), entry.status.value, cut(one_line(entry.error), max_chars)


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Lines of text whose columns stand below each other."""
    cells = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in cells)


def markdown(summary: RunSummary) -> str:
    """The summary as a Markdown document, with a line for each attempt without a score."""
    parts = [f"# {_cell(f'{summary.run_name}/{summary.run_id}')}"]
    if summary.interrupted:
        parts.append("**Interrupted: not every selected attempt was run.**")
    parts.append(_table(("", ""), [*_head(summary)[1:], *_scores(summary), *_sums(summary)]))
    if summary.by_category:
        rows = [(name, share(rate)) for name, rate in summary.by_category.items()]
        parts += ["## By category", _table(("Category", "Graded attempts that are correct"), rows)]
    if summary.unscored:
        parts += ["## Attempts without a score", _table(_UNSCORED_HEAD, _unscored_rows(summary.unscored))]
    if summary.caveats:
        parts += [f"## {_CAVEATS}", _table(("Task", "Reason"), summary.caveats.items())]
    return "\n\n".join(parts) + "\n"


def _head(summary: RunSummary) -> list[Row]:
    return [
        Row("Run", f"{summary.run_name}/{summary.run_id}"),
        Row("Benchmark", summary.benchmark),
        Row("Harness", summary.harness),
        Row("Model", summary.model),
        Row("Environment", summary.environment),
    ]


def _scores(summary: RunSummary) -> Iterator[Row]:
    yield Row("Score", share(summary.accuracy_graded))
    yield Row("Score, errors as failures", share(summary.accuracy_selected))
    if summary.mean_score is not None and summary.mean_score != summary.accuracy_graded.value:
        yield Row("Mean score", f"{summary.mean_score:.4g}")
    for k, value in summary.pass_at_k.items():
        yield Row(f"pass@{k}", percent(value))


def _sums(summary: RunSummary) -> Iterator[Row]:
    yield Row("Attempts", counted(summary.counts))
    if summary.errors_by_kind:
        yield Row("Errors", _listed(summary.errors_by_kind))
    if summary.exit_reasons:
        yield Row("Agents ended as", _listed(summary.exit_reasons))
    yield Row("Tokens", tokens(summary.usage, unknown_for=summary.attempts_without_tokens))
    yield Row("Cost", cost(summary.usage, unknown_for=summary.attempts_without_cost))
    if summary.timings:
        yield Row("Mean time", ", ".join(f"{stage} {seconds(mean)}" for stage, mean in summary.timings.items()))
    if summary.duration_percentiles:
        spread = (f"{name} {seconds(value)}" for name, value in summary.duration_percentiles.items())
        yield Row("Time of an attempt", ", ".join(spread))
    if summary.wall_s is not None:
        yield Row("Wall time", seconds(summary.wall_s))
    yield Row("Started, ended", f"{moment(summary.started_at)}, {moment(summary.ended_at)}")


def share(rate: Rate) -> str:
    """`60.0 % (3 of 5; 95 % interval 23.1 % to 88.2 %)`, or that nothing counts."""
    if rate.value is None:
        return "none (nothing was graded)"
    interval = rate.interval
    spread = f"; 95 % interval {percent(interval.low)} to {percent(interval.high)}" if interval else ""
    return f"{percent(rate.value)} ({rate.correct} of {rate.total}{spread})"


def percent(value: float) -> str:
    """`62.5 %`."""
    return f"{value * 100:.1f} %"


def counted(counts: Counts) -> str:
    """`6 selected = 3 correct + 2 incorrect + 1 errors + 0 cancelled + 0 not run`."""
    return (
        f"{counts.selected} selected = {counts.correct} correct + {counts.incorrect} incorrect + {counts.errors} errors"
        f" + {counts.cancelled} cancelled + {counts.not_run} not run"
    )


def tokens(usage: Usage, *, unknown_for: int = 0) -> str:
    """`12,345 in (8,000 from cache), 678 out (500 reasoning)`; what the endpoint did not tell is unknown.

    Where it did not for so many attempts, the sum is marked as the lower bound that it is.
    """
    if usage.input_tokens is None and usage.output_tokens is None:
        return "unknown"
    read = f" ({usage.cache_read_tokens:,} from cache)" if usage.cache_read_tokens else ""
    reasoning = f" ({usage.reasoning_tokens:,} reasoning)" if usage.reasoning_tokens else ""
    text = f"{_number(usage.input_tokens)} in{read}, {_number(usage.output_tokens)} out{reasoning}"
    return _at_least(text, unknown_for)


def _number(count: int | None) -> str:
    return "unknown" if count is None else f"{count:,}"


def cost(usage: Usage, *, unknown_for: int = 0) -> str:
    """`$1.2345`, or `unknown`, which is not zero; a lower bound is marked as in `tokens`."""
    return "unknown" if usage.cost_usd is None else _at_least(f"${usage.cost_usd:,.4f}", unknown_for)


def _at_least(text: str, unknown_for: int) -> str:
    return f"at least {text} (not known in full for {unknown_for} attempts)" if unknown_for else text


def seconds(value: float) -> str:
    """`4.2 s`, `12 min 30 s`, `1 h 02 min`."""
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def moment(text: str) -> str:
    """`2026-01-31 10:20:30 UTC` for an ISO 8601 time in UTC; any other text as it is."""
    if len(text) < 19 or text[10] != "T" or not text.endswith(("+00:00", "Z")):
        return text
    return f"{text[:10]} {text[11:19]} UTC"


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} x {name}" for name, count in counts.items())


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([_cell(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str) -> str:
    escaped = one_line(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
    return "".join(f"\\{char}" if char in "*_`[]" else char for char in escaped)
