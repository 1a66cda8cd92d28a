"""Grading one submission in a fresh sandbox of its row's image, as upstream does, and no more gullibly."""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import structlog
from pydantic import JsonValue

from ....domain.errors import BenchmarkBroken, VerifierFailed
from ....domain.ports import Sandbox
from ....domain.value import Value
from ..script_ends import last_line
from .evaluation_scripts import BLOCKED, DO_NOT_APPLY, Scripts
from .patch_paths import patch_paths
from .patching import PatchOutcome, apply_patch
from .rows import Row
from .suspicion import DISQUALIFYING, SETTINGS_FILES, log_flags, settings_of_tests, suspects
from .upstream import Report, report, swebench_version, test_spec

log = structlog.get_logger()
ROOT = PurePosixPath("/testbed")
RUNS = 2
"""The eval script is run at most so often, each time with the whole time limit."""
TEST_OUTPUT = "test_output.txt"
CONFIRMING_OUTPUT = "test_output_confirming.txt"
"""Log of the run in which the files that can rewrite outcomes are the image's own."""
_MAX_SETTINGS_BYTES = 1024 * 1024
_KILLED = 128


class Evaluation(Value):
    """A verdict. `outcome` is resolved, unresolved, patch_failed, timed_out or empty_patch; each is the model's."""

    correct: bool
    outcome: str
    flags: tuple[str, ...] = ()
    """What was out of the ordinary, one word each; a submission with one of DISQUALIFYING is never correct."""
    completed: bool = False
    """The tests ran to their end and upstream has reported on them."""
    timed_out: bool = False
    """A run of the tests took longer than `eval_timeout_s`: the one that `report` is of, or else the confirming one."""
    returncode: int | None = None
    """Of the eval script."""
    patch_applied: bool = False
    patch_command: str = ""
    report: dict[str, JsonValue] = {}
    """Upstream's own report of this instance; empty when there is none."""
    put_back: tuple[str, ...] = ()
    """Paths that were the image's own in the confirming run."""
    swebench_version: str
    eval_timeout_s: float

    def raw_data(self) -> dict[str, JsonValue]:
        """As stored in `extra["eval_raw_data"]`; `resolved` is the score."""
        return {"resolved": self.correct} | self.model_dump(mode="json", exclude={"correct"})


async def evaluate(sandbox: Sandbox | None, row: Row, patch: bytes, log_dir: Path, limit_s: float) -> Evaluation:
    """Apply `patch` in ROOT, put the hidden tests in, run them (each run for at most `limit_s`), and ask upstream.

    An empty patch needs no sandbox. Correct is what upstream calls resolved, unless a flag is DISQUALIFYING. A patch
    that changes files which can rewrite outcomes has to pass twice: first with the image's own in their place.
    `log_dir` gets the files of upstream's log layout.

    Raises:
        ConfigError: the package swebench is missing or another version.
        BenchmarkBroken: the hidden tests do not fit the image.
        VerifierFailed: the image cannot be graded in.
        SandboxLost, SandboxFailed: as they came.
    """
    verdict = {"swebench_version": swebench_version(), "eval_timeout_s": limit_s}
    await asyncio.to_thread(_write, log_dir / "patch.diff", patch)
    if not patch:
        flags = () if row.fail_to_pass else ("no_required_tests",)
        return Evaluation(correct=False, outcome="empty_patch", flags=flags, **verdict)
    if sandbox is None:
        raise VerifierFailed(f"{row.instance_id}: a patch needs a sandbox to be graded in")
    evaluation = await _Grading(sandbox, row, patch, log_dir, limit_s, verdict).evaluation()
    log.info("submission.evaluated", outcome=evaluation.outcome, flags=list(evaluation.flags))
    return evaluation


@dataclass(frozen=True)
class _TestRun:
    output: bytes
    returncode: int | None
    timed_out: bool
    truncated: bool

    @property
    def blocked(self) -> bool:
        return self.output.startswith(BLOCKED.encode())


class _Grading:
    def __init__(
        self, sandbox: Sandbox, row: Row, patch: bytes, log_dir: Path, limit_s: float, verdict: dict[str, Any]
    ) -> None:
        self._sandbox, self._row, self._patch = sandbox, row, patch
        self._log_dir, self._limit_s, self._verdict = log_dir, limit_s, verdict
        hidden = patch_paths(row.test_patch.encode())
        self._named = frozenset(patch_paths(patch))
        self._scripts = Scripts(ROOT, sorted(self._named.union(hidden)), hidden)
        self._flags: list[str] = []

    async def evaluation(self) -> Evaluation:
        await self._look()
        settings = await self._settings()
        outcome = await apply_patch(self._sandbox, self._patch, ROOT)
        word = ">>>>> Applied Patch" if outcome.applied else ">>>>> Patch Apply Failed"
        said = f"{word}:\n{outcome.command}\n{outcome.output}".encode("utf-8", "replace")
        await asyncio.to_thread(_write, self._log_dir / "run_instance.log", said)
        if outcome.newline_added:
            self._flag("newline_added")
        if not outcome.applied:
            return self._verdict_of("patch_failed")
        self._verdict |= {"patch_applied": True, "patch_command": outcome.command}
        aside = await self._suspects(outcome, settings)
        await self._put_script()
        doubt = await self._doubt(aside) if aside else ""
        return await self._judged(await self._run(TEST_OUTPUT), doubt)

    async def _look(self) -> None:
        result = await self._sandbox.exec(self._scripts.look(self._row.test_patch.encode(), self._row.base_commit))
        if result.exit_code == DO_NOT_APPLY:
            raise BenchmarkBroken(
                f"{self._row.instance_id}: the hidden tests do not apply to {self._image}: {last_line(result.stderr)}",
                hint="the image and the row do not belong together",
            )
        if not result.ok:
            raise VerifierFailed(f"cannot grade in {self._image}: {last_line(result.stderr) or 'no bash'}")

    @property
    def _image(self) -> str:
        return f"image {self._sandbox.image!r}"

    async def _settings(self) -> dict[str, Any]:
        """What the tests would read of each settings file that the patch names; none of one that is not there."""
        found: dict[str, Any] = {}
        for path in sorted(
            path for path in self._named if path.isascii() and PurePosixPath(path).name in SETTINGS_FILES
        ):
            try:
                content = await self._sandbox.read_bytes(ROOT / path, _MAX_SETTINGS_BYTES)
            except FileNotFoundError:
                content = b""
            except ValueError:
                found[path] = None
                continue
            found[path] = settings_of_tests(PurePosixPath(path).name, content)
        return found

    async def _suspects(self, outcome: PatchOutcome, before: dict[str, Any]) -> tuple[str, ...]:
        if set(outcome.changed) & set(self._scripts.hidden):
            self._flag("hidden_test_paths")
        found = suspects(outcome.changed, self._row)
        after = await self._settings()
        changed = {path: "test_settings" for path in after if path in outcome.changed and after[path] != before[path]}
        for flag in (found | changed).values():
            self._flag(flag)
        return tuple(sorted(found | changed))

    async def _put_script(self) -> None:
        script = test_spec(self._row).eval_script.encode()
        await asyncio.to_thread(_write, self._log_dir / "eval.sh", script)
        await self._sandbox.write_bytes(self._scripts.folder / "eval.sh", script)

    async def _doubt(self, aside: tuple[str, ...]) -> str:
        """The flag that a confirming run raises. It comes first: whatever the files in question would do to the
        sandbox has not been done yet.
        """
        self._verdict["put_back"] = tuple(path.encode("utf-8", "replace").decode() for path in aside)
        run = await self._run(CONFIRMING_OUTPUT, aside)
        restored = await self._sandbox.exec(self._scripts.restore(aside))
        if not restored.ok:
            raise VerifierFailed(f"the submission could not be put back: {last_line(restored.stderr)}")
        if run.timed_out:
            return "confirming_timed_out"
        if run.blocked:
            return "not_confirmed"
        found = await asyncio.to_thread(report, self._row, self._patch, run.output)
        confirmed = found.resolved and not DISQUALIFYING.intersection(self._log_flags(run, found))
        return "" if confirmed else "not_confirmed"

    async def _run(self, name: str, aside: tuple[str, ...] = ()) -> _TestRun:
        result = await self._sandbox.exec(self._scripts.run(self._limit_s, aside))
        text = result.stdout
        if result.timed_out:
            text += f"\n\nTimeout error: {self._limit_s:g} seconds exceeded."
        output = text.encode("utf-8", "replace")
        await asyncio.to_thread(_write, self._log_dir / name, output)
        return _TestRun(output, result.exit_code, result.timed_out, result.truncated)

    async def _judged(self, run: _TestRun, doubt: str) -> Evaluation:
        self._verdict |= {"returncode": run.returncode, "timed_out": run.timed_out}
        if doubt:
            self._flag(doubt)
        if run.timed_out:
            return self._verdict_of("timed_out")
        found = await asyncio.to_thread(report, self._row, self._patch, run.output)
        for flag in self._log_flags(run, found):
            self._flag(flag)
        text = json.dumps({self._row.instance_id: found.instance}, indent=4)
        await asyncio.to_thread(_write, self._log_dir / "report.json", text.encode())
        disqualified = DISQUALIFYING.intersection(self._flags)
        correct = found.resolved and not disqualified
        self._verdict |= {"correct": correct, "completed": True, "report": found.instance}
        if found.resolved and disqualified == {"confirming_timed_out"}:
            self._verdict["timed_out"] = True
            return self._verdict_of("timed_out")
        return self._verdict_of("resolved" if correct else "unresolved")

    def _log_flags(self, run: _TestRun, found: Report) -> list[str]:
        flags = log_flags(self._row, run.output.decode("utf-8", "replace"), found)
        # The sandbox is alive, so that it was the submission's code that ended the shell, or printed without end.
        killed = run.returncode is None or run.returncode > _KILLED
        noted = {"hidden_tests_blocked": run.blocked, "tests_shell_killed": killed, "log_cut": run.truncated}
        return [*flags, *(flag for flag, holds in noted.items() if holds)]

    def _flag(self, flag: str) -> None:
        if flag not in self._flags:
            self._flags.append(flag)

    def _verdict_of(self, outcome: str) -> Evaluation:
        return Evaluation(**({"correct": False, "outcome": outcome, "flags": tuple(self._flags)} | self._verdict))


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
