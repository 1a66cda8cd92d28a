"""Rates, intervals and counts hold for any sequence of records."""

import math
from collections.abc import Callable

import pytest
from agentcompass.domain.attempt import AttemptKey, AttemptRecord, EarlierTry, ExitReason, Failure, Stage, Status
from agentcompass.domain.model import Usage
from agentcompass.domain.run import Interval, RunSummary
from agentcompass.domain.scoring import Tally, pass_at_k, rate_of
from hypothesis import given
from hypothesis import strategies as st

TASKS, K = 4, 3


def wilson(correct: int, total: int) -> Interval | None:
    return rate_of(correct, total, total).interval


def record(status: Status = Status.COMPLETED, **fields: object) -> AttemptRecord:
    defaults: dict[str, object] = {"started_at": "2025-01-01T00:00:00Z", "ended_at": "2025-01-01T00:01:00Z"}
    if status is Status.COMPLETED:
        defaults["score"] = 1.0 if fields.get("correct") else 0.0
    return AttemptRecord.model_validate({"status": status, **defaults, **fields})


def failed(kind: str = "SandboxLost", **fields: object) -> AttemptRecord:
    failure = Failure(stage=Stage.AGENT, kind=kind, elapsed_s=1, transient=True)
    return record(Status.RUN_ERROR, error="gone", failure=failure, **fields)


def summary(tally: Tally) -> RunSummary:
    return tally.summary(
        run_name="name",
        run_id="id",
        benchmark="b",
        harness="h",
        model="m",
        environment="e",
        started_at="2025-01-01T00:00:00Z",
        ended_at="2025-01-01T01:00:00Z",
    )


def key(task: int, attempt: int = 1) -> AttemptKey:
    return AttemptKey(task_id=f"task-{task}", attempt=attempt)


entries = st.lists(
    st.tuples(
        st.integers(0, TASKS - 1),
        st.integers(1, K + 1),
        st.sampled_from(list(Status)),
        st.booleans(),
        st.sampled_from(["", "easy", "hard"]),
    )
)


def tallied(sequence: list[tuple[int, int, Status, bool, str]]) -> Tally:
    tally = Tally(TASKS, K)
    for task, attempt, status, correct, category in sequence:
        tally.add(key(task, attempt), category, record(status, correct=correct))
    return tally


@given(entries)
def test_counts_add_up_to_the_selected_for_any_sequence(sequence: list[tuple[int, int, Status, bool, str]]) -> None:
    counts = tallied(sequence).counts()

    parts = (counts.correct, counts.incorrect, counts.errors, counts.cancelled, counts.not_run)
    assert counts.selected == TASKS * K == sum(parts)
    assert min(parts) >= 0


@given(entries)
def test_the_categories_hold_every_graded_attempt_once(sequence: list[tuple[int, int, Status, bool, str]]) -> None:
    tally = tallied(sequence)
    categories = tally.by_category()
    graded = tally.accuracy_graded()

    assert not categories or sum(rate.total for rate in categories.values()) == graded.total
    assert not categories or sum(rate.correct for rate in categories.values()) == graded.correct


@given(entries)
def test_rates_lie_within_their_intervals_and_intervals_within_zero_and_one(
    sequence: list[tuple[int, int, Status, bool, str]],
) -> None:
    tally = tallied(sequence)
    rates = [tally.accuracy_graded(), tally.accuracy_selected(), *tally.by_category().values()]

    for rate in rates:
        assert (rate.value is None) == (rate.interval is None) == (rate.total == 0)
        if rate.value is not None and rate.interval is not None:
            assert 0 <= rate.interval.low <= rate.value <= rate.interval.high <= 1


@given(entries)
def test_pass_at_k_is_shown_only_where_every_task_has_k_graded_attempts(
    sequence: list[tuple[int, int, Status, bool, str]],
) -> None:
    graded = {(task, attempt) for task, attempt, status, *_ in sequence if status is Status.COMPLETED and attempt <= K}
    fewest = min(sum(1 for task, _ in graded if task == wanted) for wanted in range(TASKS))
    estimates = list(tallied(sequence).pass_at_k().items())

    assert [name for name, _ in estimates] == [str(k) for k in range(1, fewest + 1)]
    assert [value for _, value in estimates] == sorted(value for _, value in estimates)


@given(entries)
def test_adding_a_record_again_changes_nothing(sequence: list[tuple[int, int, Status, bool, str]]) -> None:
    once = {(task, attempt): rest for task, attempt, *rest in sequence}
    plain = [(task, attempt, *rest) for (task, attempt), rest in once.items()]

    assert summary(tallied(plain)) == summary(tallied([entry for entry in plain for _ in range(2)]))


@given(st.integers(0, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_contains_the_rate(case: tuple[int, int]) -> None:
    correct, total = case
    interval = wilson(correct, total)

    assert (interval is None) == (total == 0)
    if interval is not None:
        assert 0 <= interval.low <= correct / total <= interval.high <= 1


@given(st.integers(0, 100), st.integers(1, 100))
def test_more_trials_at_the_same_rate_never_widen_the_interval(correct: int, wrong: int) -> None:
    few, many = wilson(correct, correct + wrong), wilson(10 * correct, 10 * (correct + wrong))

    assert few is not None
    assert many is not None
    assert many.high - many.low <= few.high - few.low


@pytest.mark.parametrize(
    ("correct", "total", "low", "high"),
    [(8, 10, 0.49016, 0.94332), (0, 10, 0.0, 0.27753), (10, 10, 0.72247, 1.0), (250, 500, 0.45634, 0.54366)],
)
def test_the_interval_is_wilsons(correct: int, total: int, low: float, high: float) -> None:
    interval = wilson(correct, total)

    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=1e-5)


sizes = st.integers(1, 400).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n)))


@given(sizes)
def test_pass_at_1_is_the_mean(size: tuple[int, int, int]) -> None:
    n, c, _ = size

    assert pass_at_k(n, c, 1) == c / n


@given(sizes)
def test_pass_at_k_is_a_chance_that_grows_with_k_and_with_c(size: tuple[int, int, int]) -> None:
    n, c, k = size
    chance = pass_at_k(n, c, k)

    assert 0 <= chance <= 1
    assert chance <= pass_at_k(n, c, min(k + 1, n))
    assert chance <= pass_at_k(n, min(c + 1, n), k)


@given(sizes)
def test_pass_at_k_is_the_product_of_the_misses(size: tuple[int, int, int]) -> None:
    n, c, k = size
    misses = 0.0 if n - c < k else math.prod(1 - k / i for i in range(n - c + 1, n + 1))

    assert pass_at_k(n, c, k) == pytest.approx(1 - misses, abs=1e-9)


@pytest.mark.parametrize(("n", "c", "k"), [(3, 4, 1), (3, -1, 1), (3, 1, 4), (3, 1, 0), (0, 0, 1)])
def test_pass_at_k_of_impossible_numbers_is_refused(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="undefined"):
        pass_at_k(n, c, k)


def test_an_error_is_no_failure_in_the_graded_rate_and_one_in_the_other() -> None:
    tally = Tally(4, 1)
    tally.add(key(0), "", record(correct=True))
    tally.add(key(1), "", record(correct=False))
    tally.add(key(2), "", failed())

    assert tally.accuracy_graded().value == 0.5
    assert tally.accuracy_selected().value == 0.25


def test_nothing_graded_has_no_rate() -> None:
    tally = Tally(1, 1)
    tally.add(key(0), "", failed())

    assert tally.accuracy_graded().value is None
    assert summary(tally).mean_score is None


def test_an_interval_over_several_attempts_counts_the_tasks() -> None:
    tally = Tally(2, 5)
    for task in range(2):
        for attempt in range(1, 6):
            tally.add(key(task, attempt), "", record(correct=task == 0))

    assert tally.accuracy_graded().interval == wilson(1, 2)
    assert tally.accuracy_graded().total == 10


def test_a_graded_attempt_is_final() -> None:
    tally = Tally(1, 1)
    tally.add(key(0), "", record(correct=False))
    tally.add(key(0), "", record(correct=True))
    tally.add(key(0), "", failed())

    assert tally.counts().incorrect == 1


def test_only_an_attempt_with_a_graded_record_is_graded() -> None:
    tally = Tally(2, 3)
    tally.add(key(0, 2), "", record())
    tally.add(key(1, 1), "", failed())
    graded = [(task, number) for task in range(3) for number in (1, 2, 3) if tally.has_graded(key(task, number))]

    assert graded == [(0, 2)]


def test_a_new_record_takes_the_place_of_an_error() -> None:
    tally = Tally(1, 1)
    tally.add(key(0), "", failed())
    tally.add(key(0), "", record(correct=True))

    assert summary(tally).counts.correct == 1
    assert summary(tally).errors_by_kind == {}


def test_errors_are_counted_by_stage_and_kind_most_frequent_first() -> None:
    tally = Tally(4, 1)
    tally.add(key(0), "", failed("ModelBusy"))
    tally.add(key(1), "", failed("SandboxLost"))
    tally.add(key(2), "", failed("SandboxLost"))
    tally.add(key(3), "", record(Status.EVAL_ERROR))

    assert list(summary(tally).errors_by_kind.items()) == [
        ("agent: SandboxLost", 2),
        ("agent: ModelBusy", 1),
        ("eval_error", 1),
    ]


def test_more_tasks_than_selected_are_a_bug_that_shows() -> None:
    tally = Tally(1, 1)
    tally.add(key(0), "", record(correct=True))

    with pytest.raises(ValueError, match="'task-1'"):
        tally.add(key(1), "", record(correct=True))


def usage(tokens: int) -> Usage:
    return Usage(input_tokens=tokens, output_tokens=0, cost_usd=tokens / 100)


def earlier(tokens: int, ended_at: str) -> EarlierTry:
    failure = Failure(stage=Stage.START, kind="SandboxBusy", elapsed_s=1, transient=True)
    return EarlierTry(error="busy", failure=failure, ended_at=ended_at, usage=usage(tokens))


def spent_after(*records: Callable[[], AttemptRecord]) -> Usage:
    tally = Tally(1, 1)
    for make in records:
        tally.add(key(0), "", make())
    return summary(tally).usage


def test_what_earlier_tries_spent_is_in_the_sum() -> None:
    spent = spent_after(lambda: record(correct=True, usage=usage(10), tries=(earlier(5, "2025-01-01T00:00:30Z"),)))

    assert spent.input_tokens == 15
    assert spent.cost_usd == pytest.approx(0.15)


@pytest.mark.parametrize("listed", [True, False])
def test_what_a_replaced_error_spent_is_counted_once(listed: bool) -> None:
    tries = (earlier(5, "2025-01-01T00:01:00Z"),) if listed else ()
    again = record(correct=True, usage=usage(10), tries=tries, started_at="2025-01-02T00:00:00Z")

    assert spent_after(lambda: failed(usage=usage(5)), lambda: again).input_tokens == 15


def test_a_sum_of_which_some_is_unknown_says_of_how_many_attempts() -> None:
    tally = Tally(3, 1)
    tally.add(key(0), "", record(correct=True, usage=usage(10)))
    tally.add(key(1), "", record(correct=True, usage=Usage(input_tokens=3, output_tokens=1)))
    tally.add(key(2), "", record(correct=True, usage=Usage(), tries=(earlier(5, "2025-01-01T00:00:30Z"),)))
    spent = summary(tally)

    assert (spent.usage.input_tokens, spent.usage.cost_usd) == (18, pytest.approx(0.15))
    assert (spent.attempts_without_tokens, spent.attempts_without_cost) == (1, 2)


def test_a_sum_of_which_nothing_is_known_is_unknown() -> None:
    tally = Tally(2, 1)
    tally.add(key(0), "", failed(usage=Usage()))
    tally.add(key(1), "", record(correct=True, usage=Usage()))

    assert summary(tally).usage == Usage()
    assert summary(tally).attempts_without_tokens == 2


def test_an_attempt_of_several_unknown_tries_is_one_attempt() -> None:
    tally = Tally(1, 1)
    tally.add(key(0), "", failed(usage=Usage()))
    tally.add(key(0), "", record(correct=True, usage=Usage(), started_at="2025-01-02T00:00:00Z"))

    assert tally.spent().attempts_without_cost == 1


def test_what_has_no_score_is_named_with_the_beginning_of_its_error() -> None:
    tally = Tally(3, 1)
    tally.add(key(2), "", failed())
    tally.add(key(1), "", record(Status.CANCELLED, error="x" * 1000))
    tally.add(key(0), "", record())
    unscored = summary(tally).unscored

    assert [(one.task_id, one.status) for one in unscored] == [("task-1", "cancelled"), ("task-2", "run_error")]
    assert (len(unscored[0].error), unscored[1].error) == (300, "gone")


def test_times_are_those_of_the_attempts_over_all_starts_however_often_they_are_added_up() -> None:
    tally = Tally(3, 1)
    tally.add(key(0), "", record(started_at="2025-01-01T00:00:00Z", ended_at="2025-01-01T00:10:00Z"))
    tally.add(key(1), "", record(started_at="2025-01-01T00:05:00Z", ended_at="2025-01-01T00:15:00Z"))
    tally.add(key(2), "", record(started_at="2025-01-03T00:00:00Z", ended_at="2025-01-03T00:01:00Z"))
    made = summary(tally)

    assert (made.started_at, made.ended_at) == ("2025-01-01T00:00:00Z", "2025-01-03T00:01:00Z")
    assert made.wall_s == 16 * 60


def test_the_time_of_a_failed_try_of_an_earlier_start_is_kept() -> None:
    first = earlier(0, "2025-01-01T00:02:00Z").model_copy(update={"started_at": "2025-01-01T00:00:00Z"})
    tally = Tally(1, 1)
    again = {"started_at": "2025-01-02T00:00:00Z", "ended_at": "2025-01-02T00:01:00Z"}
    tally.add(key(0), "", record(tries=(first,), **again))

    assert summary(tally).wall_s == 180
    assert summary(tally).started_at == "2025-01-01T00:00:00Z"


def test_a_run_without_attempts_has_the_times_of_its_start_and_no_duration() -> None:
    made = summary(Tally(1, 1))

    assert (made.started_at, made.ended_at) == ("2025-01-01T00:00:00Z", "2025-01-01T01:00:00Z")
    assert made.wall_s is None


def test_mean_timings_are_over_the_attempts_that_ran_the_stage() -> None:
    tally = Tally(3, 1)
    tally.add(key(0), "", record(correct=True, timings={"agent": 10, "grade": 4, "total": 14}))
    tally.add(key(1), "", record(correct=False, timings={"agent": 20, "grade": 8, "total": 28}))
    tally.add(key(2), "", failed(timings={"agent": 60, "total": 60}))

    assert summary(tally).timings == {"agent": 30, "grade": 6, "total": 34}
    assert summary(tally).duration_percentiles == {"p50": 28, "p90": 60}


def test_partial_credit_is_averaged_over_graded_attempts() -> None:
    tally = Tally(3, 1)
    tally.add(key(0), "", record(score=0.25))
    tally.add(key(1), "", record(score=0.75))
    tally.add(key(2), "", failed())

    assert summary(tally).mean_score == 0.5


def test_exit_reasons_of_errors_count_too() -> None:
    tally = Tally(2, 1)
    tally.add(key(0), "", record(correct=True, exit_reason=ExitReason.SUBMITTED))
    tally.add(key(1), "", record(Status.EVAL_ERROR, exit_reason=ExitReason.TIME_LIMIT))

    assert summary(tally).exit_reasons == {"submitted": 1, "time_limit": 1}


def test_a_caveat_is_told_of_incorrect_attempts_only() -> None:
    reason = {"known_bad": "it calls a web site"}
    tally = Tally(4, 2)
    tally.add(key(0), "", record(correct=True, extra=reason))
    tally.add(key(1), "", failed(extra=reason))
    tally.add(key(2), "", record(correct=False))
    tally.add(key(3, 1), "", record(correct=True, extra=reason))
    tally.add(key(3, 2), "", record(correct=False, extra=reason))

    assert summary(tally).caveats == {"task-3": "it calls a web site"}
