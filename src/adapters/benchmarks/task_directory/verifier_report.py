"""What a verifier's script tells of the tests: their exit code, and the small files that they left, byte for byte."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import PurePosixPath

from .sandbox_logs import Size, read_size

REPORTED_FILES = {
    "reward.json": 64 * 1024,
    "reward.txt": 64 * 1024,
    "ctrf.json": 256 * 1024,
    "test-stdout.txt": 256 * 1024,
}
"""Most bytes of each that are told; a larger one is fetched."""
MAX_REPORT_BYTES = 1024 * 1024
"""Of a command's output: all of the above, and what surrounds it."""
_REPLACEMENT = "\ufffd".encode()
_MOST_SURPLUS = 2
"""Bytes by which a replacement may be longer than what it stands for."""


class TornReport(Exception):
    """There is no report in this output."""


@dataclass(frozen=True)
class Report:
    """`files` hold what was told; `untold` are there as well, and have to be fetched to be known."""

    code: int | None = None
    """test.sh's exit code."""
    removed: Sequence[str] = ()
    changed: Sequence[str] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    untold: frozenset[str] = frozenset()
    sizes: Mapping[PurePosixPath, Size] | None = None
    """Of the folders that exist; None where they hold nothing but the files of this report."""

    def has(self, *names: str) -> bool:
        """Whether any of these was there."""
        return not self.files.keys().isdisjoint(names) or not self.untold.isdisjoint(names)


def read_report(output: str, nonce: str, folders: Sequence[PurePosixPath]) -> Report:
    """The report in the scripts' output, text that was decoded with replacement.

    Sizes outrank all else: no content can pass for another's. Where one is not UTF-8, neither it nor those after it are
    told; those before it are.

    Raises:
        TornReport: none, or not all of it.
    """
    line = rf"^{re.escape(nonce)}(?P<sizes>(?: (?:[0-9]{{1,7}}|-|\+)){{{len(REPORTED_FILES)}}}) (?P<more>all|more)\n"
    header = re.search(line + r"(?P<measured>(?:size=.*\n)*)", output, re.MULTILINE)
    if header is None:
        raise TornReport("the verifier's shell told nothing of the tests")
    head, sizes = output[: header.start()], dict(zip(REPORTED_FILES, header["sizes"].split(), strict=True))
    told = {name: int(size) for name, size in sizes.items() if size.isdigit()}
    files = _contents(output[header.end() :].encode(), told, nonce)
    return Report(
        code=_code(head),
        removed=tuple(_values(head, "removed")),
        changed=tuple(_values(head, "changed")),
        files=files,
        untold=frozenset(name for name, size in sizes.items() if size != "-") - files.keys(),
        sizes=_sizes(header["measured"], folders) if header["more"] == "more" else None,
    )


def _contents(data: bytes, told: Mapping[str, int], nonce: str) -> dict[str, bytes]:
    ending, size = f"\n{nonce}\n".encode(), sum(told.values())
    surplus = len(data.removesuffix(ending)) - size
    if not data.endswith(ending) or not 0 <= surplus <= _MOST_SURPLUS * data.count(_REPLACEMENT):
        return {}
    sound = data.find(_REPLACEMENT) if _REPLACEMENT in data else size
    ends = dict(zip(told, accumulate(told.values()), strict=True))
    return {name: data[end - told[name] : end] for name, end in ends.items() if end <= sound}


def _sizes(measured: str, folders: Sequence[PurePosixPath]) -> dict[PurePosixPath, Size]:
    found = {folder: read_size(measured, str(folder)) for folder in folders}
    return {folder: size for folder, size in found.items() if size is not None}


def _values(text: str, name: str) -> list[str]:
    return [line.removeprefix(f"{name}=") for line in text.split("\n") if line.startswith(f"{name}=")]


def _code(head: str) -> int | None:
    codes = _values(head, "code")
    return int(codes[-1]) if codes and codes[-1].isdecimal() and codes[-1].isascii() else None
