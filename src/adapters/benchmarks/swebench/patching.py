"""Applying a patch to a tree, the same way in every environment: upstream's commands, never reversing, verified."""

from pathlib import PurePosixPath

from ....domain.errors import VerifierFailed
from ....domain.ports import Sandbox
from ....domain.sandbox import Command, ExecResult
from ....domain.value import Value
from .patch_paths import patch_paths
from .path_backup import SAVE_AND_PUT_BACK, bash_array

APPLY_LIMIT_S = 300.0
COMMANDS = (
    "git apply --verbose",
    "git apply --verbose --3way",
    "git apply --verbose --reject",
    "patch --batch --forward --fuzz=5 -p1 -i",
)
"""As in upstream's run_evaluation, in this order."""
ALREADY_APPLIED = "already applied"
PLAIN_GIT = r"""
export LC_ALL=C GIT_CEILING_DIRECTORIES="$(dirname "$PWD")"
git() { command git -c safe.directory='*' -c core.hooksPath=/dev/null -c core.fsmonitor=false "$@"; }
"""
_NOT_APPLIED = 10
_UNNAMED = 11
_LEFTOVERS = (".orig", ".rej")
_APPLY = r"""
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT && cat > "$work/patch.diff" || exit 1
index=$(git rev-parse --git-path index 2>/dev/null)
declare -A number_of
for i in "${!paths[@]}"; do
  save "$work/tree" "$i" "${paths[i]}" || exit 1
  number_of["${paths[i]}"]=$i
done
[ -f "$index" ] && cp -p "$index" "$work/index"

state() {
  { find . -path ./.git -prune -o ! -type d -printf '%y %m %s %i %C@ %p\0'
    find .git/config .git/hooks .git/info ! -type d -printf '%y %m %s %i %C@ %p\0' 2>/dev/null
  } | sort -z > "$work/$1"
}
same_file() {
  find_obstacle "${2#./}"
  [ -z "$obstacle" ] && [ -f "$1" ] && [ -f "$2" ] && [ ! -L "$1" ] && [ ! -L "$2" ] && cmp -s "$1" "$2" &&
    [ "$(stat -c %a "$1")" = "$(stat -c %a "$2")" ]
}
# Sets `changed` to the numbers of the paths that differ from the state before the try.
look() {
  changed=()
  state after
  local entry name
  while IFS= read -r -d '' entry; do
    entry=${entry#$'\t'}
    name=${entry#* * * * * }
    name=${name#./}
    if [ -z "${number_of["$name"]-}" ]; then
      printf 'the patch changed %q, which it does not name\n' "$name"
      exit UNNAMED
    fi
    same_file "$work/tree/${number_of["$name"]}.entry" "./$name" || changed+=("${number_of["$name"]}")
  done < <(comm -z -3 "$work/before" "$work/after")
}
undo() {
  [ -f "$work/index" ] && cp -p "$work/index" "$index"
  [ ${#changed[@]} = 0 ] && return
  for i in "${!paths[@]}"; do put_back "$work/tree" "$i" "${paths[i]}"; done
}
stands() {
  git apply --check --reverse "$work/patch.diff" ||
    patch --dry-run --force --reverse --fuzz=5 -p1 -i "$work/patch.diff" < /dev/null
}
applied() {
  printf '\n%s' "$1"
  printf '%s\n' "${changed[@]}" | sort -nu | tr '\n' ' '
  exit 0
}

for try in "${!commands[@]}"; do
  state before
  printf '$ %s\n' "${commands[try]}"
  ${commands[try]} "$work/patch.diff" < /dev/null 2>&1
  code=$?
  look
  if [ $code = 0 ] && [ ${#changed[@]} -gt 0 ] && stands > "$work/said" 2>&1; then
    for i in "${changed[@]}"; do [ "$i" -lt $named ] || put_back "$work/tree" "$i" "${paths[i]}"; done
    look
    applied "$try "
  fi
  printf 'exit status %s\n' "$code"
  undo
done
changed=()
# What could be applied as well as taken back says nothing at all.
git apply --check "$work/patch.diff" > /dev/null 2>&1 ||
  { git apply --check --reverse "$work/patch.diff" > /dev/null 2>&1 && applied "${#commands[@]} "; }
exit NOT_APPLIED
"""


class PatchOutcome(Value):
    """What came of a patch. One that is not applied has left the tree as it was."""

    applied: bool
    command: str = ""
    """Which of COMMANDS took it, or ALREADY_APPLIED: nothing was to do."""
    output: str
    """What the commands said."""
    changed: tuple[str, ...] = ()
    """The paths, relative to the root, that it has changed, made or removed; bytes beyond UTF-8 as surrogates."""
    newline_added: bool = False
    """It lacked its last newline, which the commands would not have taken."""


def apply_command(patch: bytes, root: PurePosixPath) -> Command:
    """The whole routine as one command; its status is 0 when the patch is applied."""
    names = patch_paths(patch)
    leftovers = sorted({name + suffix for name in names for suffix in _LEFTOVERS} - set(names))
    head = bash_array("paths", [*names, *leftovers]) + bash_array("commands", COMMANDS) + f"named={len(names)}\n"
    body = _APPLY.replace("NOT_APPLIED", str(_NOT_APPLIED)).replace("UNNAMED", str(_UNNAMED))
    return Command(
        script=head + PLAIN_GIT + SAVE_AND_PUT_BACK + body,
        cwd=root,
        stdin=ended(patch),
        timeout_s=APPLY_LIMIT_S,
    )


async def apply_patch(sandbox: Sandbox, patch: bytes, root: PurePosixPath) -> PatchOutcome:
    """Apply `patch` (a/, b/ prefixes) below `root`.

    Each command that fails is undone, to the tree as it was; what is there already is never reversed. A command
    that claims success is believed when the patch could be taken back.

    Raises:
        VerifierFailed: no command could be tried: no such folder, no git, a time-out.
        SandboxLost, SandboxFailed: as they came.
    """
    result = await sandbox.exec(apply_command(patch, root))
    if result.exit_code not in (0, _NOT_APPLIED, _UNNAMED):
        raise VerifierFailed(f"no patch could be applied in {str(root)!r} of sandbox {sandbox.id!r}: {_reason(result)}")
    output = result.stdout + result.stderr
    if not result.ok:
        return PatchOutcome(applied=False, output=output, newline_added=ended(patch) != patch)
    said, _, numbers = result.stdout.rpartition("\n")
    command, *changed = map(int, numbers.split())
    names = patch_paths(patch)
    return PatchOutcome(
        applied=True,
        command=(*COMMANDS, ALREADY_APPLIED)[command],
        output=said + result.stderr,
        changed=tuple(names[number] for number in changed if number < len(names)),
        newline_added=ended(patch) != patch,
    )


def ended(patch: bytes) -> bytes:
    """The patch with its last newline."""
    return patch if patch.endswith(b"\n") or not patch else patch + b"\n"


def _reason(result: ExecResult) -> str:
    if result.timed_out:
        return f"it took more than {APPLY_LIMIT_S:g} s"
    return result.stderr.strip()[-300:] or f"status {result.exit_code}"
