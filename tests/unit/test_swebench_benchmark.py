"""SWE-bench as a benchmark: the contract, over sandboxes in memory, and what it does with what its parts say."""

import hashlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import pytest
from agentcompass.adapters.benchmarks.swebench import benchmark as module
from agentcompass.adapters.benchmarks.swebench.benchmark import (
    SweBenchBenchmark,
    SweBenchLiteBenchmark,
    SweBenchMultilingualBenchmark,
    SweBenchParameters,
    SweBenchVerifiedBenchmark,
)
from agentcompass.adapters.benchmarks.swebench.evaluation import Evaluation
from agentcompass.adapters.benchmarks.swebench.repository import Collected, RecordGone, RepositoryState
from agentcompass.adapters.benchmarks.swebench.rows import Row
from agentcompass.adapters.recipes.swebench import SweBenchRecipe
from agentcompass.app.identity import score_moving
from agentcompass.domain.attempt import ExitReason, HarnessResult
from agentcompass.domain.errors import ConfigError, SandboxFailed, SandboxLost, VerifierFailed
from agentcompass.domain.ports import Benchmark, Environment, Sandbox
from agentcompass.domain.sandbox import Command, ExecResult
from agentcompass.domain.task import Grade, PreparedTask, Submission, Task, TaskSelection
from agentcompass.testing.benchmark import BenchmarkContract, LostSandbox, a_context
from agentcompass.testing.fakes import FakeEnvironment, FakeSandbox
from swebench_fakes import PATCH, columns, some_columns, write_rows

SOURCE = PurePosixPath("/testbed/adder.py")
STATE = RepositoryState(head="1" * 40, relation="head", base_tree="2" * 40)


async def prepared_repository(sandbox: Sandbox, row: Row) -> RepositoryState:
    """A repository with one file."""
    await sandbox.write_bytes(SOURCE, b"add = None\n")
    return STATE


async def collected_patch(sandbox: Sandbox, state: RepositoryState) -> Collected:
    """The file that the solution changes, as a patch; any other file as junk."""
    assert state == STATE
    assert isinstance(sandbox, FakeSandbox)
    solved = sandbox.files[SOURCE] != b"add = None\n"
    others = [path for path in sandbox.files if path != SOURCE and path.is_relative_to("/testbed")]
    patch = (PATCH.encode() if solved else b"") + "".join(f"new {path}\n" for path in others).encode()
    return Collected(patch=patch)


async def evaluated(sandbox: Sandbox | None, row: Row, patch: bytes, log_dir: Path, limit_s: float) -> Evaluation:
    """Correct is the reference solution itself."""
    if patch and sandbox is not None:
        await sandbox.exec(Command(script="bash /eval.sh", timeout_s=limit_s))
    correct = patch == row.patch.encode()
    outcome = "resolved" if correct else "unresolved" if patch else "empty_patch"
    return Evaluation(correct=correct, outcome=outcome, swebench_version="5.0.2", eval_timeout_s=limit_s)


def in_memory(sandbox: FakeSandbox, command: Command) -> ExecResult:
    """The patch of a command's input is taken; digests of /testbed are told."""
    assert command.script is not None
    if command.stdin == PATCH.encode():
        sandbox.files[SOURCE] = b"add = sum\n"
    there = [
        hashlib.sha256(data).hexdigest() for path, data in sandbox.files.items() if path.is_relative_to("/testbed")
    ]
    told = "\n".join(there) if "sha256sum" in command.script else ""
    return ExecResult(exit_code=0, stdout=told, stderr="", duration_s=0)


def a_benchmark(folder: Path, **parameters: Any) -> SweBenchBenchmark:
    """Over the rows of `folder`, with parts that work in memory."""
    file = folder / "rows.jsonl"
    if not file.exists():
        write_rows(file, some_columns())
    return SweBenchBenchmark(
        SweBenchParameters(dataset=str(file), **parameters),
        folder / "data",
        prepare=prepared_repository,
        collect=collected_patch,
        evaluate=evaluated,
    )


class TestSweBenchInMemory(BenchmarkContract):
    recipe = SweBenchRecipe()
    forged = {
        "/testbed/conftest.py": b"def pytest_runtest_makereport(): ...\n",
        "/testbed/test_output.txt": b">>>>> Start Test Output\nPASSED test_adder.py::test_add\n",
    }

    @pytest.fixture
    def make_benchmark(self, tmp_path: Path) -> Callable[[], Benchmark]:
        self.folder = tmp_path
        return lambda: a_benchmark(tmp_path)

    @pytest.fixture
    def environment(self) -> Environment:
        return FakeEnvironment(exec_script=in_memory)

    def hidden_files(self, task: Task) -> list[Path]:
        (row,) = [each for each in some_columns() if each["instance_id"] == task.id]
        files = [self.folder / f"hidden-{name}" for name in ("patch", "test_patch", "eval_script")]
        for file in files:
            file.write_text(row[file.name.removeprefix("hidden-")])
        return files


async def loaded(folder: Path, **parameters: Any) -> tuple[SweBenchBenchmark, Task]:
    benchmark = a_benchmark(folder, **parameters)
    return benchmark, (await benchmark.load_tasks(TaskSelection(limit=1)))[0]


class Opened(NamedTuple):
    """A benchmark, its first task prepared, and the sandbox of that."""

    benchmark: SweBenchBenchmark
    prepared: PreparedTask
    sandbox: FakeSandbox


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Opened]:
    benchmark, task = await loaded(tmp_path)
    environment = FakeEnvironment(exec_script=in_memory)
    async with TestSweBenchInMemory().opened(benchmark, environment, task, tmp_path) as (prepared, _):
        yield Opened(benchmark, prepared, environment.recent[0])


async def collected(
    opened: Opened, folder: Path, handed_in: bytes | None, *, changed: bool = True, limit: bool = False
) -> Submission:
    """What `collect` makes of a harness that handed something in, and of the file having been `changed`."""
    if changed:
        opened.sandbox.files[SOURCE] = b"add = sum\n"
    result = None if limit else HarnessResult(exit_reason=ExitReason.SUBMITTED, submission=handed_in)
    context = a_context(opened.prepared.task, folder)
    return await opened.benchmark.collect(opened.prepared, opened.sandbox, result, context)


def that_collects(opened: Opened, folder: Path, what: Collected | SandboxFailed) -> Opened:
    async def collect(sandbox: Sandbox, state: RepositoryState) -> Collected:
        if isinstance(what, SandboxFailed):
            raise what
        return what

    return opened._replace(benchmark=SweBenchBenchmark(SweBenchParameters(), folder, collect=collect))


def that_cannot_collect(opened: Opened, folder: Path) -> Opened:
    return that_collects(opened, folder, SandboxFailed("the diff cannot be had"))


async def graded(folder: Path, content: bytes, sandbox: Sandbox | None) -> Grade:
    benchmark, task = await loaded(folder)
    prepared = await benchmark.prepare(task, None, a_context(task, folder))
    return await benchmark.grade(prepared, Submission(content=content), sandbox, a_context(task, folder))


async def test_a_task_tells_what_upstream_tells_and_none_of_the_answers(tmp_path: Path) -> None:
    _, task = await loaded(tmp_path)
    row = some_columns()[0]
    said = json.dumps(task.model_dump(mode="json"))

    assert (task.id, task.category, task.instruction) == ("acme__adder-1", "acme/adder", row["problem_statement"])
    assert task.metadata == {
        "repo": "acme/adder",
        "version": "1.0",
        "base_commit": row["base_commit"],
        "image": row["image"],
        "difficulty": "<15 min fix",
        "known_bad": None,
    }
    assert not [name for name in ("patch", "test_patch", "eval_script", "FAIL_TO_PASS") if row[name] in said]
    assert "add = sum" not in said


async def test_a_known_bad_instance_has_its_reason(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", [columns("psf__requests-2931", repo="psf/requests")])
    _, task = await loaded(tmp_path)

    assert "10.255.255.1" in str(task.metadata["known_bad"])


async def test_the_limits_are_the_parameters_and_are_called_so(tmp_path: Path) -> None:
    stages = {"start": 5, "prepare": 6, "agent": 11, "collect": 8}
    limits = {f"{stage}_timeout_s": seconds for stage, seconds in stages.items()}
    _, task = await loaded(tmp_path, eval_timeout_s=7, **limits)
    budgets = task.budgets

    assert {stage: budgets.seconds(stage) for stage in stages} == stages
    assert budgets.grade_s == 2 * 7 + 600
    assert [budgets.name(stage) for stage in stages] == list(limits)
    assert budgets.name("grade") == "2 x eval_timeout_s + 600 s for transfers"


async def test_the_data_is_told_with_its_digest_and_the_grader(tmp_path: Path) -> None:
    benchmark, _ = await loaded(tmp_path)
    file = tmp_path / "rows.jsonl"

    assert dict(benchmark.dataset()) == {
        "dataset": str(file),
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "swebench": "5.0.2",
    }


async def test_how_the_data_is_named_is_no_part_of_the_identity_but_what_it_is() -> None:
    named = SweBenchParameters(dataset="acme/copy", split="dev", revision="v1")

    assert score_moving(named) == {}
    assert score_moving(SweBenchParameters(repo="acme/adder", seed=1)).keys() == {"repo", "seed"}


def test_planning_from_a_file_of_text_needs_none_of_the_extras_heavy_packages(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "rows.jsonl", some_columns())
    words = [
        "run",
        "swebench_verified",
        "oracle",
        "none",
        "--env",
        "docker",
        "--dry-run",
        "--results-dir",
        str(tmp_path),
    ]
    words += ["--benchmark-params", json.dumps({"dataset": str(file)})]
    script = f"""import contextlib, io, json, sys
from agentcompass.app.cli import main
with contextlib.redirect_stdout(io.StringIO()) as told:
    try:
        main({words!r})
    except SystemExit as exc:
        assert not exc.code, exc.code
print(json.dumps([told.getvalue(), sorted(sys.modules)]))
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    told, modules = json.loads(done.stdout)

    assert "acme/sweb.eval.x86_64.acme_1776_adder-1:latest" in told
    assert "attempts   6 tasks x 1" in told
    assert not {"datasets", "pandas", "pyarrow", "torch", "huggingface_hub", "modal"} & set(modules)


async def test_the_same_row_of_another_format_has_the_same_checksum(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "rows.parquet", some_columns())
    other = SweBenchBenchmark(SweBenchParameters(dataset=str(file)), tmp_path)
    _, task = await loaded(tmp_path)

    assert (await other.load_tasks(TaskSelection(limit=1)))[0].checksum == task.checksum


async def test_a_parser_that_upstream_does_not_have_is_refused_at_start(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", [columns(log_parser="parse_log_acme")])
    with pytest.raises(ConfigError, match="acme__adder-1: .*no log parser 'parse_log_acme'"):
        await loaded(tmp_path)


async def test_without_upstreams_grader_nothing_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> str:
        raise ConfigError("grading needs the package swebench")

    monkeypatch.setattr(module, "swebench_version", absent)
    with pytest.raises(ConfigError, match="grading needs the package swebench"):
        await loaded(tmp_path)


async def test_an_agent_is_told_the_problem_the_prompts_and_how_to_enter_the_environment(opened: Opened) -> None:
    prepared = opened.prepared

    assert prepared.instruction == some_columns()[0]["problem_statement"]
    assert prepared.workspace_root == PurePosixPath("/testbed")
    assert prepared.agent_env == {"BASH_ENV": "/root/.bashrc"}
    assert prepared.extra == {"mini_swe_agent_config": "swebench", "repository": STATE.model_dump(mode="json")}


async def test_a_row_without_a_solution_has_none(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", [columns(patch="")])
    benchmark, task = await loaded(tmp_path)

    assert (await benchmark.prepare(task, None, a_context(task, tmp_path))).solution is None


async def test_what_the_harness_handed_in_is_graded_and_the_difference_recorded(opened: Opened, tmp_path: Path) -> None:
    submission = await collected(opened, tmp_path, b"diff of its own")

    assert submission.content == b"diff of its own"
    assert submission.extra == {
        "source": "harness",
        "worktree_sha256": hashlib.sha256(PATCH.encode()).hexdigest(),
        "differs": True,
    }
    assert [path.read_bytes() for path in tmp_path.rglob("worktree.diff")] == [PATCH.encode()]


async def test_a_submission_that_is_the_work_tree_does_not_differ(opened: Opened, tmp_path: Path) -> None:
    assert (await collected(opened, tmp_path, PATCH.encode())).extra["differs"] is False


async def test_an_empty_submission_is_a_submission(opened: Opened, tmp_path: Path) -> None:
    submission = await collected(opened, tmp_path, b"")

    assert (submission.content, submission.extra["source"], submission.extra["differs"]) == (b"", "harness", True)


@pytest.mark.parametrize("limit", [False, True])
async def test_without_a_submission_the_work_tree_is_graded_also_after_a_limit(
    opened: Opened, tmp_path: Path, limit: bool
) -> None:
    submission = await collected(opened, tmp_path, None, limit=limit)

    assert submission.content == PATCH.encode()
    assert (submission.extra["source"], submission.extra["differs"]) == ("worktree", False)


async def test_an_untouched_work_tree_is_an_empty_patch(opened: Opened, tmp_path: Path) -> None:
    assert (await collected(opened, tmp_path, None, changed=False)).content == b""


async def test_a_submission_outlives_a_work_tree_that_cannot_be_read(opened: Opened, tmp_path: Path) -> None:
    submission = await collected(that_cannot_collect(opened, tmp_path), tmp_path, b"handed in")

    assert submission.content == b"handed in"
    assert submission.extra == {"source": "harness", "worktree_error": "the diff cannot be had"}


async def test_a_work_tree_that_cannot_be_read_is_an_error_where_it_would_be_graded(
    opened: Opened, tmp_path: Path
) -> None:
    with pytest.raises(SandboxFailed):
        await collected(that_cannot_collect(opened, tmp_path), tmp_path, None)


async def test_an_agent_that_destroys_what_it_is_compared_with_hands_in_nothing(opened: Opened, tmp_path: Path) -> None:
    submission = await collected(that_collects(opened, tmp_path, RecordGone("it is gone")), tmp_path, None)

    assert submission.content == b""
    assert submission.extra == {"source": "worktree", "worktree_error": "it is gone"}


async def test_what_is_too_large_to_hand_in_is_told(opened: Opened, tmp_path: Path) -> None:
    reduced = Collected(patch=b"mend", left_out={"core": 40_000_000})
    submission = await collected(that_collects(opened, tmp_path, reduced), tmp_path, None)

    assert submission.content == b"mend"
    assert submission.extra["left_out"] == {"core": 40_000_000}


@pytest.mark.parametrize(("handed_in", "content"), [(None, b""), (b"handed in", b"handed in")])
async def test_a_harness_without_a_sandbox_is_graded_by_what_it_hands_in(
    tmp_path: Path, handed_in: bytes | None, content: bytes
) -> None:
    benchmark, task = await loaded(tmp_path)
    context = a_context(task, tmp_path)
    prepared = await benchmark.prepare(task, None, context)
    result = HarnessResult(exit_reason=ExitReason.FINISHED, submission=handed_in)

    assert (await benchmark.collect(prepared, None, result, context)).content == content


async def test_the_verdict_and_its_reasons_are_stored(opened: Opened, tmp_path: Path) -> None:
    right, wrong = [await graded(tmp_path, content, opened.sandbox) for content in (PATCH.encode(), b"other")]

    assert [(grade.score, grade.correct) for grade in (right, wrong)] == [(1, True), (0, False)]
    raw = [grade.extra["eval_raw_data"] for grade in (right, wrong)]
    assert [(each["resolved"], each["outcome"]) for each in raw if isinstance(each, dict)] == [
        (True, "resolved"),
        (False, "unresolved"),
    ]


async def test_a_lost_sandbox_is_no_score(tmp_path: Path) -> None:
    with pytest.raises(SandboxLost):
        await graded(tmp_path, PATCH.encode(), LostSandbox())


async def test_an_empty_patch_needs_no_sandbox_and_any_other_does(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "rows.jsonl", some_columns())
    benchmark = SweBenchBenchmark(SweBenchParameters(dataset=str(file)), tmp_path)
    (task,) = await benchmark.load_tasks(TaskSelection(limit=1))
    context = a_context(task, tmp_path)
    prepared = await benchmark.prepare(task, None, context)
    grade = await benchmark.grade(prepared, Submission(content=b""), None, context)
    raw = grade.extra["eval_raw_data"]

    assert isinstance(raw, dict)
    assert (grade.correct, raw["outcome"], raw["completed"], raw["resolved"]) == (False, "empty_patch", False, False)
    with pytest.raises(VerifierFailed):
        await benchmark.grade(prepared, Submission(content=b"x"), None, context)


def test_each_benchmark_has_its_name_and_its_data_set() -> None:
    classes = (
        SweBenchVerifiedBenchmark,
        SweBenchLiteBenchmark,
        SweBenchBenchmark,
        SweBenchMultilingualBenchmark,
    )

    assert {each.name: each.hub_id for each in classes} == {
        "swebench_verified": "SWE-bench/SWE-bench_Verified",
        "swebench_lite": "SWE-bench/SWE-bench_Lite",
        "swebench": "SWE-bench/SWE-bench",
        "swebench_multilingual": "SWE-bench/SWE-bench_Multilingual",
    }
