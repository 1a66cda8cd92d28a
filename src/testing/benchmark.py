"""The contract suite of Benchmark: its selection, what an agent may see, and verdicts that cannot be had otherwise.

class TestMine(BenchmarkContract):
    @pytest.fixture
    def make_benchmark(self, tmp_path): return lambda: MyBenchmark(MyBenchmark.Parameters(), tmp_path)
    @pytest.fixture
    def environment(self): return SomeEnvironment(SomeEnvironment.Parameters())
    recipe = MyRecipe()
"""

import hashlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path, PurePosixPath
from typing import ClassVar

import pytest

from ..domain.attempt import AttemptContext, ExitReason, HarnessResult, Step
from ..domain.errors import ConfigError, SandboxLost
from ..domain.ports import Benchmark, Environment, Recipe, Sandbox
from ..domain.resolving import lifetime_s, resolve_spec
from ..domain.sandbox import Command, ExecResult
from ..domain.task import Grade, GradingMode, PreparedTask, Submission, Task, TaskSelection
from .environment.setting import an_owner

_SHORTEST_SECRET = 40
"""A hidden text shorter than this may well stand in an instruction by chance."""


async def apply_solution(prepared: PreparedTask, sandbox: Sandbox) -> ExecResult:
    """What the `oracle` harness does: put the reference solution's files in, run its command."""
    assert prepared.solution is not None, f"task {prepared.task.id!r} has no reference solution"
    for source, target in prepared.solution.files:
        if isinstance(source, bytes):
            await sandbox.write_bytes(target, source)
        else:
            await sandbox.upload(source, target)
    return await sandbox.exec(prepared.solution.command)


class BenchmarkContract:
    """All promises. Give the fixtures `make_benchmark` and `environment`, and the `recipe` where one is needed."""

    recipe: ClassVar[Recipe | None] = None
    hidden_folders: ClassVar[tuple[str, ...]] = ("tests", "solution")
    """Folders of a task that an agent must never see."""
    hidden_paths: ClassVar[tuple[str, ...]] = ("/tests", "/solution")
    """Paths that must not exist in a sandbox before the agent has ended."""
    forged: ClassVar[Mapping[str, bytes]] = {
        "/logs/verifier/reward.txt": b"1\n",
        "/logs/verifier/reward.json": b'{"reward": 1}\n',
        "/tests/test.sh": b'#!/bin/sh\necho 1 > "${AGENTCOMPASS_ROOT:-}/logs/verifier/reward.txt"\n',
    }
    """What an agent leaves that wants a reward without the work."""
    overrides: ClassVar[Mapping[str, object]] = {}
    """Fields of SandboxSpec that outrank the recipe's (another image, say)."""
    sampled: ClassVar[int | None] = None
    """Run the agents over the first so many tasks; None is all."""

    @pytest.fixture
    def make_benchmark(self, tmp_path: Path) -> Callable[[], Benchmark]:
        """A new instance at each call, over the same data."""
        raise NotImplementedError

    @pytest.fixture
    def environment(self) -> Environment:
        """Where tasks are run."""
        raise NotImplementedError

    async def test_ids_are_unique_and_the_same_each_time(self, make_benchmark: Callable[[], Benchmark]) -> None:
        first, second = [await _load(make_benchmark()) for _ in range(2)]
        ids = [task.id for task in first]

        assert ids
        assert len(set(ids)) == len(ids)
        assert ids == [task.id for task in second]

    async def test_checksums_are_there_and_the_same_each_time(self, make_benchmark: Callable[[], Benchmark]) -> None:
        first, second = [await _load(make_benchmark()) for _ in range(2)]

        assert all(task.checksum for task in first)
        assert [task.checksum for task in first] == [task.checksum for task in second]

    async def test_sample_ids_choose_the_tasks_and_their_order(self, make_benchmark: Callable[[], Benchmark]) -> None:
        ids = [task.id for task in await _load(make_benchmark())]
        wanted = tuple(reversed(ids))[:3]
        chosen = await make_benchmark().load_tasks(TaskSelection(sample_ids=wanted))

        assert tuple(task.id for task in chosen) == wanted

    async def test_a_limit_keeps_the_first_tasks(self, make_benchmark: Callable[[], Benchmark]) -> None:
        ids = [task.id for task in await _load(make_benchmark())]
        limited = await make_benchmark().load_tasks(TaskSelection(limit=1))
        both = await make_benchmark().load_tasks(TaskSelection(sample_ids=(ids[-1], ids[0]), limit=1))

        assert [task.id for task in limited] == ids[:1]
        assert [task.id for task in both] == ids[-1:]

    async def test_an_unknown_id_is_refused_with_its_nearest(self, make_benchmark: Callable[[], Benchmark]) -> None:
        task = (await _load(make_benchmark()))[0]
        with pytest.raises(ConfigError) as caught:
            await make_benchmark().load_tasks(TaskSelection(sample_ids=(f"{task.id}x",)))

        assert f"{task.id}x" in str(caught.value)
        assert repr(task.id) in str(caught.value)

    async def test_the_data_is_told(self, make_benchmark: Callable[[], Benchmark]) -> None:
        benchmark = make_benchmark()
        await benchmark.load_tasks(TaskSelection(limit=1))

        assert dict(benchmark.dataset())

    async def test_an_instruction_tells_nothing_of_the_hidden_files(
        self, make_benchmark: Callable[[], Benchmark]
    ) -> None:
        told = [
            (task.id, file.name)
            for task in await _load(make_benchmark())
            for file in self.hidden_files(task)
            if len(text := file.read_text("utf-8", "replace").strip()) >= _SHORTEST_SECRET and text in task.instruction
        ]

        assert told == []

    async def test_nothing_hidden_is_in_the_sandbox_before_the_agent_ends(
        self, make_benchmark: Callable[[], Benchmark], environment: Environment, tmp_path: Path
    ) -> None:
        benchmark = make_benchmark()
        for task in await self.sample(benchmark):
            async with self.opened(benchmark, environment, task, tmp_path) as (prepared, sandbox):
                found = await self.seen(sandbox)

            assert found.isdisjoint(self.hidden_digests(task)), task.id
            assert found.isdisjoint(self.hidden_paths), task.id
            assert prepared.instruction == task.instruction

    async def test_doing_nothing_scores_zero(
        self, make_benchmark: Callable[[], Benchmark], environment: Environment, tmp_path: Path
    ) -> None:
        benchmark = make_benchmark()
        for task in await self.sample(benchmark):
            async with self.opened(benchmark, environment, task, tmp_path) as (prepared, sandbox):
                grade = await self.graded(benchmark, environment, prepared, sandbox, tmp_path)

            assert (grade.score, grade.correct) == (0, False), task.id

    async def test_the_reference_solution_scores_one(
        self, make_benchmark: Callable[[], Benchmark], environment: Environment, tmp_path: Path
    ) -> None:
        benchmark = make_benchmark()
        for task in await self.sample(benchmark):
            async with self.opened(benchmark, environment, task, tmp_path) as (prepared, sandbox):
                await apply_solution(prepared, sandbox)
                grade = await self.graded(benchmark, environment, prepared, sandbox, tmp_path)

            assert (grade.score, grade.correct) == (1, True), task.id

    async def test_a_verdict_written_in_advance_does_not_count(
        self, make_benchmark: Callable[[], Benchmark], environment: Environment, tmp_path: Path
    ) -> None:
        benchmark = make_benchmark()
        for task in (await self.sample(benchmark))[:1]:
            async with self.opened(benchmark, environment, task, tmp_path) as (prepared, sandbox):
                for path, data in self.forged.items():
                    await sandbox.write_bytes(PurePosixPath(path), data, 0o755)
                grade = await self.graded(benchmark, environment, prepared, sandbox, tmp_path)

            assert (grade.score, grade.correct) == (0, False), task.id

    async def test_a_sandbox_that_dies_in_grading_is_an_error(
        self, make_benchmark: Callable[[], Benchmark], environment: Environment, tmp_path: Path
    ) -> None:
        benchmark = make_benchmark()
        if benchmark.grading is GradingMode.NONE:
            return
        task = (await self.sample(benchmark))[0]
        context = a_context(task, tmp_path)
        async with self.opened(benchmark, environment, task, tmp_path) as (prepared, sandbox):
            if prepared.solution is not None:
                await apply_solution(prepared, sandbox)  # some benchmarks need no sandbox to grade nothing
            submission = await benchmark.collect(prepared, sandbox, _FINISHED, context)

        with pytest.raises(SandboxLost):
            await benchmark.grade(prepared, submission, LostSandbox(), context)

    def hidden_files(self, task: Task) -> list[Path]:
        """The files of a task that an agent must never see."""
        folders = [task.path / name for name in self.hidden_folders] if task.path else []
        return [file for folder in folders for file in sorted(folder.rglob("*")) if file.is_file()]

    def hidden_digests(self, task: Task) -> set[str]:
        """SHA-256 of the hidden files, but for those that are copies of what the agent is given."""
        given = (task.path / "environment").rglob("*") if task.path else ()
        shared = {_digest(file) for file in given if file.is_file()}
        return {_digest(file) for file in self.hidden_files(task)} - shared

    async def sample(self, benchmark: Benchmark) -> Sequence[Task]:
        """The tasks that agents are run over."""
        return await benchmark.load_tasks(TaskSelection(limit=self.sampled))

    @asynccontextmanager
    async def opened(
        self, benchmark: Benchmark, environment: Environment, task: Task, folder: Path, purpose: str = "agent"
    ) -> AsyncIterator[tuple[PreparedTask, Sandbox]]:
        """A prepared task in its sandbox."""
        fields = self.recipe(task, environment.capabilities) if self.recipe else {}
        spec = resolve_spec({}, fields, self.overrides, lifetime_s(task.budgets, benchmark.grading, purpose))
        owner = an_owner(task_id=task.id, purpose=purpose)
        async with environment.open(spec, owner) as sandbox:
            yield await benchmark.prepare(task, sandbox, a_context(task, folder)), sandbox

    async def graded(
        self, benchmark: Benchmark, environment: Environment, prepared: PreparedTask, sandbox: Sandbox, folder: Path
    ) -> Grade:
        """Collect, then grade where the benchmark grades."""
        context = a_context(prepared.task, folder)
        submission: Submission = await benchmark.collect(prepared, sandbox, _FINISHED, context)
        if benchmark.grading is GradingMode.SAME:
            return await benchmark.grade(prepared, submission, sandbox, context)
        if benchmark.grading is GradingMode.NONE or submission.content == b"":
            return await benchmark.grade(prepared, submission, None, context)
        async with self.opened(benchmark, environment, prepared.task, folder, "grade") as (_, fresh):
            return await benchmark.grade(prepared, submission, fresh, context)

    async def seen(self, sandbox: Sandbox) -> set[str]:
        """Digests of what lies in the working directory, and those of `hidden_paths` that exist."""
        tests = " ".join(f'"${{AGENTCOMPASS_ROOT:-}}"{path}' for path in self.hidden_paths)
        script = f"""find . -type f -exec sha256sum {{}} + | cut -c1-64
        for path in {tests}; do [ -e "$path" ] && echo "${{path#"${{AGENTCOMPASS_ROOT:-}}"}}"; done; true"""
        result = await sandbox.exec(Command(script=script, timeout_s=60))
        assert result.ok, result.stderr
        return set(result.stdout.split())


_FINISHED = HarnessResult(exit_reason=ExitReason.FINISHED)


async def _load(benchmark: Benchmark) -> Sequence[Task]:
    return await benchmark.load_tasks(TaskSelection())


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def a_context(task: Task, folder: Path) -> AttemptContext:
    """An attempt's context with a log folder of its own below `folder`; steps are dropped."""

    async def record_step(step: Step) -> None:
        return None

    logs = folder / "logs" / hashlib.sha256(task.id.encode()).hexdigest()[:12]
    logs.mkdir(parents=True, exist_ok=True)
    return AttemptContext(
        run_id="contract",
        task_id=task.id,
        attempt=1,
        log_dir=logs,
        time_limit_s=task.budgets.agent_s,
        record_step=record_step,
    )


class LostSandbox:
    """A sandbox that has died: every call raises SandboxLost."""

    id = "lost"
    image: str | None = None
    image_digest: str | None = None

    async def exec(self, command: Command) -> ExecResult:
        """Raise."""
        raise SandboxLost("the sandbox is gone")

    async def upload(self, source: Path, target: PurePosixPath) -> None:
        """Raise."""
        raise SandboxLost("the sandbox is gone")

    async def download(self, source: PurePosixPath, target: Path) -> None:
        """Raise."""
        raise SandboxLost("the sandbox is gone")

    async def read_bytes(self, path: PurePosixPath, max_bytes: int) -> bytes:
        """Raise."""
        raise SandboxLost("the sandbox is gone")

    async def write_bytes(self, path: PurePosixPath, data: bytes, mode: int = 0o644) -> None:
        """Raise."""
        raise SandboxLost("the sandbox is gone")

    async def kill_processes(self) -> None:
        """Raise."""
        raise SandboxLost("the sandbox is gone")
