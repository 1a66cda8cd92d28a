"""How a submission leaves the sandbox byte for byte, and how it is told from other output.

The agent hands in by printing the marker on a line of its own, then its answer, with exit code 0. The marker is
looked for in the first line that is not blank. Where the command itself names the marker, up to NOISE_LINES other
lines may come before it: a nested shell's start-up messages, say, must not swallow a submission.
"""

from dataclasses import dataclass
from pathlib import PurePosixPath

MARKER = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
NOISE_LINES = 10
MAX_SUBMISSION_BYTES = 64 * 1024 * 1024
_SHELLS = frozenset({"bash", "sh", "dash", "ksh", "zsh"})
_MERGED = "exec 2>&1; "
_CAPTURED = (
    '__ac_out="${{AGENTCOMPASS_ROOT:-}}{path}"; mkdir -p "${{__ac_out%/*}}" 2>/dev/null; '
    'if {{ : >"$__ac_out"; }} 2>/dev/null; then exec 3>&1 >"$__ac_out" 2>&1; '
    'trap \'printf "%s\\n" {seal} >&3; cat "$__ac_out" >&3\' EXIT; else exec 2>&1; fi; '
)


@dataclass(frozen=True)
class Capture:
    """A file in the sandbox that holds a command's whole output, and the line after which the same is printed."""

    path: PurePosixPath
    seal: str

    def split(self, printed: str) -> tuple[str, str | None]:
        """What the shell printed before the command's own output, and that; None where the seal was not printed."""
        noise, seal, output = printed.partition(f"{self.seal}\n")
        return (noise, output) if seal else (printed, None)


def is_shell(interpreter: tuple[str, ...]) -> bool:
    """Whether commands are shell scripts, which can be prefixed."""
    return not interpreter or PurePosixPath(interpreter[0]).name in _SHELLS


def prefixed(command: str, capture: Capture | None) -> str:
    """The command with stderr merged into stdout, in order; on the same line, so that line numbers stay."""
    if capture is None:
        return _MERGED + command
    return _CAPTURED.format(path=capture.path, seal=capture.seal) + command


def handed_in(output: bytes, noise_lines: int) -> bytes | None:
    """What follows the marker's line, unchanged; None when `output` is no submission."""
    rest = output
    while rest:
        line, _, rest = rest.partition(b"\n")
        text = line.strip()
        if text == MARKER.encode():
            return rest
        if text:
            noise_lines -= 1
        if noise_lines < 0:
            return None
    return None
