"""What a verifier left behind: the reward, and whether it can be believed."""

import json
import math
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .setup_failure import setup_failure

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)
MAX_REWARD_BYTES = 1024 * 1024
MAX_CTRF_BYTES = 16 * 1024 * 1024
MAX_STDOUT_BYTES = 16 * 1024 * 1024
_SUMMARY_COUNTS = ("tests", "passed", "failed", "skipped", "pending", "other")


class NoVerdict(Exception):
    """There is no reward, or none that can be read or believed."""


def reward_from_files(reward_json: bytes | None, reward_txt: bytes | None) -> dict[str, float]:
    """The named rewards; reward.json outranks reward.txt, also when it is broken.

    Raises:
        NoVerdict: neither file, an empty one, or anything but finite numbers.
    """
    if reward_json is not None:
        return _from_json(reward_json)
    if reward_txt is not None:
        return {"reward": _from_text(reward_txt)}
    raise NoVerdict("no reward.txt or reward.json")


def main_reward(rewards: Mapping[str, float]) -> float:
    """The one named `reward`, or the only one.

    Raises:
        NoVerdict: several, and none of them is named `reward`.
    """
    if "reward" in rewards:
        return rewards["reward"]
    if len(rewards) == 1:
        return next(iter(rewards.values()))
    raise NoVerdict(f"reward.json has no 'reward' among {', '.join(sorted(rewards))}")


def _from_text(data: bytes) -> float:
    text = data.decode("utf-8", "replace").strip()
    if not text:
        raise NoVerdict("reward.txt is empty")
    value = float(text) if _NUMBER.fullmatch(text) else math.nan
    if not math.isfinite(value):
        raise NoVerdict(f"reward.txt is not a finite number: {text[:80]!r}")
    return value


def _from_json(data: bytes) -> dict[str, float]:
    if not data.strip():
        raise NoVerdict("reward.json is empty")
    try:
        values = json.loads(data, object_pairs_hook=_once_each)
    except (ValueError, RecursionError) as exc:
        raise NoVerdict(f"reward.json is not JSON: {str(exc)[:80]}") from exc
    if not isinstance(values, dict) or not values:
        raise NoVerdict("reward.json is not an object of named rewards")
    return {name: _finite(name, value) for name, value in values.items()}


def _once_each(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        raise NoVerdict(f"reward.json has {next(name for name in names if names.count(name) > 1)[:80]!r} twice")
    return values


def _finite(name: str, value: object) -> float:
    try:
        number = float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        number = math.nan
    if not math.isfinite(number):
        raise NoVerdict(f"reward.json: {name[:80]!r} is not a finite number")
    return number


@dataclass(frozen=True)
class Evidence:
    """What the verifier left beside its reward, and what its scripts were going to do."""

    scripts: str
    """The text of the shell scripts of tests/."""
    stdout: str = ""
    ctrf_there: bool = False
    ctrf: Mapping[str, int] = field(default_factory=dict)
    """The counts of ctrf.json; empty when it cannot be read."""

    @property
    def wants_ctrf(self) -> bool:
        """Whether the scripts have a ctrf.json written."""
        return "--ctrf" in self.scripts


def doubt(rewards: Mapping[str, float], evidence: Evidence) -> str:
    """Why this verdict cannot be believed, or nothing.

    A zero is none where the verifier's own set-up failed, so that its tools never ran. A pass is none where the suite
    reports its tests and the report is missing, counts no passed test, or counts failed ones although their outcome
    decides.
    """
    if all(value == 0 for value in rewards.values()):
        return _never_ran(evidence)
    if main_reward(rewards) >= 1 and evidence.wants_ctrf:
        return _not_backed(evidence)
    return ""


def _not_backed(evidence: Evidence) -> str:
    if not evidence.ctrf_there:
        return "it reports a pass, but the ctrf.json that its tests write is missing"
    counts = evidence.ctrf
    if counts and not counts.get("passed"):
        return f"it reports a pass, but no test passed ({counts.get('skipped', 0)} skipped)"
    if counts.get("failed") and re.search(r"\$\?", evidence.scripts):
        return f"it reports a pass, but ctrf.json has {counts['failed']} failed tests"
    return ""


def _never_ran(evidence: Evidence) -> str:
    if evidence.ctrf_there:
        return ""
    return setup_failure(evidence.scripts, evidence.stdout, reports=evidence.wants_ctrf)


def ctrf_counts(data: bytes | None) -> dict[str, int]:
    """The summary of a CTRF report; {} when there is none that can be read."""
    try:
        summary = json.loads(data or b"")["results"]["summary"]
        return {name: int(summary[name]) for name in _SUMMARY_COUNTS if isinstance(summary.get(name), int)}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def read_regular(path: Path, max_bytes: int) -> bytes | None:
    """A file's first `max_bytes`; None when there is none, or it is a link or no regular file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    with os.fdopen(descriptor, "rb") as stream:
        return stream.read(max_bytes)
