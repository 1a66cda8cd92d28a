"""What Modal's file tool does in a sandbox, done by the sandbox's own shell.

The SDK's `sandbox.filesystem` runs `/__modal/.bin/modal-sandbox-fs-tools '{"ReadFile": {"path": ...}}'`. Here such a
command becomes `sh -c SCRIPT fs-tools OPERATION PATH FLAG`, run like any other: as the container's user, with the
image's own cat, mkdir, mv, rm and stat. Errors are the tool's: one JSON object on stderr and an exit code other than 0.
"""

import json
from collections.abc import Callable
from typing import Any

TOOL = "/__modal/.bin/modal-sandbox-fs-tools"

SCRIPT = r"""
fail() { printf '{"error_kind": "%s", "message": "%s", "detail": ""}' "$1" "$2" >&2; exit 1; }
missing() {
    up=$1
    while [ ! -e "$up" ] && [ "$up" != / ]; do up=${up%/*}; up=${up:-/}; done
    [ -d "$up" ] || fail NotDirectory 'Not a directory'
    fail NotFound 'No such file or directory'
}
there() { [ -e "$1" ] || [ -L "$1" ]; }
describe() {
    printf '%s\000' "$1"
    stat -c '%s %f %A %U %G %Y' -- "$1" | tr -d '\n'
    printf '\000'
    [ -L "$1" ] && readlink -n -- "$1"
    printf '\000'
}
op=$1 path=$2 flag=$3
case $op in
ReadFile)
    there "$path" || missing "$path"
    [ -d "$path" ] && fail IsDirectory 'Is a directory'
    [ -r "$path" ] || fail PermissionDenied 'Permission denied'
    [ ! -f "$path" ] || [ "$(stat -L -c %s -- "$path")" -le "$flag" ] || fail FileTooLarge 'File too large'
    exec cat -- "$path" ;;
WriteFile)
    [ -d "$path" ] && fail IsDirectory 'Is a directory'
    parent=${path%/*}; parent=${parent:-/}
    up=$parent
    while [ ! -e "$up" ] && [ "$up" != / ]; do up=${up%/*}; up=${up:-/}; done
    [ -d "$up" ] || fail NotDirectory 'Not a directory'
    mkdir -p -- "$parent" 2>/dev/null || fail PermissionDenied 'Permission denied'
    fresh=$parent/.modal-fs-$$
    (cat > "$fresh") 2>/dev/null || { rm -f -- "$fresh"; fail PermissionDenied 'Permission denied'; }
    mv -f -- "$fresh" "$path" 2>/dev/null || { rm -f -- "$fresh"; fail PermissionDenied 'Permission denied'; } ;;
MakeDirectory)
    if there "$path"; then
        [ "$flag" = parents ] && [ -d "$path" ] && exit 0
        fail PathAlreadyExists 'Path already exists'
    fi
    [ "$flag" = parents ] || [ -e "${path%/*}/" ] || missing "${path%/*}"
    up=$path
    while [ ! -e "$up" ] && [ "$up" != / ]; do up=${up%/*}; up=${up:-/}; done
    [ -d "$up" ] || fail NotDirectory 'Not a directory'
    mkdir -p -- "$path" 2>/dev/null || fail PermissionDenied 'Permission denied' ;;
Remove)
    there "$path" || missing "$path"
    if [ "$flag" = recursive ]; then
        rm -rf -- "$path" 2>/dev/null || fail PermissionDenied 'Permission denied'
    elif [ -d "$path" ] && [ ! -L "$path" ]; then
        [ -z "$(ls -A -- "$path")" ] || fail DirectoryNotEmpty 'Directory not empty'
        rmdir -- "$path" 2>/dev/null || fail PermissionDenied 'Permission denied'
    else
        rm -f -- "$path" 2>/dev/null || fail PermissionDenied 'Permission denied'
    fi ;;
Stat)
    there "$path" || missing "$path"
    describe "$path" ;;
ListFiles)
    there "$path" || missing "$path"
    [ -d "$path" ] || fail NotDirectory 'Not a directory'
    [ -r "$path" ] || fail PermissionDenied 'Permission denied'
    for entry in "${path%/}"/* "${path%/}"/.[!.]* "${path%/}"/..?*; do
        if there "$entry"; then describe "$entry"; fi
    done ;;
*)
    fail NotSupported "Operation not supported" ;;
esac
"""


def as_shell(argv: list[str], read_limit_bytes: int) -> tuple[list[str], Callable[[bytes], bytes] | None]:
    """The command to run for a call of the tool, and what makes its output the tool's; others stay as they are."""
    if len(argv) != 2 or argv[0] != TOOL:
        return argv, None
    ((operation, request),) = json.loads(argv[1]).items()
    flags = {
        "ReadFile": str(read_limit_bytes),
        "MakeDirectory": "parents" if request.get("parents") else "",
        "Remove": "recursive" if request.get("recursive") else "",
    }
    convert = {"Stat": _one, "ListFiles": _all}.get(operation)
    return ["sh", "-c", SCRIPT, "fs-tools", operation, request["path"], flags.get(operation, "")], convert


def _one(printed: bytes) -> bytes:
    return b"".join(json.dumps(entry).encode() for entry in _entries(printed))


def _all(printed: bytes) -> bytes:
    return json.dumps(_entries(printed)).encode()


def _entries(printed: bytes) -> list[dict[str, Any]]:
    fields = printed.decode(errors="replace").split("\0")
    return [_entry(*fields[index : index + 3]) for index in range(0, len(fields) - 1, 3)]


def _entry(path: str, facts: str, target: str) -> dict[str, Any]:
    size, mode, permissions, owner, group, modified = facts.split()
    kinds = {"d": "directory", "l": "symlink"}
    return {
        "name": path.rstrip("/").rpartition("/")[2],
        "path": path,
        "type": kinds.get(permissions[0], "file"),
        "size": int(size),
        "mode": int(mode, 16),
        "permissions": permissions[1:],
        "owner": owner,
        "group": group,
        "modified_time": float(modified),
        "symlink_target": target or None,
    }
