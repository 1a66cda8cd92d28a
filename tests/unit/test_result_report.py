"""A summary as people read it."""

from pathlib import Path

from agentcompass.adapters.results.report import final_report, markdown
from agentcompass.domain.attempt import AttemptKey
from agentcompass.domain.run import RunSummary
from agentcompass.domain.scoring import Tally
from agentcompass.testing.result_store import graded, ungraded

REASON = "it calls a | web site"


def summary(*, known_bad: int = 0, errors: int = 0) -> RunSummary:
    tally = Tally(known_bad + errors, 1)
    for number in range(known_bad):
        record = graded().model_copy(update={"correct": False, "extra": {"known_bad": REASON}})
        tally.add(AttemptKey(task_id=f"bad-{number}", attempt=1), "", record)
    for number in range(errors):
        tally.add(AttemptKey(task_id=f"lost-{number}", attempt=1), "", ungraded())
    names = {"run_name": "name", "run_id": "id", "benchmark": "b", "harness": "h", "model": "m", "environment": "e"}
    return tally.summary(**names, started_at="2026-01-01T00:00:00Z", ended_at="2026-01-01T00:01:00Z")


def test_failed_tasks_that_are_known_to_be_bad_are_named_with_the_reason() -> None:
    report, page = final_report(summary(known_bad=1), Path("run")), markdown(summary(known_bad=1))

    assert report.splitlines()[-1] == f"bad-0  {REASON}"
    assert "| bad-0 | it calls a \\| web site |" in page


def test_nothing_is_said_where_there_is_nothing_to_say() -> None:
    assert "known to fail" not in final_report(summary(errors=1), Path("run"))
    assert "known to fail" not in markdown(summary(errors=1))


def test_of_many_the_first_are_shown_and_the_page_has_all() -> None:
    many = summary(known_bad=22, errors=21)
    report = final_report(many, Path("run"))

    assert report.count("bad-") == report.count("lost-") == 20
    assert "and 1 more, see summary.md" in report
    assert "and 2 more, see summary.md" in report
    assert markdown(many).count("bad-") == 22
