"""From attempt records to rates, intervals and counts that add up; memory does not grow with the records' size."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from .attempt import AttemptKey, AttemptRecord, Status
from .model import NO_USAGE, Usage
from .one_line import cut
from .run import GRADED, Counts, Interval, Rate, RunSummary, Spent, Unscored
from .spans import Spans
from .task import KNOWN_BAD

_Z_95 = 1.959963984540054
"""The 97.5th percentile of the standard normal distribution."""
NO_CATEGORY = "(none)"
MAX_ERROR_CHARS = 300
"""Kept of each error in the summary."""


def _wilson(rate: float, trials: int) -> Interval:
    """The 95 % score interval of a proportion.

    Formula: E. B. Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22 (1927),
    209-212, without continuity correction.
    """
    z2 = _Z_95 * _Z_95
    scale = 1 + z2 / trials
    centre = (rate + z2 / (2 * trials)) / scale
    margin = _Z_95 * math.sqrt(rate * (1 - rate) / trials + z2 / (4 * trials * trials)) / scale
    return Interval(low=min(max(centre - margin, 0.0), rate), high=max(min(centre + margin, 1.0), rate))


def rate_of(correct: int, total: int, tasks: int) -> Rate:
    """`correct` of `total` attempts of `tasks` distinct tasks.

    Attempts of one task are not independent, so the interval takes the number of tasks as its number of trials: exact
    for one attempt a task, on the wide (safe) side for more.
    """
    if not total:
        return Rate(correct=0, total=0, value=None, interval=None)
    value = correct / total
    return Rate(correct=correct, total=total, value=value, interval=_wilson(value, tasks))


def pass_at_k(n: int, c: int, k: int) -> float:
    """The chance that of `k` attempts, drawn from `n` of which `c` are correct, at least one is correct.

    The unbiased estimator 1 - C(n-c, k) / C(n, k) of M. Chen et al., "Evaluating large language models trained on
    code" (2021), section 2.1; in whole numbers up to the one division, so nothing overflows or cancels.

    Raises:
        ValueError: not 0 <= c <= n, or not 1 <= k <= n.
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"pass@k is undefined for n={n}, c={c}, k={k}")
    ways = math.comb(n, k)
    return (ways - math.comb(n - c, k)) / ways


class _Ungraded(NamedTuple):
    """What an attempt without a score adds, kept apart because a later record may take its place."""

    status: Status
    kind: str
    """`stage: kind` of an error, else empty."""
    error: str
    exit_reason: str | None
    started_at: str
    ended_at: str
    timings: tuple[tuple[str, float], ...]


class _TaskTally:
    """Bit N of each number is attempt N."""

    __slots__ = ("category", "correct", "graded", "without_cost", "without_tokens")

    def __init__(self, category: str) -> None:
        self.category = category
        self.graded = self.correct = self.without_cost = self.without_tokens = 0


class Tally:
    """The running result of `selected_tasks` x `k` attempts.

    One entry an attempt, whatever is added and in what order: a graded record is final (a later one of its key
    changes nothing), one without a score is replaced by the next of its key. What a replaced one spent stays in the
    usage, once, also when the later record names it among its `tries`. So stored records, errors included, may be
    added first and the new ones after them.
    """

    def __init__(self, selected_tasks: int, k: int) -> None:
        self._selected_tasks = selected_tasks
        self._k = k
        self._tasks: dict[str, _TaskTally] = {}
        self._ungraded: dict[AttemptKey, _Ungraded] = {}
        self._caveats: dict[str, str] = {}
        self._correct = self._graded = self._graded_tasks = 0
        self._score_sum = 0.0
        self._usage = NO_USAGE
        self._without_tokens = self._without_cost = 0
        self._spans = Spans()
        self._exit_reasons: Counter[str] = Counter()
        self._timings: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0])
        self._totals: list[float] = []

    def add(self, key: AttemptKey, category: str, record: AttemptRecord) -> None:
        """Count `record`; attempts beyond `k` are not selected and not counted.

        Raises:
            ValueError: more tasks than were selected.
        """
        if key.attempt > self._k:
            return
        task = self._task(key.task_id, category)
        if task.graded >> key.attempt & 1:
            return
        self._add_tries(task, key.attempt, record, self._ungraded.pop(key, None))
        if record.status in GRADED:
            self._add_graded(task, key.attempt, record)
            if not record.correct and KNOWN_BAD in record.extra:
                self._caveats[key.task_id] = str(record.extra[KNOWN_BAD])
        else:
            self._ungraded[key] = _ungraded(record)

    def _task(self, task_id: str, category: str) -> _TaskTally:
        task = self._tasks.get(task_id)
        if task is None:
            if len(self._tasks) >= self._selected_tasks:
                raise ValueError(f"{task_id!r} is one task more than the {self._selected_tasks} selected")
            task = self._tasks[task_id] = _TaskTally(category)
        return task

    def _add_tries(self, task: _TaskTally, attempt: int, record: AttemptRecord, replaced: _Ungraded | None) -> None:
        for one in _new_tries(record, replaced):
            if one.started_at is not None:
                self._spans.add(one.started_at, one.ended_at)
            self._usage = self._usage.plus_known(one.usage)
            bit = 1 << attempt
            if one.usage.cost_usd is None and not task.without_cost & bit:
                task.without_cost |= bit
                self._without_cost += 1
            if None in (one.usage.input_tokens, one.usage.output_tokens) and not task.without_tokens & bit:
                task.without_tokens |= bit
                self._without_tokens += 1

    def _add_graded(self, task: _TaskTally, attempt: int, record: AttemptRecord) -> None:
        self._graded_tasks += not task.graded
        task.graded |= 1 << attempt
        task.correct |= record.correct << attempt
        self._graded += 1
        self._correct += record.correct
        self._score_sum += float(record.correct) if record.score is None else record.score
        if record.exit_reason is not None:
            self._exit_reasons[record.exit_reason.value] += 1
        _add_timings(self._timings, record.timings.items())
        if "total" in record.timings:
            self._totals.append(record.timings["total"])

    def has_graded(self, key: AttemptKey) -> bool:
        """Whether a graded record of `key` was added."""
        task = self._tasks.get(key.task_id)
        return task is not None and bool(task.graded >> key.attempt & 1)

    def accuracy_graded(self) -> Rate:
        """Over graded attempts."""
        return rate_of(self._correct, self._graded, self._graded_tasks)

    def accuracy_selected(self) -> Rate:
        """Over all selected attempts: what has no score counts as a failure."""
        return rate_of(self._correct, self._selected_tasks * self._k, self._selected_tasks)

    def spent(self) -> Spent:
        """By every try of every attempt."""
        return Spent(
            usage=self._usage,
            attempts_without_tokens=self._without_tokens,
            attempts_without_cost=self._without_cost,
        )

    def counts(self) -> Counts:
        """selected = correct + incorrect + errors + cancelled + not_run."""
        selected = self._selected_tasks * self._k
        statuses = Counter(entry.status for entry in self._ungraded.values())
        errors = statuses[Status.RUN_ERROR] + statuses[Status.EVAL_ERROR]
        cancelled = statuses[Status.CANCELLED]
        return Counts(
            selected=selected,
            correct=self._correct,
            incorrect=self._graded - self._correct,
            errors=errors,
            cancelled=cancelled,
            not_run=selected - self._graded - errors - cancelled,
        )

    def pass_at_k(self) -> dict[str, float]:
        """k -> estimate, for each k up to the attempts asked for of which every selected task has that many graded."""
        scores = [(task.graded.bit_count(), task.correct.bit_count()) for task in self._tasks.values()]
        if not scores or len(scores) < self._selected_tasks:
            return {}
        fewest = min(graded for graded, _ in scores)
        return {str(k): math.fsum(pass_at_k(n, c, k) for n, c in scores) / len(scores) for k in range(1, fewest + 1)}

    def by_category(self) -> dict[str, Rate]:
        """Graded attempts by category, in alphabetical order; empty where no task has a category."""
        sums: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        for task in self._tasks.values():
            if task.graded:
                entry = sums[task.category or NO_CATEGORY]
                entry[0] += task.correct.bit_count()
                entry[1] += task.graded.bit_count()
                entry[2] += 1
        if set(sums) <= {NO_CATEGORY}:
            return {}
        return {category: rate_of(*sums[category]) for category in sorted(sums)}

    def summary(
        self,
        *,
        run_name: str,
        run_id: str,
        benchmark: str,
        harness: str,
        model: str,
        environment: str,
        started_at: str,
        ended_at: str,
        interrupted: bool = False,
    ) -> RunSummary:
        """All of it, as stored and shown; `started_at` and `ended_at` are for a run of which no attempt was at work.

        The same records make the same summary, whenever it is made.
        """
        spent, wall_s = self.spent(), self._spans.total_s()
        return RunSummary(
            run_name=run_name,
            run_id=run_id,
            benchmark=benchmark,
            harness=harness,
            model=model,
            environment=environment,
            tasks=self._selected_tasks,
            attempts_per_task=self._k,
            counts=self.counts(),
            accuracy_graded=self.accuracy_graded(),
            accuracy_selected=self.accuracy_selected(),
            mean_score=self._score_sum / self._graded if self._graded else None,
            pass_at_k=self.pass_at_k(),
            by_category=self.by_category(),
            errors_by_kind=_most_common(Counter(entry.kind for entry in self._ungraded.values() if entry.kind)),
            exit_reasons=_most_common(self._all_exit_reasons()),
            unscored=self._unscored(),
            caveats=dict(sorted(self._caveats.items())),
            usage=spent.usage,
            attempts_without_tokens=spent.attempts_without_tokens,
            attempts_without_cost=spent.attempts_without_cost,
            timings=self._mean_timings(),
            duration_percentiles=_percentiles(self._all_totals()),
            wall_s=None if wall_s is None else round(wall_s, 3),
            started_at=self._spans.first or started_at,
            ended_at=self._spans.last or ended_at,
            interrupted=interrupted,
        )

    def _unscored(self) -> tuple[Unscored, ...]:
        entries = sorted(self._ungraded.items(), key=lambda item: (item[0].task_id, item[0].attempt))
        return tuple(
            Unscored(task_id=key.task_id, attempt=key.attempt, status=entry.status, error=entry.error)
            for key, entry in entries
        )

    def _all_exit_reasons(self) -> Counter[str]:
        return self._exit_reasons + Counter(e.exit_reason for e in self._ungraded.values() if e.exit_reason is not None)

    def _mean_timings(self) -> dict[str, float]:
        sums: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0])
        for stage, (seconds, count) in self._timings.items():
            sums[stage] = [seconds, count]
        for entry in self._ungraded.values():
            _add_timings(sums, entry.timings)
        return {stage: seconds / count for stage, (seconds, count) in sums.items()}

    def _all_totals(self) -> list[float]:
        ungraded = (seconds for e in self._ungraded.values() for stage, seconds in e.timings if stage == "total")
        return sorted([*self._totals, *ungraded])


def _ungraded(record: AttemptRecord) -> _Ungraded:
    return _Ungraded(
        status=record.status,
        kind=_error_kind(record),
        error=cut(record.error, MAX_ERROR_CHARS),
        exit_reason=record.exit_reason.value if record.exit_reason else None,
        started_at=record.started_at,
        ended_at=record.ended_at,
        timings=tuple(record.timings.items()),
    )


def _error_kind(record: AttemptRecord) -> str:
    if record.status not in (Status.RUN_ERROR, Status.EVAL_ERROR):
        return ""
    return f"{record.failure.stage}: {record.failure.kind}" if record.failure else record.status.value


class _Try(NamedTuple):
    started_at: str | None
    ended_at: str
    usage: Usage


def _new_tries(record: AttemptRecord, replaced: _Ungraded | None) -> list[_Try]:
    """The tries of `record`, the last included, less those that came with the record it takes the place of."""
    tries = [_Try(one.started_at, one.ended_at, one.usage) for one in record.tries]
    tries.append(_Try(record.started_at, record.ended_at, record.usage))
    if replaced is None:
        return tries
    if replaced.started_at == record.started_at:
        return []
    ends = [one.ended_at for one in record.tries]
    return tries[ends.index(replaced.ended_at) + 1 :] if replaced.ended_at in ends else tries


def _add_timings(sums: defaultdict[str, list[float]], timings: Iterable[tuple[str, float]]) -> None:
    for stage, seconds in timings:
        entry = sums[stage]
        entry[0] += seconds
        entry[1] += 1


def _most_common(counter: Counter[str]) -> dict[str, int]:
    return dict(sorted(counter.items(), key=lambda item: (-item[1], item[0])))


def _percentiles(ordered: list[float]) -> dict[str, float]:
    """By nearest rank: a value that was measured, also for few."""
    if not ordered:
        return {}
    return {f"p{p}": ordered[math.ceil(p / 100 * len(ordered)) - 1] for p in (50, 90)}
