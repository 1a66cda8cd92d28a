"""Whether a verifier's own set-up failed, told from its output: an agent's programs print there too.

What an agent prints must not turn its zero into an error, so a line counts only in a form that the set-up's own tools
give it, about something that the scripts themselves install or fetch, and never beside a trace of tests that ran.
"""

import re
from collections.abc import Callable, Iterator, Mapping

_RAN = re.compile(
    r"\b\d+ (?:passed|failed|errors?|skipped|xfailed|deselected)\b.{0,200} in \d+(?:\.\d+)?s"  # pytest, at its end
    r"|^=+ (?:test session starts|FAILURES|ERRORS|short test summary info) =+$|^collected \d+ item"
    r"|^Ran \d+ tests? in |^Fatal Python error: "
    r"|^(?:not )?ok \d+\b|^[ \t]*--- (?:FAIL|PASS): |^test result: |^Tests: +\d+ |^[ \t]*\d+ (?:passing|failing)\b",
    re.MULTILINE,
)
"""What test frameworks print once they are at work."""
_SET_UP = re.compile(r"^Installed \d+ packages? in \d|^Successfully installed .*\bpytest\b", re.MULTILINE)
"""What uv and pip print when the tools are there: what fails after that is no set-up."""
_INSTALL = r"(?:install|update|add|ci|i)\b"
_RUNNERS = "uvx?|pytest"
_LONGEST_LINE = 2000
_ENDS = 256 * 1024
"""Characters of each end of the output that are looked at: a set-up begins it, a summary ends it."""
_INSTALLERS = "apt-get|apt|apk|pip3?|npm|conda"


def setup_failure(scripts: str, stdout: str, *, reports: bool) -> str:
    """Why the tests in `scripts` cannot have run, as their output tells it; nothing where they ran or may have.

    `reports` says that they write a report, and that there is none: then an output without any trace of tests, or of
    tools that were installed for them, is enough.
    """
    if len(stdout) > 2 * _ENDS:
        stdout = f"{stdout[:_ENDS]}\n{stdout[-_ENDS:]}"
    if _RAN.search(stdout):
        return ""
    for line in (line for line in stdout.splitlines() if line and len(line) < _LONGEST_LINE):
        if any(fits(match, scripts) for pattern, fits in _SIGNS.items() if (match := re.search(pattern, line))):
            return f"its tools could not run: {line.strip()[:200]!r}"
    untouched = reports and not _SET_UP.search(stdout)
    return "its tests never ran: they write ctrf.json and it is missing" if untouched else ""


def _needed(match: re.Match[str], scripts: str) -> bool:
    """A runner of tests, an installer that is told to install, or a tool that the scripts themselves install."""
    tool = re.escape(match["tool"])
    if re.fullmatch(_RUNNERS, match["tool"]):
        return _uses(scripts, tool)
    if re.fullmatch(_INSTALLERS, match["tool"]):
        return _uses(scripts, rf"{tool}(?: +-\S+)* +{_INSTALL}")
    return _uses(scripts, rf"install\b[^\n;&|]*\s{tool}")


def _fetched(match: re.Match[str], scripts: str) -> bool:
    """A host that the scripts fetch from; what an agent serves is reached without https, or is local."""
    return re.search(rf"https://{re.escape(match['host'])}(?![\w.-])", scripts, re.IGNORECASE) is not None


def _used(tools: str) -> Callable[[re.Match[str], str], bool]:
    return lambda _, scripts: _uses(scripts, tools)


def _uses(scripts: str, pattern: str) -> bool:
    return re.search(rf"(?<![\w./-]){pattern}(?![\w-])", "\n".join(_commands(scripts))) is not None


def _commands(scripts: str) -> Iterator[str]:
    joined = scripts.replace("\\\n", " ")
    return (line for line in joined.splitlines() if not line.lstrip().startswith("#"))


_HOST = r"(?P<host>[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)"
_UNREACHED = "Temporary failure in name resolution|Name or service not known|Network is unreachable"
_SIGNS: Mapping[str, Callable[[re.Match[str], str], bool]] = {
    r"^(?:\S.*)?/tests/\S+\.sh: (?:line )?\d+: (?P<tool>[\w.-]+): (?:command )?not found$": _needed,
    r"^(?:\S*/)?python[\d.]*: No module named '?(?P<tool>pytest|pip|uv)'?$": lambda match, scripts: _uses(
        scripts, rf"-m +{match['tool']}"
    ),
    rf"^curl: \(6\) Could not resolve host: {_HOST}$": _fetched,
    rf"^curl: \((?:7|28)\) Failed to connect to {_HOST} port 443\b": _fetched,
    rf"^curl: \(35\) .*\bconnection to {_HOST}:443\b": _fetched,
    rf"^wget: (?:unable to resolve host address|bad address) ['‘`]{_HOST}": _fetched,
    rf"^fatal: unable to access 'https://{_HOST}/.*': (?:Could not resolve host|Failed to connect)": _fetched,
    r"^E: (?:Unable to (?:locate package|fetch)|Failed to fetch|Package .* has no installation candidate)": _used(
        rf"apt(?:-get)?(?: +-\S+)* +{_INSTALL}"
    ),
    r"^ERROR: (?:No matching distribution found for|Could not find a version that satisfies the requirement) "
    r"(?:pytest|uv)\b": _used(rf"pip3?(?: +-\S+)* +{_INSTALL}"),
    rf"^WARNING: Retrying \(Retry\(.*(?:{_UNREACHED})": _used(rf"pip3?(?: +-\S+)* +{_INSTALL}"),
    r"^error: (?:Failed to (?:fetch|download|install)|Request failed after)": _used("uvx?"),
    r"^ *[×x] (?:Failed to (?:fetch|download|install|resolve|build)|No solution found)": _used("uvx?"),
    r"^npm (?:ERR!|error) (?:network|code (?:ENOTFOUND|EAI_AGAIN|ETIMEDOUT|ECONNRESET)\b)": _used(rf"npm +{_INSTALL}"),
}
"""A line of a tool's own that tells of a failed set-up -> whether it fits what the scripts do."""
