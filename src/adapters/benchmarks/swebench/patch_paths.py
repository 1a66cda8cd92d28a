"""Which paths a patch names."""

import posixpath
import re
from collections.abc import Iterator

_ESCAPE = re.compile(rb'\\([0-7]{3}|[abtnvfr"\\])')
_PLAIN = {b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"v": b"\v", b"f": b"\f", b"r": b"\r"}
_FILE = re.compile(rb"(?:---|\+\+\+|\*\*\*|Index:|(?:rename|copy) (?:from|to)) (.+)")
_QUOTED = rb'"(?:[^"\\]|\\.)*"'
_BOTH = re.compile(rb"(%s|\S.*?) (%s|\S.*)" % (_QUOTED, _QUOTED))


def patch_paths(patch: bytes) -> tuple[str, ...]:
    """Every path, relative to the root, that a header may mean; bytes beyond UTF-8 as surrogates. Sorted.

    Rather too many than too few: a line of a hunk that looks like a header counts. Left out are paths that lead out of
    the root or into a `.git`, which no patch may touch.
    """
    found = {path for line in patch.split(b"\n") for name in _names(line) for path in _readings(name)}
    return tuple(sorted(path for path in found if is_inside(path)))


def is_inside(path: str) -> bool:
    """Whether it names something below the root and outside of `.git`."""
    parts = path.split("/")
    return bool(path) and path == posixpath.normpath(path) and not {"", ".", "..", ".git"} & {p.lower() for p in parts}


def _names(line: bytes) -> Iterator[bytes]:
    if line.startswith(b"diff --git "):
        yield from _both_names(line[len(b"diff --git ") :])
    elif match := _FILE.match(line):
        yield _unquoted(match[1])


def _both_names(rest: bytes) -> Iterator[bytes]:
    """Names with blanks are not quoted there: as git does, take the cut that makes both the same; else any cut."""
    if match := _BOTH.fullmatch(rest) if b'"' in rest else None:
        yield from (_unquoted(match[1]), _unquoted(match[2]))
    middle = len(rest) // 2
    if rest[:middle].partition(b"/")[2] == rest[middle + 1 :].partition(b"/")[2]:
        yield rest[:middle]
    else:
        yield from (part for cut in re.finditer(rb" (?=b/)", rest) for part in (rest[: cut.start()], rest[cut.end() :]))


def _unquoted(name: bytes) -> bytes:
    if match := re.match(_QUOTED, name):
        return _ESCAPE.sub(_unescaped, match[0][1:-1])
    return name.partition(b"\t")[0].rstrip(b"\r")


def _unescaped(match: re.Match[bytes]) -> bytes:
    code = match[1]
    return bytes([int(code, 8) & 255]) if len(code) == 3 else _PLAIN.get(code, code)


def _readings(name: bytes) -> Iterator[str]:
    """With and without its first folder: GNU patch takes what is there."""
    for reading in (name, name.partition(b"/")[2].lstrip(b"/")):
        yield posixpath.normpath(reading.decode("utf-8", "surrogateescape"))
