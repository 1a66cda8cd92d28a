"""Running a task's tests in the agent's sandbox: two calls where they leave little, and no verdict but theirs."""

import asyncio
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import structlog
from pydantic import JsonValue

from ....domain.errors import SandboxFailed, SandboxLost, StageTimeout, VerifierFailed
from ....domain.ports import Sandbox
from ....domain.sandbox import Command, ExecResult
from ....domain.task import Grade
from ..script_ends import NEEDS_ROOT, NOT_ROOT, last_line
from .grading import grade_of, meddled, output_counts, without_foreign_reward
from .sandbox_logs import fetched, keep_deadline, why_not_kept
from .verdict import MAX_CTRF_BYTES, MAX_REWARD_BYTES
from .verifier_report import MAX_REPORT_BYTES, REPORTED_FILES, Report, TornReport, read_report
from .verifier_script import DISTURBED, NOT_READY, RUN, report_script, setup_script
from .working_directory import exec_in_working_directory

log = structlog.get_logger()
VERIFIER_LOGS = PurePosixPath("/logs/verifier")
MAX_LOGS_BYTES = 64 * 1024 * 1024
"""A larger /logs/verifier stays in the sandbox, but for the verdict."""
ROOT_LIMIT_S = 60.0
"""For each of the short calls beside the tests."""
_PYTEST_SETTINGS = ("pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
_SMALL_FILES = {"reward.json": MAX_REWARD_BYTES, "reward.txt": MAX_REWARD_BYTES, "ctrf.json": MAX_CTRF_BYTES}
_NO_STARTUP = dict.fromkeys(("BASH_ENV", "ENV", "LD_PRELOAD", "PYTHONSTARTUP"), "")
"""What would run files that the agent may have written, unless the task's own verifier.env asks for it."""
_TAIL = 'tail -c 65536 "${AGENTCOMPASS_ROOT:-}/logs/verifier/test-stdout.txt"'


class VerifierTimedOut(StageTimeout, VerifierFailed):
    """The tests outlived their limit, as they would again."""

    transient = False


class VerifierDisturbed(VerifierFailed):
    """Something goes on writing where the tests belong; what is left of it after a kill is run by the tests."""

    transient = False


class VerifierEnded(VerifierFailed):
    """A shell was not started, or ended before it had told all: a program of the agent's can bring that about."""

    transient = False


_CANNOT_START = 126
_ENDINGS: Mapping[int | None, tuple[str, type[VerifierFailed]]] = {
    NOT_READY: ("the tests could not be put in", VerifierFailed),
    DISTURBED: ("the tests could not be put in", VerifierDisturbed),
    _CANNOT_START: ("no command can be started as this user", VerifierEnded),
}


@dataclass(frozen=True)
class Folder:
    """A folder of the sandbox that is kept: where to, and how much of it at most."""

    target: Path
    max_bytes: int


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
    beside: Mapping[PurePosixPath, Folder] = field(default_factory=dict)
    """What else of the sandbox is kept when the tests have ended; that costs no call where there is nothing in it."""


async def run_tests(sandbox: Sandbox, run: TestRun) -> Grade:
    """Put the hidden tests in, run them, read their verdict.

    Whatever lay at /tests and /logs/verifier is gone before. Score is the reward, correct is a reward of 1 or more.
    `extra` has the `verify_log`, and as `artifacts` those of `beside` that could not be kept, with the reason.

    Raises:
        VerifierTimedOut: `limit_s` was reached.
        VerifierFailed: the tests could not be put in or run, or left no verdict that can be read and believed.
        SandboxLost, SandboxFailed: as they came.
    """
    return await _Verification(sandbox, run).grade()


class _Verification:
    def __init__(self, sandbox: Sandbox, run: TestRun) -> None:
        self._sandbox, self._run = sandbox, run
        self._nonce = f"agentcompass-{secrets.token_hex(16)}"
        self._folders = {VERIFIER_LOGS: Folder(run.logs, MAX_LOGS_BYTES), **run.beside}
        self._root: str | None = None
        """Who may do all in the sandbox; None is its own user."""
        self._duration_s = 0.0
        self._killed = False
        self._left_out = False

    async def grade(self) -> Grade:
        try:
            report = await self._undisturbed()
        except (VerifierFailed, SandboxFailed):
            await self._keep_logs()
            raise
        if report.code is None:
            raise VerifierEnded("no verdict: the tests' shell does not tell that test.sh has run")
        await asyncio.to_thread(_write, self._run.logs, report.files)
        deadline = keep_deadline()
        await self._fetch_for_verdict(report, deadline)
        artifacts = await self._fetch_rest(report, deadline)
        details: dict[str, JsonValue] = {"test_return_code": report.code, "duration_s": round(self._duration_s, 3)}
        if report.removed:
            log.warning("startup_files.removed", files=list(report.removed))
            details["removed"] = list[JsonValue](report.removed)
        if report.changed:
            details["changed_tools"] = list[JsonValue](report.changed)
        if self._killed:
            details["processes_killed"] = True
        if self._left_out:
            details["left_out"] = ["reward.json"]
        grade = await asyncio.to_thread(grade_of, self._run.tests, self._run.logs, report, details)
        return grade.model_copy(update={"extra": grade.extra | {"artifacts": artifacts}}) if artifacts else grade

    async def _undisturbed(self) -> Report:
        """Where processes that the agent left meddle with the tests' files, they are killed, and it begins again."""
        try:
            report = await self._tests()
            reason = "" if report.code is None else await asyncio.to_thread(meddled, self._run.tests, report)
            if not reason:
                return report
        except VerifierDisturbed as exc:
            reason = exc.message
        log.warning("verifier.disturbed", reason=reason)
        await self._sandbox.kill_processes()
        self._killed = True
        return await self._believable(await self._tests())

    async def _believable(self, report: Report) -> Report:
        """Nobody is left to be killed: what the tests do not write does not count, what they lost ends it."""
        if report.code is None:
            return report
        kept = await asyncio.to_thread(without_foreign_reward, self._run.tests, report)
        self._left_out = kept is not report
        reason = await asyncio.to_thread(meddled, self._run.tests, kept)
        if reason and kept.has("reward.json", "reward.txt"):
            raise VerifierDisturbed(f"no verdict: {reason}, although the agent's processes had been killed")
        return kept

    async def _tests(self) -> Report:
        staged = f"/.staged-{secrets.token_hex(8)}"
        await self._sandbox.upload(self._run.tests, PurePosixPath(staged))
        if self._run.kit is not None:
            await self._sandbox.upload(self._run.kit, PurePosixPath(f"{staged}-kit"))
        setup = _setup(self._run, staged)
        if self._run.user is None:
            result = await self._exec_tests(f"{NEEDS_ROOT}{setup}{RUN}{self._report_script()}")
            if result.exit_code != NOT_ROOT:
                return self._report(self._ended(result))
        self._root = "root"
        prepared = _checked(await self._exec_beside(setup), "putting the tests in")
        if prepared.timed_out:
            raise SandboxFailed(f"putting the tests in took more than {ROOT_LIMIT_S:g} s")
        tested = self._ended(await self._exec_tests(RUN))
        reported = _checked(await self._exec_beside(self._report_script()), "the report")
        return self._report(prepared.stdout + tested + reported.stdout)

    async def _exec_tests(self, script: str) -> ExecResult:
        run = self._run
        command = Command(
            script=script,
            env={**_NO_STARTUP, **run.env},
            user=run.user,
            timeout_s=run.limit_s,
            max_output_bytes=MAX_REPORT_BYTES,
        )
        return await exec_in_working_directory(self._sandbox, command)

    async def _exec_beside(self, script: str) -> ExecResult:
        command = Command(
            script=script,
            env=_NO_STARTUP,
            user=self._root,
            timeout_s=ROOT_LIMIT_S,
            max_output_bytes=MAX_REPORT_BYTES,
        )
        return await exec_in_working_directory(self._sandbox, command)

    def _ended(self, result: ExecResult) -> str:
        self._duration_s = result.duration_s
        if result.timed_out:
            raise VerifierTimedOut(self._run.limit_name, self._run.limit_s, result.duration_s)
        return _checked(result, "the tests' shell").stdout

    def _report_script(self) -> str:
        folders = {path: folder.max_bytes for path, folder in self._folders.items()}
        return report_script(self._nonce, REPORTED_FILES, folders)

    def _report(self, output: str) -> Report:
        try:
            return read_report(output, self._nonce, list(self._folders))
        except TornReport as exc:
            raise VerifierEnded(f"no verdict: {exc}") from exc

    async def _keep_logs(self) -> None:
        """The logs are worth having, the error is not worth replacing."""
        deadline = keep_deadline()
        try:
            async with asyncio.timeout_at(deadline):
                report = self._report((await self._exec_beside(self._report_script())).stdout)
                await asyncio.to_thread(_write, self._run.logs, report.files)
                await self._fetch_untold(report)
                await self._fetch_rest(report, deadline)
        except (SandboxFailed, SandboxLost, VerifierFailed, TimeoutError) as exc:
            log.info("verifier_logs.not_kept", error=repr(exc))

    async def _fetch_for_verdict(self, report: Report, deadline: float) -> None:
        """Where the output alone is untold and changes nothing, a verdict does not wait for it or fail with it."""
        if report.untold != {"test-stdout.txt"} or output_counts(report):
            await self._fetch_untold(report)
            return
        try:
            reason = await why_not_kept(self._fetch_untold(report), deadline)
        except SandboxLost as exc:
            reason = str(exc)
        if reason:
            log.warning("logs.not_kept", path=str(VERIFIER_LOGS / "test-stdout.txt"), reason=reason)

    async def _fetch_untold(self, report: Report) -> None:
        """What the verdict still needs: with all that is beside it, or alone where that is too much."""
        size = (report.sizes or {}).get(VERIFIER_LOGS)
        if report.untold and size is not None and size.exceeds(MAX_LOGS_BYTES):
            await self._fetch_alone(report.untold)
        elif report.untold:
            try:
                await self._sandbox.download(VERIFIER_LOGS, self._run.logs)
            except FileNotFoundError:
                log.info("verifier_logs.missing")

    async def _fetch_alone(self, names: frozenset[str]) -> None:
        for name in sorted(names & _SMALL_FILES.keys()):
            content = await _small_file(self._sandbox, name, _SMALL_FILES[name])
            if content is not None:
                (self._run.logs / name).write_bytes(content)
        if "test-stdout.txt" in names:
            tail = await self._exec_beside(_TAIL)
            (self._run.logs / "test-stdout.txt").write_text(tail.stdout, "utf-8", "replace")

    async def _fetch_rest(self, report: Report, deadline: float) -> dict[str, JsonValue]:
        """Returns what could not be had, with the reason; that the sandbox has died is no matter any more."""
        reasons: dict[str, JsonValue] = {}
        for path, size in (report.sizes or {}).items():
            if path == VERIFIER_LOGS and (report.untold or size.entries == 1 + len(report.files)):
                continue
            folder = self._folders[path]
            try:
                reason = await fetched(self._sandbox, path, folder.target, size, folder.max_bytes, deadline=deadline)
            except SandboxLost as exc:
                reason = str(exc)
            if reason not in ("", "missing", "empty"):
                log.warning("logs.not_kept", path=str(path), reason=reason)
                reasons[str(path)] = reason
        reasons.pop(str(VERIFIER_LOGS), None)
        return reasons


def _setup(run: TestRun, staged: str) -> str:
    entries = list(run.tests.rglob("*"))
    pin = any(path.suffix == ".py" for path in entries) and not any((run.tests / n).exists() for n in _PYTEST_SETTINGS)
    closed = run.user is not None or any(map(_closed, entries))
    return setup_script(staged, closed=closed, pin_pytest=pin, kit=run.kit is not None)


def _closed(path: Path) -> bool:
    """Whether some user may not read it, or use it as its owner does."""
    mode = path.lstat().st_mode
    wanted = 0o555 if mode & 0o111 else 0o444
    return not stat.S_ISLNK(mode) and mode & wanted != wanted


def _checked(result: ExecResult, doing: str) -> ExecResult:
    if result.ok or result.timed_out:
        return result
    what, kind = _ENDINGS.get(result.exit_code, (f"{doing} was ended", VerifierEnded))
    raise kind(f"{what}: status {result.exit_code}, {last_line(result.stderr) or 'no message'}")


def _write(logs: Path, files: Mapping[str, bytes]) -> None:
    logs.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (logs / name).write_bytes(content)


async def _small_file(sandbox: Sandbox, name: str, max_bytes: int) -> bytes | None:
    try:
        return await sandbox.read_bytes(VERIFIER_LOGS / name, max_bytes)
    except FileNotFoundError:
        return None
    except ValueError as exc:
        if name == "ctrf.json":
            return b"{}"
        raise VerifierFailed(f"{name} cannot be read: {exc}") from exc
