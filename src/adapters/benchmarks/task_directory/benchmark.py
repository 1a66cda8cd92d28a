"""Benchmarks in the task-directory format (Terminal-Bench 2, Harbor): a folder or a git repository of tasks."""

import asyncio
import math
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from pydantic import Field, JsonValue, model_validator

from ....domain.attempt import AttemptContext, HarnessResult
from ....domain.errors import ConfigError, SandboxFailed
from ....domain.local_path import LocalPath, local_path
from ....domain.ports import Sandbox
from ....domain.sandbox import LONGEST_TIMEOUT_S, Command
from ....domain.suggest import did_you_mean
from ....domain.task import (
    Grade,
    GradingMode,
    PreparedTask,
    Solution,
    Submission,
    Task,
    TaskSelection,
)
from ....domain.value import Parameters
from ...support.retrying import Sleep
from .artifacts import AGENT_FOLDERS, MAX_ARTIFACT_BYTES, collect_artifacts
from .git_source import checkout
from .limits import TaskLimits, stage_budgets, tests_limit
from .task_folder import TaskFolder, find_tasks, read_task
from .task_toml import HealthCheck, TaskProblems, interpolated
from .verifier import Folder, TestRun, run_tests
from .verifier_kit import VerifierKit, read_kit

# The output goes by way of a file, so that a service which the solution leaves running can go on writing.
_SOLVE = """R="${AGENTCOMPASS_ROOT:-}"
[ -x "$R/solution/solve.sh" ] || chmod a+x "$R/solution/solve.sh" 2>/dev/null
[ -d "$R/logs/agent" ] || mkdir -p "$R/logs/agent" 2>/dev/null
if [ -x "$R/solution/solve.sh" ] && command -v bash > /dev/null 2>&1; then
  ("$R/solution/solve.sh")
else
  ("${BASH:-sh}" "$R/solution/solve.sh")
fi > "$R/logs/agent/oracle.txt" 2>&1
ac_code=$?
if [ ! -s "$R/logs/agent/oracle.txt" ] || cat "$R/logs/agent/oracle.txt"; then rm -f "$R/logs/agent/oracle.txt"; fi
exit "$ac_code"
"""


class TaskDirectoryParameters(TaskLimits):
    """Where the tasks are, and what to change of their limits."""

    path: LocalPath | None = None
    """Folder of task directories, or one task directory."""
    git_url: str | None = Field(default=None, min_length=1)
    """Instead of `path`: a git repository whose root, or `tasks/`, holds task directories."""
    revision: str | None = None
    """Commit, tag or branch of `git_url`; the default is the repository's HEAD. The commit is recorded."""
    git_timeout_s: float = Field(default=1800, gt=0, le=LONGEST_TIMEOUT_S, json_schema_extra={"identity": False})
    """Limit of fetching `git_url`."""
    variables: dict[str, str] = Field(default_factory=dict)
    """What ${NAME} means in the tasks' env tables; the runner's own environment is never looked at. No secrets."""

    verifier_kit: LocalPath | None = None
    """Folder of tools for tests that would download theirs: put at /verifier-kit after the agent has ended. Its
    `setup.sh` is run there as root; the NAME=VALUE lines of its `env` are set for the tests."""

    @model_validator(mode="after")
    def _one_source(self) -> "TaskDirectoryParameters":
        if self.path is not None and self.git_url is not None:
            raise ValueError("path and git_url are both given: use one")
        if self.revision is not None and self.path is not None:
            raise ValueError("revision belongs to git_url, not to path")
        return self


class TaskDirectoryBenchmark:
    """Your tasks in the task-directory format (Terminal-Bench 2, Harbor): a folder or a git repository.

    They are graded by their own tests, in the sandbox as the agent left it. A task's id is its folder's name.
    """

    name: ClassVar[str] = "task_directory"
    grading: ClassVar[GradingMode] = GradingMode.SAME
    Parameters: ClassVar[type[Parameters]] = TaskDirectoryParameters

    def __init__(self, parameters: TaskDirectoryParameters, data_dir: Path, *, sleep: Sleep = asyncio.sleep) -> None:
        self._parameters = parameters
        self._data_dir = data_dir
        self._sleep = sleep
        self._folders: dict[str, TaskFolder] = {}
        self._dataset: dict[str, JsonValue] = {}
        self._kit: VerifierKit | None = None

    async def load_tasks(self, selection: TaskSelection) -> Sequence[Task]:
        """The selected tasks, each checked whole; all problems of all of them are reported, one a line."""
        root = await self._source()
        self._kit = await asyncio.to_thread(read_kit, self._parameters.verifier_kit)
        if self._kit is not None:
            self._dataset["verifier_kit"] = self._kit.checksum
        return await asyncio.to_thread(self._read, root, selection)

    def dataset(self) -> Mapping[str, JsonValue]:
        """`path`, or `git_url` and the full commit id as `revision`."""
        return dict(self._dataset)

    async def _source(self) -> Path:
        parameters = self._parameters
        if parameters.git_url is not None:
            return await self._checkout(parameters.git_url, parameters.revision or "HEAD")
        if parameters.path is None:
            raise ConfigError(f"{self.name}: no tasks given", hint="set the benchmark parameter path or git_url")
        path = await asyncio.to_thread(local_path(parameters.path).absolute)
        self._dataset = {"path": str(path)}
        return path

    async def _checkout(self, url: str, revision: str) -> Path:
        found = await checkout(url, revision, self._data_dir / "git", limit_s=self._parameters.git_timeout_s)
        self._dataset = {"git_url": found.url, "revision": found.commit}
        return found.path

    def _read(self, root: Path, selection: TaskSelection) -> list[Task]:
        found = find_tasks(root)
        names = list(dict.fromkeys(selection.sample_ids)) or list(found)
        for name in names:
            if name not in found:
                raise _unknown(name, found, self.name)
        tasks: list[Task] = []
        problems: list[str] = []
        for name in names[: selection.limit]:
            try:
                self._folders[name] = read_task(found[name], name)
                tasks.append(_task(self._folders[name], self._parameters))
            except TaskProblems as exc:
                problems += [f"{name}/{problem}" for problem in exc.problems]
        if problems:
            more = f"{len(problems)} problems in the tasks of {str(root)!r}:\n" if len(problems) > 1 else ""
            raise ConfigError(more + "\n".join(problems))
        return tasks

    async def prepare(self, task: Task, sandbox: Sandbox | None, context: AttemptContext) -> PreparedTask:
        """The files of environment/ are in the working directory, and the health check has passed."""
        folder, machine = self._folder(task), _needed(sandbox)
        healthcheck = folder.config.environment.healthcheck
        upload = await asyncio.to_thread(lambda: folder.upload)
        if upload is not None:
            await machine.upload(upload, PurePosixPath("."))
        if healthcheck is not None:
            await self._wait_healthy(machine, healthcheck)
        return PreparedTask(
            task=task,
            instruction=task.instruction,
            agent_user=folder.config.agent.user,
            solution=_solution(folder, task, self._parameters.variables),
        )

    async def _wait_healthy(self, sandbox: Sandbox, check: HealthCheck) -> None:
        """`retries` failures in a row are an error; those of the start period do not count."""
        loop = asyncio.get_running_loop()
        started, failures = loop.time(), 0
        while True:
            result = await sandbox.exec(Command(script=check.command, timeout_s=check.timeout_sec))
            if result.ok:
                return
            starting = loop.time() - started < check.start_period_sec
            failures = 0 if starting else failures + 1
            if failures >= check.retries:
                what = "timed out" if result.timed_out else f"ended with status {result.exit_code}"
                raise SandboxFailed(
                    f"environment.healthcheck {check.command!r} {what}, {failures} times in a row",
                    hint="see what the task's image needs to start",
                )
            await self._sleep(check.start_interval_sec if starting else check.interval_sec)

    async def collect(
        self, task: PreparedTask, sandbox: Sandbox | None, result: HarnessResult | None, context: AttemptContext
    ) -> Submission:
        """The submission is the sandbox itself; the agent's logs and the artifacts are kept beside the attempt.

        Where the task names none and the agent ended by itself, `grade` looks for them, which saves calls.
        """
        config = self._folder(task.task).config
        if result is not None and not config.artifacts and not config.verifier.collect:
            return Submission()
        kept = await collect_artifacts(_needed(sandbox), config, context.log_dir)
        return Submission(extra={"artifacts": kept} if kept else {})

    async def grade(
        self, task: PreparedTask, submission: Submission, sandbox: Sandbox | None, context: AttemptContext
    ) -> Grade:
        """The reward that the task's tests write; their logs go to the attempt's `verifier/`.

        What the agent left in /logs/agent and /logs/artifacts is kept as well, unless `collect` has done so.
        """
        folder = self._folder(task.task)
        limit_s, limit_name = tests_limit(folder.config, self._parameters)
        run = TestRun(
            tests=folder.path / "tests",
            env={**(self._kit.env if self._kit else {}), **self._verifier_env(folder)},
            user=folder.config.verifier.user,
            limit_s=limit_s,
            limit_name=limit_name,
            logs=context.log_dir / "verifier",
            kit=self._kit.path if self._kit else None,
            beside=_not_kept_yet(context.log_dir),
        )
        return await run_tests(_needed(sandbox), run)

    def _verifier_env(self, folder: TaskFolder) -> dict[str, str]:
        return interpolated(folder.config.verifier.env, self._parameters.variables, "verifier.env")

    def _folder(self, task: Task) -> TaskFolder:
        if task.id not in self._folders:
            if task.path is None:
                raise ConfigError(f"task {task.id!r} has no folder")
            self._folders[task.id] = read_task(task.path, task.id)
        return self._folders[task.id]


def _not_kept_yet(log_dir: Path) -> dict[PurePosixPath, Folder]:
    targets = {source: log_dir / name for source, name in AGENT_FOLDERS.items()}
    return {source: Folder(path, MAX_ARTIFACT_BYTES) for source, path in targets.items() if not path.exists()}


def _unknown(name: str, found: Mapping[str, Path], benchmark: str) -> ConfigError:
    hint = did_you_mean(name, found, count=3, otherwise=f"`agentcompass tasks {benchmark}` lists them")
    return ConfigError(f"{benchmark} has no task {name!r}", hint=hint)


def _needed(sandbox: Sandbox | None) -> Sandbox:
    if sandbox is None:
        raise ConfigError("tasks of this benchmark need a sandbox", hint="use --env docker")
    return sandbox


def _solution(folder: TaskFolder, task: Task, variables: Mapping[str, str]) -> Solution | None:
    files = folder.path / "solution"
    if not (files / "solve.sh").is_file():
        return None
    env = interpolated(folder.config.solution.env, variables, "solution.env")
    command = Command(
        script=_SOLVE,
        env={"DEBIAN_FRONTEND": "noninteractive", **env},
        user=folder.config.agent.user,
        timeout_s=task.budgets.agent_s,
    )
    return Solution(files=((files, PurePosixPath("/solution")),), command=command)


def _task(folder: TaskFolder, parameters: TaskDirectoryParameters) -> Task:
    config, environment = folder.config, folder.config.environment
    problems: list[str] = []
    tables = {"environment": environment.env, "verifier": config.verifier.env, "solution": config.solution.env}
    resolved: dict[str, dict[str, str]] = {}
    for section, table in tables.items():
        try:
            resolved[section] = interpolated(table, parameters.variables, f"{section}.env")
        except TaskProblems as exc:
            problems += [f"task.toml{problem}" for problem in exc.problems]
    if problems:
        raise TaskProblems(problems)
    free = {str(key): _json(value) for key, value in config.metadata.items()}
    return Task(
        id=folder.id,
        category=str(free.get("category") or ""),
        instruction=folder.instruction,
        budgets=stage_budgets(folder.config, parameters),
        metadata={
            "difficulty": free.get("difficulty"),
            "tags": free.get("tags"),
            "docker_image": environment.docker_image,
            "dockerfile_context": str(folder.path / "environment") if folder.has_dockerfile else None,
            "workdir": environment.workdir,
            "cpus": environment.cpus,
            "memory_mb": environment.memory_mib,
            "storage_mb": environment.storage_mib,
            "network": environment.network,
            "env": dict[str, JsonValue](resolved["environment"]),
            "users": sorted({user for user in (config.agent.user, config.verifier.user) if user}),
            "host_process": free.get("host_process") is True,
            "metadata": free,
        },
        path=folder.path,
        checksum=folder.checksum,
    )


def _json(value: Any) -> JsonValue:
    if isinstance(value, dict):
        return {str(key): _json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_json(item) for item in value]
    if isinstance(value, datetime | date | time) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)
    plain: JsonValue = value  # the rest of what TOML has is JSON
    return plain
