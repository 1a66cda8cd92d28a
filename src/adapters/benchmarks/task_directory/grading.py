"""From what the tests left behind to a grade, or to the reason why there is none."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pydantic import JsonValue

from ....domain.errors import VerifierFailed
from ....domain.task import Grade
from ..script_ends import last_line
from .verdict import (
    MAX_CTRF_BYTES,
    MAX_REWARD_BYTES,
    MAX_STDOUT_BYTES,
    Evidence,
    NoVerdict,
    ctrf_counts,
    doubt,
    main_reward,
    read_regular,
    reward_from_files,
)
from .verifier_report import Report

_SEE_OUTPUT = "see verifier/test-stdout.txt in the attempt's logs"
_REMOVES_LOGS = re.compile(r"\brm\b[^\n]*(?:verifier|\s\*)")


class VerdictMissing(VerifierFailed):
    """The tests ended without a verdict that can be read, as they would again."""

    transient = False


def grade_of(tests: Path, logs: Path, report: Report, details: Mapping[str, JsonValue]) -> Grade:
    """Score is the reward, correct is a reward of 1 or more; `extra` has the `verify_log` with `details`.

    `logs` is the local folder of what the report leaves untold.

    Raises:
        VerdictMissing: no reward, or none that can be read.
        VerifierFailed: one that cannot be believed.
    """
    stdout = (_content(logs, report, "test-stdout.txt", MAX_STDOUT_BYTES) or b"").decode("utf-8", "replace")
    ctrf = _content(logs, report, "ctrf.json", MAX_CTRF_BYTES)
    evidence = Evidence(_scripts(tests), stdout, ctrf is not None, ctrf_counts(ctrf))
    try:
        rewards = reward_from_files(*(_reward(logs, report, name) for name in ("reward.json", "reward.txt")))
        score = main_reward(rewards)
    except NoVerdict as exc:
        last = last_line(stdout)
        said = f"{exc}; test.sh ended with status {report.code}" + (f", its last line: {last!r}" if last else "")
        raise VerdictMissing(f"no verdict: {said}", hint=_SEE_OUTPUT) from exc
    if reason := doubt(rewards, evidence):
        raise VerifierFailed(f"no verdict: {reason}", hint=_SEE_OUTPUT)
    return Grade(score=score, correct=score >= 1, extra={"verify_log": _verify_log(rewards, evidence, details)})


def output_counts(report: Report) -> bool:
    """Whether the verdict is another where the tests' output is known: it tells a zero from a failed set-up.

    Asked of a report that leaves nothing but that output untold.
    """
    if report.has("ctrf.json"):
        return False
    try:
        rewards = reward_from_files(report.files.get("reward.json"), report.files.get("reward.txt"))
    except NoVerdict:
        return False
    return all(value == 0 for value in rewards.values())


def meddled(tests: Path, report: Report) -> str:
    """What somebody else than the tests has done to their files, or nothing."""
    if _has_foreign_reward(tests, report):
        return "reward.json is there, which the tests do not write"
    if report.has("test-stdout.txt"):  # it was open when they began
        return ""
    removed_by_tests = report.has("reward.json", "reward.txt") and _REMOVES_LOGS.search(_scripts(tests))
    return "" if removed_by_tests else "what the tests wrote was removed"


def without_foreign_reward(tests: Path, report: Report) -> Report:
    """The report without a reward.json that the tests do not write: it would outrank their reward.txt."""
    if not _has_foreign_reward(tests, report):
        return report
    files = {name: content for name, content in report.files.items() if name != "reward.json"}
    return replace(report, files=files, untold=report.untold - {"reward.json"})


def _has_foreign_reward(tests: Path, report: Report) -> bool:
    """Tests that name neither file may leave a reward.json to a tool that they install."""
    if not report.has("reward.json") or _mention(tests, b"reward.json"):
        return False
    return report.has("reward.txt") or _mention(tests, b"reward.txt")


def _content(logs: Path, report: Report, name: str, max_bytes: int) -> bytes | None:
    """As it was when the tests had ended; what a later download brings counts only for what was untold."""
    if name in report.untold:
        return read_regular(logs / name, max_bytes)
    return report.files.get(name)


def _reward(logs: Path, report: Report, name: str) -> bytes | None:
    content = _content(logs, report, name, MAX_REWARD_BYTES + 1)
    if content is not None and len(content) > MAX_REWARD_BYTES:
        raise NoVerdict(f"{name} has more than {MAX_REWARD_BYTES} bytes")
    return content


def _verify_log(
    rewards: Mapping[str, float], evidence: Evidence, details: Mapping[str, JsonValue]
) -> dict[str, JsonValue]:
    report: dict[str, JsonValue] = {"reward": main_reward(rewards), "rewards": dict(rewards), **details}
    if evidence.ctrf_there:
        report["ctrf"] = dict(evidence.ctrf)
    return report | {"test_stdout": evidence.stdout[-4000:]}


def _scripts(tests: Path) -> str:
    files = sorted(file for file in tests.rglob("*.sh") if file.is_file())
    return "\n".join((read_regular(file, MAX_REWARD_BYTES) or b"").decode("utf-8", "replace") for file in files)


def _mention(tests: Path, text: bytes) -> bool:
    files = (file for file in tests.rglob("*") if file.is_file())
    return any(text in (read_regular(file, MAX_REWARD_BYTES) or b"") for file in files)
