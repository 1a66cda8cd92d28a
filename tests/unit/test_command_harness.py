"""command: the contract, and what the user's agent is given and asked for."""

from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from agentcompass.adapters.environments.host_process.environment import HostProcessEnvironment, HostProcessParameters
from agentcompass.adapters.harnesses.command import CommandHarness, CommandParameters
from agentcompass.domain.attempt import ExitReason, HarnessResult
from agentcompass.domain.errors import ConfigError, HarnessFailed
from agentcompass.domain.model import ModelEndpoint
from agentcompass.domain.ports import Harness
from agentcompass.domain.sandbox import Command, ExecResult, SandboxSpec
from agentcompass.testing.environment import an_owner
from agentcompass.testing.fakes import FakeEnvironment, FakeSandbox
from agentcompass.testing.harness import HarnessContract, Recording, RunsCommands, prepared_task
from pydantic import SecretStr

ANSWER = PurePosixPath("/tmp/agentcompass-answer.txt")
INSTRUCTION = PurePosixPath("/tmp/agentcompass/instruction.md")


def ended(exit_code: int | None = 0, stdout: str = "", **fields: Any) -> ExecResult:
    shared = {"exit_code": exit_code, "stdout": stdout, "stderr": "", "duration_s": 1.5}
    return ExecResult.model_validate(shared | fields)


class Ran:
    """A run of the command harness in a sandbox whose commands end as told, in order."""

    def __init__(self, tmp_path: Path, *results: ExecResult, answer: bytes | None = None, **parameters: Any) -> None:
        self.recording = Recording(tmp_path)
        self.results = list(results) or [ended()]
        self.answer = answer
        self.parameters = CommandParameters.model_validate({"command": "./agent", **parameters})
        self.task = prepared_task()
        self.commands: list[Command] = []
        self.sandbox: FakeSandbox | None = None

    def script(self, sandbox: FakeSandbox, command: Command) -> ExecResult:
        self.commands.append(command)
        if self.answer is not None:
            sandbox.files[ANSWER] = self.answer
        return self.results[len(self.commands) - 1]

    async def run(self) -> HarnessResult:
        async with HarnessContract().sandbox(FakeEnvironment(exec_script=self.script), "task-1") as self.sandbox:
            harness = CommandHarness(self.parameters)
            return await harness.run(self.task, self.sandbox, None, self.recording.context)


class TestCommandKeepsTheContract(RunsCommands):
    def make(self) -> Harness:
        return CommandHarness(CommandParameters(command="./agent", upload=Path(__file__)))

    def answer(self, request: object) -> str:
        return ""


async def test_the_command_finds_the_instruction_in_a_file(tmp_path: Path) -> None:
    ran = Ran(tmp_path)
    result = await ran.run()

    assert ran.sandbox is not None
    assert ran.sandbox.files[INSTRUCTION] == b"Solve <task-1>."
    assert f'AGENTCOMPASS_INSTRUCTION_FILE="${{AGENTCOMPASS_ROOT:-}}{INSTRUCTION}"' in (ran.commands[0].script or "")
    assert (result.exit_reason, result.extra) == (ExitReason.FINISHED, {"exit_code": 0})


async def test_a_program_with_arguments_is_quoted(tmp_path: Path) -> None:
    ran = Ran(tmp_path, command=["my agent", "--task", "it's $HOME"])
    await ran.run()

    assert (ran.commands[0].script or "").endswith("\nexec 'my agent' --task 'it'\"'\"'s $HOME'")


async def test_a_failing_agent_is_a_result_and_its_output_is_kept(tmp_path: Path) -> None:
    ran = Ran(tmp_path, ended(2, "Traceback\n"))
    result = await ran.run()

    assert (result.exit_reason, result.extra["exit_code"]) == (ExitReason.AGENT_ERROR, 2)
    assert (tmp_path / "agent.txt").read_text() == "Traceback\n"
    step = ran.recording.steps[0]
    assert (step.user_content, step.assistant_content.content) == ("Solve <task-1>.", "./agent")
    assert step.observation == "Traceback\n[exit code 2 after 1.5 s]"


async def test_the_step_keeps_the_end_of_a_long_output(tmp_path: Path) -> None:
    ran = Ran(tmp_path, ended(stdout="x" * 100_000 + "the end\n"))
    await ran.run()
    observation = ran.recording.steps[0].observation or ""

    assert len(observation) < 11_000
    assert "the end\n" in observation
    assert len((tmp_path / "agent.txt").read_text()) == 100_008


async def test_an_agent_cut_at_the_limit_is_a_result_with_its_partial_output(tmp_path: Path) -> None:
    ran = Ran(tmp_path, ended(None, "half\n", timed_out=True))
    ran.recording.context.time_limit_s = 100
    result = await ran.run()

    assert result.exit_reason is ExitReason.TIME_LIMIT
    assert (tmp_path / "agent.txt").read_text() == "half\n"
    assert 97 < ran.commands[0].timeout_s <= 98


@pytest.mark.parametrize(("left", "answer"), [(b"42\n", "42\n"), (None, ""), (b"\xff", "\ufffd")])
async def test_the_answer_file_is_the_final_answer(left: bytes | None, answer: str, tmp_path: Path) -> None:
    result = await Ran(tmp_path, answer=left).run()

    assert result.final_answer == answer


async def test_an_answer_that_is_no_file_is_no_answer(tmp_path: Path) -> None:
    ran = Ran(tmp_path)

    def make_folder(sandbox: FakeSandbox, command: Command) -> ExecResult:
        sandbox.directories.add(ANSWER)
        return ended()

    async with HarnessContract().sandbox(FakeEnvironment(exec_script=make_folder), "task-1") as sandbox:
        result = await CommandHarness(ran.parameters).run(ran.task, sandbox, None, ran.recording.context)

    assert result.final_answer == ""
    assert "no regular file" in str(result.extra["answer_error"])


async def test_files_are_uploaded_and_the_installation_runs_first(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "agent.py").write_text("print()")
    ran = Ran(tmp_path, ended(), ended(), upload=tmp_path / "code", install="pip install .", install_timeout_s=7)
    ran.task = ran.task.model_copy(update={"agent_user": "me"})
    await ran.run()
    install, command = ran.commands

    assert ran.sandbox is not None
    assert ran.sandbox.files[PurePosixPath("/opt/agent/agent.py")] == b"print()"
    assert (install.user, command.user) == ("root", "me")
    assert install.timeout_s == 7
    assert (install.script or "").endswith("pip install .")


async def test_a_failed_installation_is_an_error_with_its_output(tmp_path: Path) -> None:
    ran = Ran(tmp_path, ended(1, "no such package\n"), install="pip install nothing")
    with pytest.raises(HarnessFailed, match=r"install failed \(exit code 1 after 1.5 s\): 'no such package'"):
        await ran.run()

    assert (tmp_path / "install.txt").read_text() == "no such package\n"


async def test_an_installation_that_takes_too_long_names_its_limit(tmp_path: Path) -> None:
    ran = Ran(tmp_path, ended(None, timed_out=True), install="sleep 9", install_timeout_s=5)
    with pytest.raises(HarnessFailed, match=r"time limit reached after 1.5 s, install_timeout_s: 5 s"):
        await ran.run()


async def test_variables_are_the_benchmarks_then_the_users(tmp_path: Path) -> None:
    ran = Ran(tmp_path, env={"B": "user"})
    ran.task = ran.task.model_copy(
        update={"agent_env": {"A": "task", "B": "task"}, "workspace_root": PurePosixPath("/w")}
    )
    await ran.run()

    assert ran.commands[0].env == {"A": "task", "B": "user"}
    assert ran.commands[0].cwd == PurePosixPath("/w")


@pytest.mark.parametrize(("protocol", "vendor"), [("openai-chat", "OPENAI"), ("anthropic", "ANTHROPIC")])
async def test_the_model_is_exposed_only_where_asked_for_and_its_key_masked(
    protocol: str, vendor: str, tmp_path: Path
) -> None:
    endpoint = ModelEndpoint(
        name="org/m:1", base_url="http://host/v1", api_key=SecretStr("sk-very-secret"), protocol=protocol
    )
    hidden, exposed = Ran(tmp_path), Ran(tmp_path, ended(stdout="sk-very-secret"), expose_model=True)
    hidden.recording.context.endpoint = exposed.recording.context.endpoint = endpoint
    await hidden.run()
    await exposed.run()

    assert hidden.commands[0].env == {}
    assert exposed.commands[0].env == {
        "AGENTCOMPASS_MODEL": "org/m:1",
        f"{vendor}_BASE_URL": "http://host/v1",
        f"{vendor}_API_KEY": "sk-very-secret",
    }
    assert (tmp_path / "agent.txt").read_text() == "***"
    assert "sk-very-secret" not in exposed.recording.text


@pytest.mark.parametrize("exposed", [True, False])
def test_it_says_whether_it_exposes_the_model(exposed: bool) -> None:
    harness = CommandHarness(CommandParameters(command="x", expose_model=exposed))

    assert harness.exposes_model() is exposed


async def test_a_key_among_the_users_variables_is_masked_in_logs_and_steps(tmp_path: Path) -> None:
    printed = ended(stdout="my key is key-0123456789")
    ran = Ran(tmp_path, printed, printed, install="true", env={"MY_AGENT_API_KEY": "key-0123456789"})
    await ran.run()

    assert ran.commands[0].env == {"MY_AGENT_API_KEY": "key-0123456789"}
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "agent.txt": "my key is ***",
        "install.txt": "my key is ***",
    }
    assert "key-0123456789" not in ran.recording.text


async def test_on_this_machine_the_agent_reads_its_task_and_answers(tmp_path: Path) -> None:
    (tmp_path / "agent.sh").write_text(
        'sed s/Solve/Solved/ "$AGENTCOMPASS_INSTRUCTION_FILE" > "$AGENTCOMPASS_ANSWER_FILE"\n'
    )
    parameters = CommandParameters(
        command='. "$AGENTCOMPASS_ROOT/opt/agent/agent.sh"; echo out; echo err >&2; echo "$INSTALLED"; exit 3',
        upload=tmp_path / "agent.sh",
        upload_target=PurePosixPath("/opt/agent/agent.sh"),
        install="echo installing",
        env={"INSTALLED": "yes"},
    )
    recording = Recording(tmp_path)
    environment = HostProcessEnvironment(HostProcessParameters(root_folder=tmp_path / "sandboxes"))
    async with environment.open(SandboxSpec(), an_owner()) as sandbox:
        result = await CommandHarness(parameters).run(prepared_task(), sandbox, None, recording.context)
    await environment.close()

    assert (result.exit_reason, result.final_answer) == (ExitReason.AGENT_ERROR, "Solved <task-1>.")
    assert (tmp_path / "agent.txt").read_text() == "out\nerr\nyes\n"
    assert (tmp_path / "install.txt").read_text() == "installing\n"


def test_without_a_command_it_is_refused() -> None:
    with pytest.raises(ConfigError, match="no command to run"):
        CommandHarness(CommandParameters())


def test_a_missing_upload_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing to upload"):
        CommandHarness(CommandParameters(command="x", upload=tmp_path / "missing"))


def uploaded(path: Path) -> object:
    return CommandHarness(CommandParameters(command="agent", upload=path)).files()["upload_sha256"]


def an_agent(folder: Path) -> Path:
    (folder / "lib").mkdir(parents=True)
    (folder / "lib" / "agent.py").write_bytes(b"print(1)")
    (folder / "lib" / "agent.py").chmod(0o644)
    (folder / "link").symlink_to("lib")
    return folder


CHANGES: dict[str, Callable[[Path], object]] = {
    "bytes": lambda agent: (agent / "lib" / "agent.py").write_bytes(b"print(2)"),
    "mode": lambda agent: (agent / "lib" / "agent.py").chmod(0o755),
    "name": lambda agent: (agent / "lib").rename(agent / "lob"),
    "link": lambda agent: ((agent / "link").unlink(), (agent / "link").symlink_to("lob")),
    "empty folder": lambda agent: (agent / "empty").mkdir(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_an_uploaded_folder_is_told_by_its_content(change: Callable[[Path], object], tmp_path: Path) -> None:
    one, other = an_agent(tmp_path / "one"), an_agent(tmp_path / "other")
    same = uploaded(one) == uploaded(other)
    change(other)

    assert same
    assert uploaded(one) != uploaded(other)


def test_an_uploaded_file_is_told_by_its_content_and_no_upload_by_nothing(tmp_path: Path) -> None:
    for name, content in (("a", "x"), ("b", "x"), ("c", "y")):
        (tmp_path / name).write_text(content)

    assert uploaded(tmp_path / "a") == uploaded(tmp_path / "b") != uploaded(tmp_path / "c")
    assert CommandHarness(CommandParameters(command="agent")).files() == {}


def test_an_upload_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "agent").write_text("x")
    harness = CommandHarness(CommandParameters(command="agent", upload=tmp_path / "agent"))
    (tmp_path / "agent").unlink()

    with pytest.raises(ConfigError, match="the upload cannot be read"):
        harness.files()


def test_an_upload_of_a_user_who_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="nothing to upload at '~nosuch/agent'"):
        CommandHarness(CommandParameters(command="agent", upload=Path("~nosuch/agent")))
