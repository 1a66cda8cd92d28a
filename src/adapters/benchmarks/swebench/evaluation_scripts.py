"""The bash scripts of a grading: looking at the image, and running the tests."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from ....domain.sandbox import Command
from .patching import PLAIN_GIT
from .path_backup import SAVE_AND_PUT_BACK, bash_array

NOT_FIT = 20
"""The image lacks what its last line of output names."""
DO_NOT_APPLY = 21
BLOCKED = "agentcompass: the hidden tests are blocked"
"""First line of a log: the hidden tests do not apply to the tree as the submission leaves it."""
SHORT_LIMIT_S = 300.0
MAX_LOG_BYTES = 64 * 1024 * 1024
"""Kept of a log, head and tail."""
_TOOLS = PLAIN_GIT + SAVE_AND_PUT_BACK
_LOOK = r"""
unfit() { echo "$1" >&2; exit NOT_FIT; }
for tool in bash git cp find comm mktemp; do command -v $tool > /dev/null || unfit "no $tool"; done
[ -e .git ] || unfit "no git repository in $PWD"
mkdir -p "$work" && chmod 700 "$work" && cat > "$work/hidden.diff" || unfit "cannot write to $work"
fits() { [ ! -s "$work/hidden.diff" ] || git apply --check "$work/hidden.diff"; }
if ! fits 2> /dev/null; then
  # The image's set-up has edited their files: the eval script would undo that.
  for i in "${hidden[@]}"; do git checkout -q BASE -- "${paths[i]}" 2> /dev/null; done
  fits || exit DO_NOT_APPLY
fi
for i in "${!paths[@]}"; do save "$work/image" "$i" "${paths[i]}" || unfit "cannot write to $work"; done
"""
_PUT_BACK = r"""
for i in "${aside[@]}"; do save "$work/submitted" "$i" "${paths[i]}" && put_back "$work/image" "$i" "${paths[i]}"; done
for i in "${hidden[@]}"; do put_back "$work/image" "$i" "${paths[i]}"; done
[ ! -s "$work/hidden.diff" ] || git apply --check "$work/hidden.diff" > "$work/blocked" 2>&1 || echo 'BLOCKED'
"""
# `eval` reads the whole script before its first command: what the tests do to the file comes too late.
_RUN = r"""
exec env -u FORCE_COLOR -u PY_COLORS -u CLICOLOR_FORCE -u BASH_ENV bash -c 'eval "$(< "$0")"' "$work/eval.sh" 2>&1
"""
_RESTORE = r"""
for i in "${aside[@]}"; do put_back "$work/submitted" "$i" "${paths[i]}"; done
"""


@dataclass(frozen=True)
class Scripts:
    """`paths` are all that the submission or the hidden tests name; `hidden` the latter."""

    root: PurePosixPath
    paths: Sequence[str]
    hidden: Sequence[str]
    folder: PurePosixPath = field(default_factory=lambda: PurePosixPath(f"/.grading-{secrets.token_hex(16)}"))

    def look(self, test_patch: bytes, base_commit: str) -> Command:
        """See whether the image is fit to be graded in, and save what it has at all paths."""
        body = _LOOK.replace("NOT_FIT", str(NOT_FIT)).replace("DO_NOT_APPLY", str(DO_NOT_APPLY))
        body = body.replace("BASE", base_commit)
        return self._command(_TOOLS + body, SHORT_LIMIT_S, stdin=test_patch)

    def run(self, limit_s: float, aside: Sequence[str] = ()) -> Command:
        """Put the image's state back at the hidden tests' paths and at `aside`, then run the eval script.

        The log is what it prints, in order: no file of it lies where the tests could write.
        """
        put_back = _PUT_BACK.replace("BLOCKED", BLOCKED)
        command = self._command(f"({_TOOLS}{put_back})\n{_RUN}", limit_s, aside=aside)
        return command.model_copy(update={"max_output_bytes": MAX_LOG_BYTES})

    def restore(self, aside: Sequence[str]) -> Command:
        """Put the submission's state back at `aside`."""
        return self._command(_TOOLS + _RESTORE, SHORT_LIMIT_S, aside=aside)

    def _command(self, body: str, limit_s: float, aside: Sequence[str] = (), stdin: bytes | None = None) -> Command:
        numbers = {path: number for number, path in enumerate(self.paths)}
        head = [
            f'work="${{AGENTCOMPASS_ROOT:-}}{self.folder}"\n',
            bash_array("paths", self.paths),
            f"hidden=({' '.join(str(numbers[path]) for path in self.hidden)})\n",
            f"aside=({' '.join(str(numbers[path]) for path in aside)})\n",
        ]
        return Command(script="".join(head) + body, cwd=self.root, stdin=stdin, timeout_s=limit_s)
