"""The life of a task in a sandbox: prepared, collected, graded; and the verdicts that cannot be had otherwise."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from agentcompass.adapters.benchmarks.task_directory import artifacts, benchmark, sandbox_logs, verifier
from agentcompass.adapters.benchmarks.task_directory.benchmark import TaskDirectoryBenchmark, TaskDirectoryParameters
from agentcompass.adapters.benchmarks.task_directory.verifier import VerifierTimedOut
from agentcompass.adapters.environments.host_process.environment import HostProcessEnvironment, HostProcessParameters
from agentcompass.adapters.recipes.task_directory import TaskDirectoryRecipe
from agentcompass.domain.attempt import ExitReason, HarnessResult
from agentcompass.domain.errors import ConfigError, SandboxFailed, SandboxLost, VerifierFailed
from agentcompass.domain.ports import Sandbox
from agentcompass.domain.resolving import resolve_spec
from agentcompass.domain.sandbox import Command, ExecResult
from agentcompass.domain.task import Grade, PreparedTask, Task, TaskSelection
from agentcompass.testing.benchmark import a_context, apply_solution
from agentcompass.testing.environment import an_owner
from agentcompass.testing.task_folders import ANSWER_TEST, REWARD, TASK_TOML, write_task

LOGS = '"${AGENTCOMPASS_ROOT:-}/logs/verifier"'
AGENT = '"${AGENTCOMPASS_ROOT:-}/logs/agent"'
FINISHED = HarnessResult(exit_reason=ExitReason.FINISHED)


class CountingSandbox:
    """Passes every call on, and keeps their names."""

    def __init__(self, inner: Sandbox) -> None:
        self.inner = inner
        self.calls: list[str] = []
        self.commands: list[Command] = []
        self.answers: dict[str, ExecResult] = {}
        """What to answer, instead of running it, to a command of this user."""
        self.id, self.image, self.image_digest = inner.id, inner.image, inner.image_digest

    async def exec(self, command: Command) -> ExecResult:
        self.calls.append("exec")
        self.commands.append(command)
        answer = self.answers.get(command.user or "")
        return answer or await self.inner.exec(command.model_copy(update={"user": None}))

    async def upload(self, source: Path, target: PurePosixPath) -> None:
        self.calls.append("upload")
        await self.inner.upload(source, target)

    async def download(self, source: PurePosixPath, target: Path) -> None:
        self.calls.append(f"download {source}")
        await self.inner.download(source, target)

    async def read_bytes(self, path: PurePosixPath, max_bytes: int) -> bytes:
        self.calls.append(f"read_bytes {path}")
        return await self.inner.read_bytes(path, max_bytes)

    async def write_bytes(self, path: PurePosixPath, data: bytes, mode: int = 0o644) -> None:
        self.calls.append("write_bytes")
        await self.inner.write_bytes(path, data, mode)

    async def kill_processes(self) -> None:
        self.calls.append("kill_processes")
        await self.inner.kill_processes()


class Life:
    """A task, prepared in a sandbox of host_process."""

    def __init__(
        self, benchmark: TaskDirectoryBenchmark, prepared: PreparedTask, sandbox: CountingSandbox, folder: Path
    ) -> None:
        self.benchmark, self.prepared, self.sandbox, self.folder = benchmark, prepared, sandbox, folder
        self.context = a_context(prepared.task, folder)
        self.logs = self.context.log_dir

    async def run(self, script: str) -> str:
        """Work as the agent does."""
        return (await self.sandbox.inner.exec(Command(script=script, timeout_s=30))).stdout

    async def collect(self, result: HarnessResult | None = FINISHED) -> dict[str, object]:
        submission = await self.benchmark.collect(self.prepared, self.sandbox, result, self.context)

        assert submission.content is None
        return dict(submission.extra)

    async def grade(self) -> Grade:
        submission = await self.benchmark.collect(self.prepared, self.sandbox, FINISHED, self.context)
        self.sandbox.calls.clear()
        return await self.benchmark.grade(self.prepared, submission, self.sandbox, self.context)


@asynccontextmanager
async def life(
    tmp_path: Path, *, explicit: Mapping[str, Any] | None = None, **parameters: object
) -> AsyncIterator[Life]:
    """The one task in `tmp_path/tasks`; `explicit` fields of the sandbox outrank the recipe's."""
    benchmark = TaskDirectoryBenchmark(
        TaskDirectoryParameters(path=tmp_path / "tasks", **parameters), tmp_path, sleep=no_sleep
    )
    (task,) = await benchmark.load_tasks(TaskSelection())
    environment = HostProcessEnvironment(HostProcessParameters(root_folder=tmp_path / "sandboxes"))
    fields = TaskDirectoryRecipe()(without_users(task), environment.capabilities)
    async with environment.open(resolve_spec({}, fields, explicit or {}, 600), an_owner()) as inner:
        sandbox = CountingSandbox(inner)
        prepared = await benchmark.prepare(task, sandbox, a_context(task, tmp_path))
        yield Life(benchmark, prepared, sandbox, tmp_path)


def without_users(task: Task) -> Task:
    return task.model_copy(update={"metadata": {**task.metadata, "users": []}})


async def lost(*_: object) -> Any:
    raise SandboxLost("gone")


async def failed(*_: object) -> Any:
    raise SandboxFailed("busy")


async def endless(*_: object) -> Any:
    await asyncio.Event().wait()


async def no_sleep(seconds: float) -> None:
    return None


def forge_before_downloads(it: Life) -> None:
    download = it.sandbox.inner.download

    async def forged_first(source: PurePosixPath, target: Path) -> None:
        await it.run(f"echo 1 > {REWARD}")
        await download(source, target)

    it.sandbox.inner.download = forged_first  # type: ignore[method-assign]  # a process of the agent's does that


def make(tmp_path: Path, **changes: object) -> Path:
    return write_task(tmp_path / "tasks", "task", **changes)  # type: ignore[arg-type]  # passed on as they are


async def test_preparing_costs_no_call_when_there_is_nothing_to_do(tmp_path: Path) -> None:
    make(tmp_path, files={"environment/Dockerfile": "FROM x\n"})
    async with life(tmp_path) as it:
        calls = list(it.sandbox.calls)

    assert calls == []


async def test_the_environment_folder_goes_into_the_working_directory(tmp_path: Path) -> None:
    make(tmp_path, files={"environment/data/in.txt": "given\n"})
    async with life(tmp_path) as it:
        seen = await it.run("cat data/in.txt; ls")

    assert seen == "given\ndata\n"
    assert it.sandbox.calls == ["upload"]


async def test_without_a_workdir_the_folder_goes_where_the_sandbox_works(tmp_path: Path) -> None:
    make(tmp_path, toml=TASK_TOML.replace('workdir = "/app"\n', ""), files={"environment/in.txt": "given\n"})
    async with life(tmp_path) as it:
        seen = await it.run("cat in.txt")

    assert seen == "given\n"
    assert it.sandbox.calls == ["upload"]


async def test_files_agent_tests_and_artifacts_share_the_working_directory_that_the_user_sets(tmp_path: Path) -> None:
    toml = 'artifacts = ["answer.txt", "./-odd name"]\n' + TASK_TOML
    make(
        tmp_path,
        toml=toml,
        solve="cp in.txt answer.txt; echo x > ./'-odd name'\n",
        files={"environment/in.txt": "42\n"},
    )
    async with life(tmp_path, explicit={"workspace_root": "/w"}) as it:
        done = await apply_solution(it.prepared, it.sandbox)
        extra = await it.collect()
        grade = await it.grade()

    assert it.prepared.workspace_root is None
    assert done.ok
    assert grade.correct
    assert extra == {"artifacts": {"answer.txt": "kept", "-odd name": "kept"}}
    assert (it.logs / "artifacts" / "app" / "answer.txt").read_text() == "42\n"


async def test_files_reach_the_working_directory_of_a_sandbox_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to("real")
    make(link, toml=TASK_TOML.replace('workdir = "/app"\n', ""), files={"environment/in.txt": "42\n"})
    async with life(link) as it:
        await it.run("cp in.txt answer.txt")
        grade = await it.grade()

    assert grade.correct


async def test_grading_takes_two_calls_where_the_tests_leave_their_verdict_alone(tmp_path: Path) -> None:
    make(tmp_path, test=f"#!/bin/bash\necho hi\necho '{{}}' > {LOGS}/ctrf.json\necho 0 > {REWARD}\n")
    async with life(tmp_path) as it:
        await it.grade()

    assert it.sandbox.calls == ["upload", "exec"]
    assert sorted(os.listdir(it.logs / "verifier")) == ["ctrf.json", "reward.txt", "test-stdout.txt"]


async def test_more_that_the_tests_leave_takes_one_call_more(tmp_path: Path) -> None:
    make(tmp_path, test=f"#!/bin/bash\nmkdir {LOGS}/sub\necho deep > {LOGS}/sub/file\necho 1 > {REWARD}\n")
    async with life(tmp_path) as it:
        grade = await it.grade()

    assert grade.correct
    assert it.sandbox.calls == ["upload", "exec", "download /logs/verifier"]
    assert (it.logs / "verifier" / "sub" / "file").read_text() == "deep\n"


async def test_collecting_takes_no_call_where_the_agent_ended_by_itself(tmp_path: Path) -> None:
    make(tmp_path)
    async with life(tmp_path) as it:
        kept = await it.collect()

    assert it.sandbox.calls == []
    assert kept == {}


async def test_the_agents_logs_are_kept_by_the_grade(tmp_path: Path) -> None:
    make(tmp_path)
    async with life(tmp_path) as it:
        await it.run(f"echo trace > {AGENT}/log")
        grade = await it.grade()

    assert it.sandbox.calls == ["upload", "exec", "download /logs/agent"]
    assert (it.logs / "agent" / "log").read_text() == "trace\n"
    assert set(grade.extra) == {"verify_log"}


async def test_the_logs_of_an_agent_that_was_cut_are_collected_once_at_once(tmp_path: Path) -> None:
    make(tmp_path)
    async with life(tmp_path) as it:
        await it.run(f"echo trace > {AGENT}/log")
        await it.collect(None)
        collected = list(it.sandbox.calls)
        await it.grade()

    assert collected == ["exec", "download /logs/agent"]
    assert it.sandbox.calls == ["upload", "exec"]
    assert (it.logs / "agent" / "log").read_text() == "trace\n"


@pytest.mark.parametrize("test", ["exit 3", "kill -9 $PPID", "sleep 60"])
async def test_the_agents_logs_are_kept_although_there_is_no_verdict(tmp_path: Path, test: str) -> None:
    make(tmp_path, test=f"#!/bin/bash\n{test}\n")
    async with life(tmp_path, verifier_timeout_s=2) as it:
        await it.run(f"echo trace > {AGENT}/log")
        with pytest.raises(VerifierFailed):
            await it.grade()

    assert (it.logs / "agent" / "log").read_text() == "trace\n"


async def test_the_oracle_passes_and_its_output_is_printed(tmp_path: Path) -> None:
    make(tmp_path, solve="echo working\necho oops >&2\necho 42 > answer.txt\nexit 3\n")
    async with life(tmp_path) as it:
        done = await apply_solution(it.prepared, it.sandbox)
        await it.collect()
        grade = await it.grade()

    assert (done.exit_code, done.stdout) == (3, "working\noops\n")
    assert (grade.score, grade.correct) == (1, True)
    assert it.sandbox.calls == ["upload", "exec"]


async def test_a_service_that_the_solution_leaves_can_go_on_printing(tmp_path: Path) -> None:
    solve = "#!/bin/bash\n(sleep 1; echo still here; echo 42 > answer.txt) &\n"
    test = "#!/bin/bash\nsleep 3\n" + ANSWER_TEST.partition("\n")[2]
    make(tmp_path, solve=solve, test=test)
    async with life(tmp_path) as it:
        await apply_solution(it.prepared, it.sandbox)
        grade = await it.grade()

    assert grade.correct


async def test_the_solution_gets_its_own_variables(tmp_path: Path) -> None:
    toml = TASK_TOML + '[solution.env]\nANSWER = "${NUMBER:-7}"\n'
    make(tmp_path, toml=toml, solve='#!/bin/bash\necho "$ANSWER $DEBIAN_FRONTEND" > answer.txt\n')
    async with life(tmp_path, variables={"NUMBER": "42"}) as it:
        await apply_solution(it.prepared, it.sandbox)
        answer = await it.run("cat answer.txt")

    assert answer == "42 noninteractive\n"


async def test_a_task_without_a_solution_says_so(tmp_path: Path) -> None:
    make(tmp_path, solve=None)
    async with life(tmp_path) as it:
        assert it.prepared.solution is None


async def test_a_test_script_without_a_first_line_is_run_as_shell(tmp_path: Path) -> None:
    make(tmp_path, test=f"# comes first\necho 1 > {REWARD}\n")
    async with life(tmp_path) as it:
        grade = await it.grade()

    assert grade.correct


async def test_the_verify_log_tells_the_run_of_the_tests(tmp_path: Path) -> None:
    make(tmp_path, test=f"#!/bin/bash\necho half; echo oops >&2\necho 0.5 > {REWARD}\nexit 3\n")
    async with life(tmp_path) as it:
        grade = await it.grade()

    log = grade.extra["verify_log"]
    assert isinstance(log, dict)
    assert (grade.score, grade.correct) == (0.5, False)
    assert {key: log[key] for key in ("reward", "rewards", "test_return_code", "test_stdout")} == {
        "reward": 0.5,
        "rewards": {"reward": 0.5},
        "test_return_code": 3,
        "test_stdout": "half\noops\n",
    }
    assert (it.logs / "verifier" / "test-stdout.txt").read_text() == "half\noops\n"


async def test_a_report_of_the_tests_is_summed_up(tmp_path: Path) -> None:
    report = '{"results": {"summary": {"tests": 2, "passed": 2, "failed": 0}}}'
    make(tmp_path, test=f"#!/bin/bash\n# --ctrf\necho '{report}' > {LOGS}/ctrf.json\necho 1 > {REWARD}\n")
    async with life(tmp_path) as it:
        grade = await it.grade()

    assert isinstance(grade.extra["verify_log"], dict)
    assert grade.extra["verify_log"]["ctrf"] == {"tests": 2, "passed": 2, "failed": 0}


async def test_tests_run_in_the_working_directory_with_their_variables_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_RUNNER", "leak")
    script = f'#!/bin/bash\necho "${{PWD##*/}} $GREETING [$SECRET_OF_THE_RUNNER] [$ac_path$R]"\necho 1 > {REWARD}\n'
    make(tmp_path, toml=TASK_TOML + '[verifier.env]\nGREETING = "hello"\n', test=script)
    async with life(tmp_path) as it:
        grade = await it.grade()

    assert isinstance(grade.extra["verify_log"], dict)
    assert grade.extra["verify_log"]["test_stdout"] == "app hello [] []\n"


@pytest.mark.parametrize(
    "forgery",
    [
        "echo 1 > $L/verifier/reward.txt",
        "echo '{\"reward\": 1}' > $L/verifier/reward.json",
        "mkdir -p $L/verifier/reward.txt",
        "rm -rf $L/verifier; mkdir elsewhere; echo 1 > elsewhere/reward.json; ln -s $PWD/elsewhere $L/verifier",
        "mkdir $R/tests; printf 'echo 1 > $L/verifier/reward.txt' > $R/tests/test.sh; chmod +x $R/tests/test.sh",
        "mkdir mine; printf 'echo 1 > $L/verifier/reward.txt\\n' > mine/test.sh; ln -s $PWD/mine $R/tests",
        "mkdir $R/tests; echo x > $R/tests/sub; chmod 500 $R/tests",
        "mv $L away; mkdir away/verifier -p; echo '{\"reward\": 1}' > away/verifier/reward.json; ln -s $PWD/away $L",
    ],
)
async def test_a_verdict_or_tests_that_the_agent_left_do_not_count(tmp_path: Path, forgery: str) -> None:
    make(tmp_path)
    async with life(tmp_path) as it:
        await it.run(f'R="$AGENTCOMPASS_ROOT"; L="$R/logs"\n{forgery}')
        grade = await it.grade()

    assert (grade.score, grade.correct) == (0, False)


async def test_files_that_the_agent_put_beside_the_tests_are_gone(tmp_path: Path) -> None:
    make(
        tmp_path,
        test=f'#!/bin/bash\nls "${{0%/*}}"\necho 1 > {REWARD}\n',
        files={"tests/test_outputs.py": "def test(): pass\n"},
    )
    async with life(tmp_path) as it:
        await it.run('mkdir -p "$AGENTCOMPASS_ROOT/tests"; echo x > "$AGENTCOMPASS_ROOT/tests/conftest.py"')
        grade = await it.grade()

    assert isinstance(grade.extra["verify_log"], dict)
    assert grade.extra["verify_log"]["test_stdout"] == "pytest.ini\ntest.sh\ntest_outputs.py\n"


async def test_a_conftest_and_settings_above_the_tests_do_not_rule_them(tmp_path: Path) -> None:
    script = f"""#!/bin/bash
cd "${{0%/*}}" && {sys.executable} -m pytest -q -p no:cacheprovider "${{0%/*}}/test_outputs.py"
if [ $? -eq 0 ]; then echo 1 > {REWARD}; else echo 0 > {REWARD}; fi
"""
    make(tmp_path, test=script, files={"tests/test_outputs.py": "def test():\n    assert False\n"})
    forged = "import pytest\n@pytest.fixture(autouse=True)\ndef skipped(): pytest.skip()\n"
    async with life(tmp_path) as it:
        await it.sandbox.write_bytes(PurePosixPath("/conftest.py"), forged.encode())
        await it.sandbox.write_bytes(PurePosixPath("/pytest.ini"), b"[pytest]\naddopts = --co\n")
        grade = await it.grade()

    assert isinstance(grade.extra["verify_log"], dict)
    assert (grade.score, grade.correct) == (0, False)
    assert "1 failed" in str(grade.extra["verify_log"]["test_stdout"])


async def test_settings_of_pytest_that_the_tests_bring_stay_as_they_are(tmp_path: Path) -> None:
    script = f'#!/bin/bash\nls "${{0%/*}}"\necho 1 > {REWARD}\n'
    make(tmp_path, test=script, files={"tests/test_a.py": "", "tests/pyproject.toml": "[tool.pytest.ini_options]\n"})
    async with life(tmp_path) as it:
        grade = await it.grade()

    assert isinstance(grade.extra["verify_log"], dict)
    assert grade.extra["verify_log"]["test_stdout"] == "pyproject.toml\ntest.sh\ntest_a.py\n"


@pytest.mark.parametrize(
    ("test", "reason"),
    [
        ("echo hi\nexit 7", r"no reward\.txt or reward\.json; test\.sh ended with status 7, its last line: 'hi'"),
        (f": > {REWARD}", r"reward\.txt is empty"),
        (f"echo none > {REWARD}", r"reward\.txt is not a finite number: 'none'"),
        (f"echo nan > {REWARD}", r"reward\.txt is not a finite number"),
        (f"rm -rf {LOGS}", r"no reward\.txt or reward\.json"),
        (f"ln -s /etc/hostname {REWARD}", r"no reward\.txt or reward\.json"),
        (f"uvx pytest --ctrf x\necho 0 > {REWARD}", r"its tools could not run: .*uvx: command not found"),
        (f"true --ctrf x\necho 0 > {REWARD}", r"its tests never ran: they write ctrf\.json and it is missing"),
        (f"true --ctrf x\necho 1 > {REWARD}", r"it reports a pass, but the ctrf\.json"),
        ("kill -9 $PPID", r"the tests' shell was ended: status 137"),
    ],
)
async def test_tests_without_a_verdict_are_an_error_never_a_zero(tmp_path: Path, test: str, reason: str) -> None:
    make(tmp_path, test=f"#!/bin/bash\n{test}\n")
    async with life(tmp_path) as it:
        with pytest.raises(VerifierFailed, match=reason):
            await it.grade()


async def test_a_verdict_that_cannot_be_read_does_not_run_the_agent_again(tmp_path: Path) -> None:
    await final_refusal(tmp_path, "nan", test=f"#!/bin/bash\necho nan > {REWARD}\n")


async def test_tests_that_take_too_long_are_an_error_that_names_the_limit(tmp_path: Path) -> None:
    make(tmp_path, test=f"#!/bin/bash\necho began\necho 0 > {REWARD}\nsleep 60\n")
    async with life(tmp_path, verifier_timeout_s=1) as it:
        with pytest.raises(VerifierTimedOut, match=r"verifier_timeout_s of 1 s reached after 1\.\d s") as caught:
            await it.grade()

    assert isinstance(caught.value, VerifierFailed)
    assert caught.value.limit == "verifier_timeout_s"
    assert (it.logs / "verifier" / "test-stdout.txt").read_text() == "began\n"


async def test_a_sandbox_that_dies_is_passed_on_as_it_is(tmp_path: Path) -> None:
    make(tmp_path)
    async with life(tmp_path) as it:
        it.sandbox.inner.exec = lost  # type: ignore[method-assign]  # the sandbox dies here
        with pytest.raises(SandboxLost):
            await it.grade()


async def test_of_huge_logs_only_the_verdict_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifier, "MAX_LOGS_BYTES", 1024 * 1024)
    make(tmp_path, test=f"#!/bin/bash\necho done\nhead -c 3000000 /dev/zero > {LOGS}/big\necho 1 > {REWARD}\n")
    async with life(tmp_path) as it:
        grade = await it.grade()

    assert grade.correct
    assert it.sandbox.calls[:2] == ["upload", "exec"]
    assert not [call for call in it.sandbox.calls if call.startswith("download")]
    assert sorted(os.listdir(it.logs / "verifier")) == ["reward.txt", "test-stdout.txt"]
    assert (it.logs / "verifier" / "test-stdout.txt").read_text() == "done\n"


@pytest.mark.parametrize("filler", ["truncate -s 5G sparse", "seq 20100 | xargs touch"])
async def test_sparse_files_and_countless_files_are_huge_too(tmp_path: Path, filler: str) -> None:
    make(tmp_path, test=f"#!/bin/bash\necho 1 > {REWARD}\ncd {LOGS}\n{filler}\n")
    async with life(tmp_path) as it:
        grade = await it.grade()

    assert grade.correct
    assert sorted(os.listdir(it.logs / "verifier")) == ["reward.txt", "test-stdout.txt"]


async def test_a_reward_file_that_is_huge_itself_is_no_verdict(tmp_path: Path) -> None:
    make(tmp_path, test=f"#!/bin/bash\ntruncate -s 5G {REWARD}\n")
    async with life(tmp_path) as it:
        with pytest.raises(VerifierFailed, match=r"reward\.txt cannot be read"):
            await it.grade()


async def test_a_reward_file_that_is_larger_than_any_reward_is_no_verdict(tmp_path: Path) -> None:
    make(tmp_path, test=f"#!/bin/bash\n(echo 1; head -c 2000000 /dev/zero | tr '\\0' ' ') > {REWARD}\n")
    async with life(tmp_path) as it:
        with pytest.raises(VerifierFailed, match=r"reward\.txt has more than 1048576 bytes"):
            await it.grade()


async def test_output_that_is_not_utf_8_is_kept_byte_for_byte(tmp_path: Path) -> None:
    make(tmp_path, test=f"#!/bin/bash\nprintf 'a\\360\\237\\230b'\necho 1 > {REWARD}\n")
    async with life(tmp_path) as it:
        grade = await it.grade()

    assert grade.correct
    assert it.sandbox.calls == ["upload", "exec", "download /logs/verifier"]
    assert (it.logs / "verifier" / "test-stdout.txt").read_bytes() == b"a\360\237\230b"


async def test_long_output_is_fetched_and_kept_whole(tmp_path: Path) -> None:
    make(tmp_path, test=f"#!/bin/bash\nseq 100000\necho 1 > {REWARD}\n")
    async with life(tmp_path) as it:
        grade = await it.grade()

    assert grade.correct
    assert it.sandbox.calls == ["upload", "exec", "download /logs/verifier"]
    assert (it.logs / "verifier" / "test-stdout.txt").read_text().splitlines()[-1] == "100000"


@pytest.mark.parametrize("downloaded", ["printf '\\377'", f"echo x > {LOGS}/other"], ids=["output", "file"])
async def test_a_reward_that_changes_after_the_tests_have_ended_does_not_count(tmp_path: Path, downloaded: str) -> None:
    make(tmp_path, test=f"#!/bin/bash\n{downloaded}\necho 0 > {REWARD}\n")
    async with life(tmp_path) as it:
        forge_before_downloads(it)
        grade = await it.grade()

    assert grade.score == 0


@pytest.mark.parametrize("name", ["reward.json", "reward.txt", "ctrf.json", "test-stdout.txt"])
@pytest.mark.parametrize(
    "plant", ["mkfifo {}", "ln -s /dev/zero {}", "ln -s /etc/hostname {}", "mkdir -p {}/x", "ln -s . {}"]
)
async def test_what_is_no_file_is_neither_read_nor_waited_for(tmp_path: Path, name: str, plant: str) -> None:
    make(tmp_path, test=f"#!/bin/bash\ncd {LOGS}\nrm -f {name}\n{plant.format(name)}\n")
    async with life(tmp_path) as it:
        with pytest.raises(VerifierFailed, match=r"no reward\.txt or reward\.json"):
            await it.grade()

    assert not (it.logs / "verifier" / name).is_file()


async def test_a_user_of_the_verifier_runs_the_tests_and_root_puts_them_in(tmp_path: Path) -> None:
    make(tmp_path, toml=TASK_TOML.replace("[verifier]\n", '[verifier]\nuser = "nobody"\n'))
    async with life(tmp_path) as it:
        await it.grade()

    setup, tests, report = it.sandbox.commands[-3:]
    assert it.sandbox.calls == ["upload", "exec", "exec", "exec"]
    assert (setup.user, tests.user, report.user) == ("root", "nobody", "root")
    assert 'test.sh") >' not in (setup.script or "")
    assert "rm -rf" not in (tests.script or "")


async def test_an_image_whose_user_is_not_root_gets_root_for_putting_the_tests_in(tmp_path: Path) -> None:
    make(tmp_path)
    async with life(tmp_path) as it:
        answers = iter([ExecResult(exit_code=93, stdout="", stderr="", duration_s=0)])
        inner = it.sandbox.inner.exec

        async def not_root_at_first(command: Command) -> ExecResult:
            return next(answers, None) or await inner(command)

        submission = await it.benchmark.collect(it.prepared, it.sandbox, None, it.context)
        it.sandbox.inner.exec = not_root_at_first  # type: ignore[method-assign]  # as in such an image
        grade = await it.benchmark.grade(it.prepared, submission, it.sandbox, it.context)

    assert grade.score == 0
    assert [command.user for command in it.sandbox.commands[-4:]] == [None, "root", None, "root"]


async def test_start_up_files_that_were_removed_and_tools_that_were_changed_are_told(tmp_path: Path) -> None:
    make(tmp_path, toml=TASK_TOML.replace("[verifier]\n", '[verifier]\nuser = "nobody"\n'))
    async with life(tmp_path) as it:
        done = await it.sandbox.inner.exec(Command(script="echo", timeout_s=5))
        inner = it.sandbox.exec

        async def with_removed(command: Command) -> ExecResult:
            result = await inner(command)
            found = "removed=/usr/lib/python3/sitecustomize.py\nchanged=/usr/local/bin/grep\n"
            is_setup = "rm -rf" in (command.script or "")
            return result.model_copy(update={"stdout": found * is_setup + result.stdout})

        it.sandbox.exec = with_removed  # type: ignore[method-assign]  # as a container would answer
        grade = await it.grade()

    assert done.ok
    assert isinstance(grade.extra["verify_log"], dict)
    assert grade.extra["verify_log"]["removed"] == ["/usr/lib/python3/sitecustomize.py"]
    assert grade.extra["verify_log"]["changed_tools"] == ["/usr/local/bin/grep"]


@pytest.mark.parametrize("forged", ["", "echo 1 > reward.txt;"])
async def test_a_process_that_clears_the_verifiers_folder_is_killed_and_the_tests_run_again(
    tmp_path: Path, forged: str
) -> None:
    make(tmp_path, test=f"#!/bin/bash\nsleep 0.3\necho 0 > {REWARD}\n")
    async with life(tmp_path) as it:
        await it.run(
            f"(while :; do rm -rf {LOGS}; mkdir {LOGS}; cd {LOGS} && {forged} sleep 0.01; cd /; done) "
            "> /dev/null 2>&1 < /dev/null &"
        )
        grade = await it.grade()

    assert isinstance(grade.extra["verify_log"], dict)
    assert grade.score == 0
    assert grade.extra["verify_log"]["processes_killed"] is True
    assert it.sandbox.calls.count("kill_processes") == 1


PROGRAM_TEST = f"#!/bin/bash\n./program\necho 0 > {REWARD}\n"
FORGER = f"echo '{{\"reward\": 1}}' > {LOGS}/reward.json"


def writing(program: str) -> str:
    """The agent leaves this as `./program`, which PROGRAM_TEST runs."""
    return f"cat > program <<'END'\n#!/bin/bash\n{program}\nEND\nchmod +x program"


async def final_refusal(tmp_path: Path, match: str, *, test: str = PROGRAM_TEST, program: str = "") -> Life:
    """A grade without a verdict, and without another chance."""
    make(tmp_path, test=test)
    async with life(tmp_path) as it:
        await it.run(writing(program))
        with pytest.raises(VerifierFailed, match=match) as caught:
            await it.grade()

    assert not caught.value.transient
    return it


async def test_a_reward_file_that_the_tests_do_not_write_counts_in_no_run(tmp_path: Path) -> None:
    make(tmp_path, test=PROGRAM_TEST)
    async with life(tmp_path) as it:
        await it.run(writing(FORGER))
        grade = await it.grade()

    assert isinstance(grade.extra["verify_log"], dict)
    assert grade.score == 0
    assert grade.extra["verify_log"]["left_out"] == ["reward.json"]


async def test_a_forged_reward_of_tests_that_were_ended_before_theirs_is_no_verdict(tmp_path: Path) -> None:
    await final_refusal(tmp_path, r"no reward\.txt or reward\.json", program=f"{FORGER}\nkill -9 $PPID")


async def test_a_reward_file_that_no_test_names_may_be_a_tools(tmp_path: Path) -> None:
    make(tmp_path, test=f"#!/bin/bash\nname=reward\necho '{{\"reward\": 1}}' > {LOGS}/$name.json\n")
    async with life(tmp_path) as it:
        grade = await it.grade()

    assert grade.correct
    assert it.sandbox.calls == ["upload", "exec"]


async def test_programs_that_remove_what_the_tests_write_in_each_run_give_the_agent_no_other_chance(
    tmp_path: Path,
) -> None:
    it = await final_refusal(tmp_path, "what the tests wrote was removed, although", program=f"rm -rf {LOGS}/*")

    assert it.sandbox.calls.count("kill_processes") == 1


async def test_an_end_of_the_tests_shell_gives_the_agent_no_other_chance(tmp_path: Path) -> None:
    await final_refusal(tmp_path, "the tests' shell was ended: status 137", test="#!/bin/bash\nkill -9 $PPID\n")


async def test_tests_that_clear_their_own_folder_run_once(tmp_path: Path) -> None:
    make(tmp_path, test=f"#!/bin/bash\necho x >> runs\nrm -rf {LOGS}/*\necho 1 > {REWARD}\n")
    async with life(tmp_path) as it:
        grade = await it.grade()
        runs = await it.run("cat runs")

    assert grade.correct
    assert runs == "x\n"


async def test_a_folder_of_tests_that_is_made_again_and_again_is_put_in_all_the_same(tmp_path: Path) -> None:
    make(tmp_path)
    async with life(tmp_path) as it:
        await it.run('(while :; do mkdir -p "$AGENTCOMPASS_ROOT/tests/x"; done) > /dev/null 2>&1 < /dev/null &')
        grade = await it.grade()

    assert grade.score == 0


async def test_services_of_the_agent_stay_for_the_tests(tmp_path: Path) -> None:
    make(tmp_path, test=f'#!/bin/bash\nkill -0 "$(cat pid)" && echo 1 > {REWARD} || echo 0 > {REWARD}\n')
    async with life(tmp_path) as it:
        await it.run("sleep 60 > /dev/null 2>&1 < /dev/null & echo $! > pid")
        grade = await it.grade()

    assert isinstance(grade.extra["verify_log"], dict)
    assert grade.correct
    assert "processes_killed" not in grade.extra["verify_log"]


async def test_start_up_variables_are_empty_for_the_tests_unless_the_task_sets_them(tmp_path: Path) -> None:
    toml = TASK_TOML + '[environment.env]\nBASH_ENV = "/planted"\n[verifier.env]\nPYTHONSTARTUP = "/wanted"\n'
    script = f'#!/bin/bash\necho "[$BASH_ENV][$ENV][$LD_PRELOAD][$PYTHONSTARTUP]"\necho 1 > {REWARD}\n'
    make(tmp_path, toml=toml, test=script)
    async with life(tmp_path) as it:
        before = await it.run('echo "$BASH_ENV"')
        grade = await it.grade()

    assert isinstance(grade.extra["verify_log"], dict)
    assert before == "/planted\n"
    assert grade.extra["verify_log"]["test_stdout"] == "[][][][/wanted]\n"


async def test_agent_logs_and_artifacts_are_kept(tmp_path: Path) -> None:
    toml = 'artifacts = ["/app/out", {source = "note.txt", destination = "kept/n.txt"}, "/missing"]\n' + TASK_TOML
    make(tmp_path, toml=toml)
    async with life(tmp_path) as it:
        await it.run(
            'mkdir out; echo a > out/a; echo n > note.txt; L="$AGENTCOMPASS_ROOT/logs"; echo l > "$L/agent/log"; '
            'echo r > "$L/artifacts/r"'
        )
        extra = await it.collect()

    assert extra == {"artifacts": {"/app/out": "kept", "note.txt": "kept", "/missing": "missing"}}
    found = sorted(str(path.relative_to(it.logs)) for path in it.logs.rglob("*") if path.is_file())
    assert found == ["agent/log", "artifacts/app/out/a", "artifacts/kept/n.txt", "artifacts/r"]


@pytest.mark.parametrize("toml", [TASK_TOML, TASK_TOML.replace('workdir = "/app"\n', "")])
@pytest.mark.parametrize("loss", ["rmdir ../app", "mv ../app ../elsewhere"])
async def test_a_working_directory_that_the_agent_has_removed_is_an_honest_zero(
    tmp_path: Path, toml: str, loss: str
) -> None:
    make(tmp_path, toml=toml)
    async with life(tmp_path) as it:
        await it.run(loss)
        grade = await it.grade()

    assert grade.score == 0


@pytest.mark.parametrize(("test", "score"), [(ANSWER_TEST, 0), (f"cd ..; rm -rf app; echo 0.5 > {REWARD}", 0.5)])
async def test_tests_of_another_user_do_not_need_the_working_directory_either(
    tmp_path: Path, test: str, score: float
) -> None:
    make(tmp_path, toml=TASK_TOML.replace("[verifier]\n", '[verifier]\nuser = "nobody"\n'), test=test)
    async with life(tmp_path) as it:
        await it.run("rmdir ../app")
        grade = await it.grade()

    assert grade.score == score


@pytest.mark.parametrize("in_its_place", ["echo x > ../app", "ln -s /nowhere/else ../app", "ln -s / ../app"])
async def test_where_the_working_directory_cannot_be_made_the_tests_run_at_the_root(
    tmp_path: Path, in_its_place: str
) -> None:
    make(tmp_path, test=f'#!/bin/bash\n[ . -ef "$AGENTCOMPASS_ROOT" ] && echo 0.5 > {REWARD}\n')
    async with life(tmp_path) as it:
        await it.run(f"rmdir ../app; {in_its_place}")
        grade = await it.grade()

    assert grade.score == 0.5


async def test_artifacts_outside_a_working_directory_that_is_gone_are_kept(tmp_path: Path) -> None:
    make(tmp_path, toml='artifacts = ["/out"]\n' + TASK_TOML)
    async with life(tmp_path) as it:
        await it.run("echo x > ../out; rmdir ../app")
        extra = await it.collect()

    assert extra == {"artifacts": {"/out": "kept"}}


async def test_an_artifact_that_is_too_much_stays_and_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "MAX_ARTIFACT_BYTES", 1024 * 1024)
    make(tmp_path)
    async with life(tmp_path) as it:
        await it.run('head -c 3000000 /dev/zero > "$AGENTCOMPASS_ROOT/logs/artifacts/big"')
        extra = await it.collect(None)

    assert extra == {"artifacts": {"/logs/artifacts": "more than 1 MiB or 20000 files"}}
    assert not (it.logs / "artifacts").exists()


async def test_an_artifact_that_is_too_much_is_told_by_the_grade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "MAX_ARTIFACT_BYTES", 1024 * 1024)
    make(tmp_path)
    async with life(tmp_path) as it:
        await it.run('head -c 3000000 /dev/zero > "$AGENTCOMPASS_ROOT/logs/artifacts/big"')
        grade = await it.grade()

    assert grade.extra["artifacts"] == {"/logs/artifacts": "more than 1 MiB or 20000 files"}
    assert it.sandbox.calls == ["upload", "exec"]


async def test_a_sandbox_that_dies_while_artifacts_are_collected_is_passed_on(tmp_path: Path) -> None:
    make(tmp_path)
    async with life(tmp_path) as it:
        await it.run(f"echo trace > {AGENT}/log")
        it.sandbox.inner.download = lost  # type: ignore[method-assign]  # the sandbox dies here
        with pytest.raises(SandboxLost):
            await it.collect(None)


NOT_FETCHED = {"/logs/agent": "not fetched: the limit of 0.3 s for all that is kept was reached"}


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is only kept has to be there at once."""
    monkeypatch.setattr(sandbox_logs, "KEEP_LIMIT_S", 0.3)


@pytest.mark.usefixtures("hasty")
async def test_a_slow_download_of_what_is_only_kept_loses_no_verdict(tmp_path: Path) -> None:
    make(tmp_path)
    async with life(tmp_path) as it:
        await it.run(f"echo trace > {AGENT}/log; echo 42 > answer.txt")
        it.sandbox.inner.download = endless  # type: ignore[method-assign]  # a slow line
        grade = await it.grade()

    assert grade.correct
    assert grade.extra["artifacts"] == NOT_FETCHED


@pytest.mark.usefixtures("hasty")
async def test_a_slow_download_of_an_artifact_is_told_and_loses_no_work(tmp_path: Path) -> None:
    make(tmp_path)
    async with life(tmp_path) as it:
        await it.run(f"echo trace > {AGENT}/log")
        it.sandbox.inner.download = endless  # type: ignore[method-assign]  # a slow line
        extra = await it.collect(None)

    assert extra == {"artifacts": NOT_FETCHED}


@pytest.mark.usefixtures("hasty")
async def test_a_slow_download_of_logs_hides_no_reason_why_there_is_no_verdict(tmp_path: Path) -> None:
    make(tmp_path, test="#!/bin/bash\nkill -9 $PPID\n")
    async with life(tmp_path) as it:
        await it.run(f"echo trace > {AGENT}/log")
        it.sandbox.inner.download = endless  # type: ignore[method-assign]  # a slow line
        async with asyncio.timeout(20):
            with pytest.raises(VerifierFailed, match="status 137"):
                await it.grade()


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("how", ["lost", "failed", "endless"])
@pytest.mark.parametrize(
    ("verdict", "score"), [(f"echo 0.5 > {REWARD}", 0.5), (f"echo 0 > {REWARD}; echo '{{}}' > {LOGS}/ctrf.json", 0)]
)
async def test_output_that_changes_no_verdict_loses_none_where_it_cannot_be_fetched(
    tmp_path: Path, verdict: str, score: float, how: str
) -> None:
    make(tmp_path, test=f"#!/bin/bash\nprintf '\\377'\n{verdict}\n")
    async with life(tmp_path) as it:
        it.sandbox.inner.download = {"lost": lost, "failed": failed, "endless": endless}[how]  # type: ignore[method-assign]
        grade = await it.grade()

    assert grade.score == score


async def test_output_that_may_tell_why_there_is_a_zero_is_needed(tmp_path: Path) -> None:
    make(tmp_path, test=f"#!/bin/bash\nprintf '\\377'\necho 0 > {REWARD}\n")
    async with life(tmp_path) as it:
        it.sandbox.inner.download = failed  # type: ignore[method-assign]  # the provider fails here
        with pytest.raises(SandboxFailed, match="busy"):
            await it.grade()


async def test_the_grade_has_time_for_tests_that_run_twice(tmp_path: Path) -> None:
    make(tmp_path)
    async with life(tmp_path, verifier_timeout_s=1000) as it:
        budgets = it.prepared.task.budgets

    assert budgets.grade_s == 2560
    assert budgets.names["grade"] == "verifier_timeout_s x 2 + 560 s for transfers"


async def test_a_sandbox_that_dies_when_the_verdict_is_known_loses_no_result(tmp_path: Path) -> None:
    make(tmp_path)
    async with life(tmp_path) as it:
        await it.run(f"echo trace > {AGENT}/log")
        it.sandbox.inner.download = lost  # type: ignore[method-assign]  # the sandbox dies here
        grade = await it.grade()

    assert grade.extra["artifacts"] == {"/logs/agent": "gone"}


async def test_collect_hooks_run_before_the_artifacts_are_taken_and_may_fail(tmp_path: Path) -> None:
    hook = '[[verifier.collect]]\ncommand = "echo hook > $AGENTCOMPASS_ROOT/logs/artifacts/h"\n'
    bad = '[[verifier.collect]]\ncommand = "exit 3"\n'
    make(tmp_path, toml=f"{TASK_TOML}{bad}{hook}")
    async with life(tmp_path) as it:
        await it.collect()

    assert (it.logs / "artifacts" / "h").read_text() == "hook\n"


async def test_a_health_check_is_waited_for(tmp_path: Path) -> None:
    command = "echo x >> tries; [ $(wc -l < tries) -ge 3 ]"
    make(tmp_path, toml=f"{TASK_TOML}[environment.healthcheck]\ncommand = '{command}'\n")
    async with life(tmp_path) as it:
        tries = await it.run("wc -l < tries")

    assert tries.strip() == "3"


async def test_a_health_check_that_fails_too_often_is_an_error(tmp_path: Path) -> None:
    make(tmp_path, toml=f'{TASK_TOML}[environment.healthcheck]\ncommand = "exit 4"\nretries = 2\n')
    with pytest.raises(SandboxFailed, match=r"healthcheck 'exit 4' ended with status 4, 2 times in a row"):
        async with life(tmp_path):
            pass


async def test_a_fresh_instance_grades_a_task_it_did_not_load(tmp_path: Path) -> None:
    make(tmp_path)
    async with life(tmp_path) as it:
        await it.run("echo 42 > answer.txt")
        other = TaskDirectoryBenchmark(TaskDirectoryParameters(path=tmp_path / "tasks"), tmp_path)
        submission = await other.collect(it.prepared, it.sandbox, None, it.context)
        grade = await other.grade(it.prepared, submission, it.sandbox, it.context)

    assert grade.correct


async def test_a_verifier_kit_is_there_for_the_tests_and_not_for_the_agent(tmp_path: Path) -> None:
    kit = tmp_path / "kit"
    kit.mkdir()
    (kit / "tool").write_text("sharp\n")
    (kit / "setup.sh").write_text('cp "$AGENTCOMPASS_ROOT/verifier-kit/tool" "$AGENTCOMPASS_ROOT/tool"\n')
    (kit / "env").write_text("# for the tests\nUV_OFFLINE=1\nGREETING=kit\n")
    script = f'#!/bin/bash\ncat "$AGENTCOMPASS_ROOT/tool"; echo "$UV_OFFLINE $GREETING"\necho 1 > {REWARD}\n'
    make(tmp_path, toml=TASK_TOML + '[verifier.env]\nGREETING = "task"\n', test=script)
    async with life(tmp_path, verifier_kit=kit) as it:
        before = await it.run('ls -a "$AGENTCOMPASS_ROOT"; echo "[$UV_OFFLINE]"')
        grade = await it.grade()

    assert "kit" not in before
    assert "[]" in before
    assert isinstance(grade.extra["verify_log"], dict)
    assert grade.extra["verify_log"]["test_stdout"] == "sharp\n1 task\n"
    assert it.sandbox.calls == ["upload", "upload", "exec"]
    assert len(str(it.benchmark.dataset()["verifier_kit"])) == 64


async def test_a_kit_that_cannot_be_set_up_is_an_error(tmp_path: Path) -> None:
    kit = tmp_path / "kit"
    kit.mkdir()
    (kit / "setup.sh").write_text("echo no space >&2\nexit 1\n")
    make(tmp_path)
    async with life(tmp_path, verifier_kit=kit) as it:
        with pytest.raises(VerifierFailed, match="the tests could not be put in: status 94, no space"):
            await it.grade()


@pytest.mark.parametrize(
    ("env", "message"), [(None, "verifier_kit: no folder"), ("A=1\nB C\n", "env:2: not a line of the form NAME=VALUE")]
)
async def test_a_kit_that_is_not_sound_is_refused(tmp_path: Path, env: str | None, message: str) -> None:
    make(tmp_path)
    if env is not None:
        (tmp_path / "kit").mkdir()
        (tmp_path / "kit" / "env").write_text(env)
    with pytest.raises(ConfigError, match=message):
        async with life(tmp_path, verifier_kit=tmp_path / "kit"):
            pass


async def test_failures_within_the_start_period_do_not_count(tmp_path: Path) -> None:
    command = "echo x >> tries; [ $(wc -l < tries) -ge 4 ]"
    check = f"[environment.healthcheck]\ncommand = '{command}'\nretries = 1\nstart_period_sec = 60\n"
    make(tmp_path, toml=f"{TASK_TOML}{check}")
    async with life(tmp_path) as it:
        tries = await it.run("wc -l < tries")

    assert tries.strip() == "4"


async def test_the_agents_user_is_told_to_the_harness_and_used_by_the_solution(tmp_path: Path) -> None:
    make(tmp_path, toml=TASK_TOML.replace("[agent]\n", "[agent]\nuser = 1000\n"))
    async with life(tmp_path) as it:
        prepared = it.prepared

    assert prepared.agent_user == "1000"
    assert prepared.solution is not None
    assert prepared.solution.command.user == "1000"
