"""Running a task's tests in the agent's sandbox: three calls, and no verdict but theirs."""

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import structlog
from pydantic import JsonValue

from ...domain.errors import SandboxFailed, StageTimeout, VerifierFailed
from ...domain.ports import Sandbox
from ...domain.sandbox import Command, ExecResult
from ...domain.task import Grade
from .sandbox_logs import SIZE_FUNCTION, Size, fetched, read_size, size_call
from .verdict import (
    MAX_CTRF_BYTES,
    MAX_REWARD_BYTES,
    MAX_STDOUT_BYTES,
    Evidence,
    NoVerdict,
    ctrf_counts,
    doubt,
    main_reward,
    read_regular,
    reward_from_files,
)

log = structlog.get_logger()
VERIFIER_LOGS = PurePosixPath("/logs/verifier")
MAX_LOGS_BYTES = 64 * 1024 * 1024
"""A larger /logs/verifier stays in the sandbox, but for the verdict."""
ROOT_LIMIT_S = 60.0
"""For each of the short calls beside the tests."""
_NOT_ROOT, _NOT_READY = 93, 94
_PYTEST_SETTINGS = ("pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
_SMALL_FILES = {"reward.json": MAX_REWARD_BYTES, "reward.txt": MAX_REWARD_BYTES, "ctrf.json": MAX_CTRF_BYTES}

_NEEDS_ROOT = f'[ "$(id -u)" = 0 ] || [ -n "${{AGENTCOMPASS_ROOT:-}}" ] || exit {_NOT_ROOT}\n'
_SETUP = """R="${AGENTCOMPASS_ROOT:-}"
[ -L "$R/logs" ] && rm -f "$R/logs"
rm -rf "$R/tests" "$R/logs/verifier"
for ac_path in "$R/tests" "$R/logs/verifier"; do
  if [ -e "$ac_path" ] || [ -L "$ac_path" ]; then echo "$ac_path cannot be removed" >&2; exit NOT_READY; fi
done
mkdir -p "$R/logs/verifier" && chmod 777 "$R/logs/verifier" && mv "${R}STAGED" "$R/tests" &&
  chmod -R a+rX "$R/tests" && chmod a+x "$R/tests/test.sh" || exit NOT_READY
"""
# A settings file of pytest's in / (an agent's, say) would rule the hidden tests, were there none beside them.
_PIN_PYTEST = ': > "$R/tests/pytest.ini"\n'
# What an agent may have left to run inside the verifier's Python: start-up files made after the machine had started.
# Field 22 of /proc/1/stat is its start in ticks since boot; a second is added for what the start itself wrote.
_STARTUP_FILES = r"""
if [ -z "$R" ] && read -r ac_stat < /proc/1/stat; then
  set -- ${ac_stat##*) }
  ac_ticks=${20:-0} ac_boot=0
  while read -r ac_key ac_value; do [ "$ac_key" = btime ] && ac_boot=$ac_value; done < /proc/stat
  if [ "$ac_boot" -gt 0 ] && [ "$ac_ticks" -gt 0 ]; then
    find /etc/ld.so.preload /usr/lib/python3* /usr/local/lib/python3* /opt/*/lib/python3* /root/.local/lib/python3* \
      /home/*/.local/lib/python3* "$PWD"/*/lib/python3* "$PWD"/.venv/lib/python3* -maxdepth 2 \
      \( -name sitecustomize.py -o -name usercustomize.py -o -name ld.so.preload \) \
      -newerct "@$((ac_boot + ac_ticks / 100 + 1))" 2>/dev/null |
    while IFS= read -r ac_file; do rm -f "$ac_file" && printf 'removed=%s\n' "$ac_file"; done
  fi
fi
"""
_KIT = """
rm -rf "$R/verifier-kit"
mv "${R}STAGED-kit" "$R/verifier-kit" && chmod -R a+rX "$R/verifier-kit" || exit NOT_READY
if [ -f "$R/verifier-kit/setup.sh" ]; then sh "$R/verifier-kit/setup.sh" >&2 || exit NOT_READY; fi
"""
_RUN = """R="${AGENTCOMPASS_ROOT:-}"
if command -v bash > /dev/null 2>&1; then ("$R/tests/test.sh"); else (sh "$R/tests/test.sh"); fi \\
  > "$R/logs/verifier/test-stdout.txt" 2>&1
printf 'code=%s\\n' "$?"
"""
_MEASURE = SIZE_FUNCTION + size_call("logs", '"${AGENTCOMPASS_ROOT:-}/logs/verifier"', MAX_LOGS_BYTES)
_TAIL = 'tail -c 65536 "${AGENTCOMPASS_ROOT:-}/logs/verifier/test-stdout.txt"'


class VerifierTimedOut(StageTimeout, VerifierFailed):
    """The tests outlived their limit."""


@dataclass(frozen=True)
class TestRun:
    """What is run, as whom, and for how long at most."""

    __test__ = False
    tests: Path
    env: Mapping[str, str]
    user: str | None
    limit_s: float
    limit_name: str
    logs: Path
    """Local folder for what the tests leave in /logs/verifier."""
    kit: Path | None = None
    """Folder that is put at /verifier-kit before the tests; its setup.sh, if any, is run as root."""


async def run_tests(sandbox: Sandbox, run: TestRun) -> Grade:
    """Put the hidden tests in, run them, read their verdict.

    Whatever lay at /tests and /logs/verifier is gone before. Score is the reward, correct is a reward of 1 or more.

    Raises:
        VerifierTimedOut: `limit_s` was reached.
        VerifierFailed: the tests could not be put in or run, or left no verdict that can be read and believed.
        SandboxLost, SandboxFailed: as they came.
    """
    staged = f"/.staged-{secrets.token_hex(8)}"
    await sandbox.upload(run.tests, PurePosixPath(staged))
    if run.kit is not None:
        await sandbox.upload(run.kit, PurePosixPath(f"{staged}-kit"))
    setup, result = await _run_staged(sandbox, run, staged)
    if result.timed_out:
        await _keep_logs(sandbox, run.logs)
        raise VerifierTimedOut("tests", run.limit_name, run.limit_s, result.duration_s)
    await _fetch_logs(sandbox, run.logs, read_size(result.stdout, "logs"))
    details: dict[str, JsonValue] = {"test_return_code": _code(result), "duration_s": round(result.duration_s, 3)}
    removed = [line.removeprefix("removed=") for line in setup.splitlines() if line.startswith("removed=")]
    if removed:
        log.warning("startup_files.removed", files=removed)
        details["removed"] = list[JsonValue](removed)
    return await asyncio.to_thread(_grade, run, details)


async def _run_staged(sandbox: Sandbox, run: TestRun, staged: str) -> tuple[str, ExecResult]:
    setup = _setup_script(run, staged)
    if run.user is None:
        script = f"{_NEEDS_ROOT}{setup}{_RUN}{_MEASURE}"
        result = await sandbox.exec(Command(script=script, env=dict(run.env), timeout_s=run.limit_s))
        if result.exit_code != _NOT_ROOT:
            return result.stdout, _checked(result)
    prepared = _checked(await sandbox.exec(Command(script=setup, user="root", timeout_s=ROOT_LIMIT_S)))
    if prepared.timed_out:
        raise SandboxFailed(f"putting the tests in took more than {ROOT_LIMIT_S:g} s")
    command = Command(script=_RUN + _MEASURE, env=dict(run.env), user=run.user, timeout_s=run.limit_s)
    return prepared.stdout, _checked(await sandbox.exec(command))


def _setup_script(run: TestRun, staged: str) -> str:
    pin = not any((run.tests / name).exists() for name in _PYTEST_SETTINGS) and any(run.tests.rglob("*.py"))
    script = f"{_SETUP}{_PIN_PYTEST if pin else ''}{_STARTUP_FILES}{_KIT if run.kit else ''}"
    return script.replace("STAGED", staged).replace("NOT_READY", str(_NOT_READY))


def _checked(result: ExecResult) -> ExecResult:
    if result.ok or result.timed_out:
        return result
    what = "the tests could not be put in" if result.exit_code == _NOT_READY else "the tests' shell was ended"
    raise VerifierFailed(f"{what}: status {result.exit_code}, {_last_line(result.stderr) or 'no message'}")


def _code(result: ExecResult) -> int | None:
    codes = [line.removeprefix("code=") for line in result.stdout.splitlines() if line.startswith("code=")]
    return int(codes[-1]) if codes and codes[-1].isdigit() else None


async def _keep_logs(sandbox: Sandbox, logs: Path) -> None:
    """After a time-out: the logs are worth having, the error is not worth replacing."""
    try:
        measured = await sandbox.exec(Command(script=_MEASURE, timeout_s=ROOT_LIMIT_S))
        await fetched(sandbox, VERIFIER_LOGS, logs, read_size(measured.stdout, "logs"), MAX_LOGS_BYTES)
    except SandboxFailed as exc:
        log.info("verifier_logs.not_kept", error=str(exc))


async def _fetch_logs(sandbox: Sandbox, logs: Path, size: Size | None) -> None:
    """All the tests left; of too much, the verdict alone."""
    await asyncio.to_thread(logs.mkdir, parents=True, exist_ok=True)
    if size is None or not size.exceeds(MAX_LOGS_BYTES):
        try:
            await sandbox.download(VERIFIER_LOGS, logs)
        except FileNotFoundError:
            log.info("verifier_logs.missing")
        return
    log.warning("verifier_logs.too_large", size_kib=size.kib, entries=size.entries)
    for name, max_bytes in _SMALL_FILES.items():
        content = await _small_file(sandbox, name, max_bytes)
        if content is not None:
            (logs / name).write_bytes(content)
    tail = Command(script=_TAIL, timeout_s=ROOT_LIMIT_S)
    (logs / "test-stdout.txt").write_text((await sandbox.exec(tail)).stdout, "utf-8", "replace")


async def _small_file(sandbox: Sandbox, name: str, max_bytes: int) -> bytes | None:
    try:
        return await sandbox.read_bytes(VERIFIER_LOGS / name, max_bytes)
    except FileNotFoundError:
        return None
    except ValueError as exc:
        if name == "ctrf.json":
            return b"{}"
        raise VerifierFailed(f"{name} cannot be read: {exc}") from exc


def _grade(run: TestRun, details: dict[str, JsonValue]) -> Grade:
    stdout = (read_regular(run.logs / "test-stdout.txt", MAX_STDOUT_BYTES) or b"").decode("utf-8", "replace")
    ctrf = read_regular(run.logs / "ctrf.json", MAX_CTRF_BYTES)
    evidence = Evidence(_scripts(run.tests), stdout, ctrf is not None, ctrf_counts(ctrf))
    try:
        rewards = reward_from_files(
            *(read_regular(run.logs / name, MAX_REWARD_BYTES) for name in ("reward.json", "reward.txt"))
        )
        score = main_reward(rewards)
        reason = doubt(rewards, evidence)
    except NoVerdict as exc:
        code = details["test_return_code"]
        last = _last_line(stdout)
        reason = f"{exc}; test.sh ended with status {code}" + (f", its last line: {last!r}" if last else "")
    if reason:
        raise VerifierFailed(f"no verdict: {reason}", hint="see verifier/test-stdout.txt in the attempt's logs")
    return Grade(score=score, correct=score >= 1, extra={"verify_log": _verify_log(rewards, evidence, details)})


def _verify_log(
    rewards: Mapping[str, float], evidence: Evidence, details: Mapping[str, JsonValue]
) -> dict[str, JsonValue]:
    report: dict[str, JsonValue] = {"reward": main_reward(rewards), "rewards": dict(rewards), **details}
    if evidence.ctrf_there:
        report["ctrf"] = dict(evidence.ctrf)
    return report | {"test_stdout": evidence.stdout[-4000:]}


def _scripts(tests: Path) -> str:
    files = sorted(file for file in tests.rglob("*.sh") if file.is_file())
    return "\n".join((read_regular(file, MAX_REWARD_BYTES) or b"").decode("utf-8", "replace") for file in files)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""
