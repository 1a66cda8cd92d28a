"""What a dockerfile is built on."""

import re
from collections.abc import Iterable, Mapping

_FROM = re.compile(r"^\s*FROM\s+((?:--\S+\s+)*)(\S+)(?:\s+AS\s+(\S+))?\s*$", re.IGNORECASE)
_ARG = re.compile(r"^\s*ARG\s+(\w+)=(\S+)", re.IGNORECASE)
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")


def external_images(lines: Iterable[str], arguments: Mapping[str, str]) -> list[str]:
    """References of the images that its FROM lines name, without its own stages and `scratch`."""
    values: dict[str, str] = {}
    stages: set[str] = {"scratch"}
    found = []
    for line in lines:
        if declared := _ARG.match(line):
            values[declared[1]] = arguments.get(declared[1], declared[2].strip("\"'"))
        if start := _FROM.match(line):
            reference = _VARIABLE.sub(lambda name: values.get(name[1], ""), start[2])
            if reference.lower() not in stages:
                found.append(reference)
            if start[3]:
                stages.add(start[3].lower())
    return found


def with_bases(lines: Iterable[str], bases: Mapping[str, str]) -> list[str]:
    """The lines, each base image of the provider's (by the name used for it) replaced by its local image."""
    return [_with_base(line, bases) for line in lines]


def _with_base(line: str, bases: Mapping[str, str]) -> str:
    start = _FROM.match(line)
    if start is None or start[2] not in bases:
        return line
    stage = f" AS {start[3]}" if start[3] else ""
    return f"FROM {start[1]}{bases[start[2]]}{stage}"


def only_from(lines: Iterable[str]) -> str | None:
    """The reference, if there is nothing but one FROM line."""
    said = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    start = _FROM.match(said[0]) if len(said) == 1 else None
    return start[2] if start else None
