"""Whose a Modal sandbox is: its owner and expiry as tags, and back."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from ....domain.sandbox import SandboxOwner

MARK = {"agentcompass": "1"}
"""On every sandbox of this tool, and on no other."""
_LONGEST = 63
_UNSAFE = re.compile(rb"[^A-Za-z0-9.-]")
_ESCAPED = re.compile(rb"_([0-9a-f]{2})")
_TRY_FIELDS = ("attempt", "try_number", "purpose")


@dataclass(frozen=True)
class Label:
    """What the tags tell."""

    run_id: str
    task_id: str
    host: str
    process: str
    expires: datetime


def owner_tags(owner: SandboxOwner, expires: datetime) -> dict[str, str]:
    """Tags of letters, digits, `.`, `-` and `_`; a value longer than 63 characters goes on in further tags."""
    fields = {
        "run": owner.run_id,
        "task": owner.task_id,
        "try": ".".join(str(getattr(owner, name)) for name in _TRY_FIELDS),
        "host": owner.host,
        "process": owner.process,
        "expires": str(int(expires.timestamp())),
    }
    tags = dict(MARK)
    for name, value in fields.items():
        encoded = _encoded(value)
        parts = [encoded[start : start + _LONGEST] for start in range(0, len(encoded), _LONGEST)] or [""]
        tags |= {_key(name, number): part for number, part in enumerate(parts)}
    return tags


def run_tag(run_id: str) -> dict[str, str]:
    """A tag that every sandbox of the run has (and perhaps another's whose id begins alike)."""
    return {_key("run", 0): _encoded(run_id)[:_LONGEST]}


def read_tags(tags: Mapping[str, str]) -> Label | None:
    """None where they are not ours, or cannot be read."""
    if not MARK.items() <= tags.items():
        return None
    try:
        run_id, task_id, host, process, expires = (
            _value(tags, name) for name in ("run", "task", "host", "process", "expires")
        )
        return Label(run_id, task_id, host, process, datetime.fromtimestamp(int(expires), UTC))
    except (ValueError, KeyError, OverflowError, OSError):
        return None


def _value(tags: Mapping[str, str], name: str) -> str:
    parts = [tags[_key(name, 0)]]
    while (following := tags.get(_key(name, len(parts)))) is not None:
        parts.append(following)
    plain = _ESCAPED.sub(lambda found: bytes([int(found[1], 16)]), "".join(parts).encode())
    return plain.decode("utf-8", "surrogatepass")


def _encoded(text: str) -> str:
    plain = text.encode("utf-8", "surrogatepass")
    return _UNSAFE.sub(lambda found: b"_%02x" % found[0][0], plain).decode()


def _key(name: str, number: int) -> str:
    return f"agentcompass-{name}" + (f"-{number + 1}" if number else "")
