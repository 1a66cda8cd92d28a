"""`details/TASK.json`: every attempt of one task; read leniently, written strictly."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, JsonValue, ValidationError

from ...domain.attempt import SCHEMA_VERSION, AttemptKey, AttemptRecord
from ...domain.run import GRADED
from .durable import UnreadableResult, read_json_object

_ESSENTIAL = frozenset({"status", "correct", "score"})
"""A record in which one of these is damaged says nothing that may be counted."""
_GRADED_NAMES = tuple(status.value for status in GRADED)


@dataclass(frozen=True)
class TaskFile:
    """What a file holds: its attempts in order, and those of them that cannot be read, with the reason."""

    document: dict[str, Any]
    task_id: str
    category: str
    records: dict[AttemptKey, AttemptRecord]
    broken: dict[str, str] = field(default_factory=dict)

    @property
    def identity(self) -> str | None:
        """The digest of the run's identity that it was written under."""
        value = self.document.get("run_identity")
        return value if isinstance(value, str) else None


def read_task_file(path: Path) -> TaskFile:
    """Read a file of this or an older schema; keys that are not known are passed over.

    Raises:
        UnreadableResult: it is no task file.
        UnreachableResult: it cannot be read now.
    """
    document = read_json_object(path)
    task_id, attempts = document.get("task_id"), document.get("attempts")
    if not isinstance(task_id, str) or not isinstance(attempts, dict):
        raise UnreadableResult("no task_id or no attempts")
    records: dict[AttemptKey, AttemptRecord] = {}
    broken: dict[str, str] = {}
    for number, data in attempts.items():
        try:
            records[_key(task_id, number)] = lenient_record(data)
        except UnreadableResult as exc:
            broken[number] = str(exc)
    return TaskFile(document, task_id, str(document.get("category") or ""), records, broken)


def _key(task_id: str, number: str) -> AttemptKey:
    if not (number.isascii() and number.isdigit() and int(number) >= 1):
        raise UnreadableResult(f"{number!r} is no attempt number")
    return AttemptKey(task_id=task_id, attempt=int(number))


def lenient_record(data: object) -> AttemptRecord:
    """An attempt as stored: unknown keys are dropped, a damaged field that moves no score gets its default.

    Raises:
        UnreadableResult: its status or score is missing or damaged.
    """
    if not isinstance(data, dict):
        raise UnreadableResult("an attempt is not a JSON object")
    if _is_graded(data) and "correct" not in data:
        raise UnreadableResult("a graded attempt without its verdict")
    repaired = data
    for _ in range(len(AttemptRecord.model_fields) + 1):
        try:
            return AttemptRecord.model_validate(repaired)
        except ValidationError as exc:
            repaired = _repaired(repaired, exc)
    raise UnreadableResult("an attempt has too many damaged fields")


def without_unknown(model: type[BaseModel], data: Any) -> Any:
    """`data` less the keys that `model` does not know, at any depth; it may still be invalid otherwise."""
    try:
        model.model_validate(data)
    except ValidationError as exc:
        data = json.loads(json.dumps(data))
        for path in _unknown(exc):
            _remove(data, path)
    return data


def _unknown(error: ValidationError) -> list[tuple[int | str, ...]]:
    details = error.errors(include_url=False, include_input=False)
    return [detail["loc"] for detail in details if detail["type"] == "extra_forbidden"]


def _repaired(data: Mapping[str, Any], error: ValidationError) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(json.dumps(data))
    unknown = _unknown(error)
    for path in unknown:
        _remove(result, path)
    for detail in () if unknown else error.errors(include_url=False, include_input=False):
        name = str(detail["loc"][0])
        if name in _ESSENTIAL:
            raise UnreadableResult(f"{name}: {detail['msg']}")
        if detail["type"] == "missing" and len(detail["loc"]) == 1:
            result[name] = ""
        else:
            result.pop(name, None)
    return result


def _remove(data: Any, path: tuple[int | str, ...]) -> None:
    for step in path[:-1]:
        data = data[step]
    del data[path[-1]]


def keeps(document: Mapping[str, Any], key: AttemptKey, record: AttemptRecord) -> bool:
    """Whether the stored attempt stays, because it is graded and `record` is not."""
    stored = document.get("attempts", {}).get(str(key.attempt))
    return record.status not in GRADED and isinstance(stored, dict) and _is_graded(stored)


def with_attempt(
    document: Mapping[str, Any], key: AttemptKey, category: str, stored: JsonValue, identity: str
) -> dict[str, JsonValue]:
    """The task's document with one attempt added or replaced; `correct` and `score` are its first graded attempt's."""
    attempts = {**document.get("attempts", {}), str(key.attempt): stored}
    return _headed({**document, "category": category}, key.task_id, attempts, identity)


def without_broken(file: TaskFile, identity: str) -> dict[str, JsonValue]:
    """The document of what could be read."""
    attempts = {number: data for number, data in file.document["attempts"].items() if number not in file.broken}
    return _headed(file.document, file.task_id, attempts, file.identity or identity)


def _headed(
    document: Mapping[str, Any], task_id: str, attempts: Mapping[str, Any], identity: str
) -> dict[str, JsonValue]:
    ordered = {number: attempts[number] for number in sorted(attempts, key=int)}
    first = next((data for data in ordered.values() if isinstance(data, dict) and _is_graded(data)), {})
    head: dict[str, JsonValue] = {
        "schema_version": SCHEMA_VERSION,
        "task_id": task_id,
        "category": document.get("category", ""),
        "correct": bool(first.get("correct", False)),
        "score": first.get("score"),
    }
    rest = {name: value for name, value in document.items() if name not in head and name != "attempts"}
    return {**head, "attempts": ordered, **rest, "run_identity": identity}


def _is_graded(data: Mapping[str, Any]) -> bool:
    return data.get("status") in _GRADED_NAMES
