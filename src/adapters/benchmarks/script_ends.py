"""How a script ends in a sandbox: refused, as its user is not root, or failed, with a last line that tells why."""

NOT_ROOT = 93
"""Exit code of NEEDS_ROOT; the script is to be run again as root, without it."""
NEEDS_ROOT = f'[ "${{EUID:-$(id -u)}}" = 0 ] || [ -n "${{AGENTCOMPASS_ROOT:-}}" ] || exit {NOT_ROOT}\n'
"""Begins a script that only root can run, unless the sandbox is a folder of the runner's user. A sandbox's own user is
root as a rule, and then nobody has to be taken on."""


def last_line(text: str) -> str:
    """Of at most so many characters as a message bears; empty where there is none."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
