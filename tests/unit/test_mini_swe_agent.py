"""mini_swe_agent: the package's own agent, driven by scripted replies."""

import asyncio
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from agentcompass.adapters.environments.host_process.environment import HostProcessEnvironment, HostProcessParameters
from agentcompass.adapters.harnesses.mini_swe_agent.config import AgentSection, MiniSweAgentParameters
from agentcompass.adapters.harnesses.mini_swe_agent.harness import CONFIG_KEY, TRAJECTORY, MiniSweAgentHarness
from agentcompass.adapters.harnesses.mini_swe_agent.submission import MARKER
from agentcompass.domain.attempt import ExitReason, HarnessResult
from agentcompass.domain.errors import ConfigError, ContextExceeded, HarnessFailed, ModelBusy, SandboxLost
from agentcompass.domain.model import ModelEndpoint, ModelRequest, ModelResponse, Price, ToolCall, Usage
from agentcompass.domain.ports import Harness
from agentcompass.domain.sandbox import Command, ExecResult, SandboxSpec
from agentcompass.testing.environment import an_owner
from agentcompass.testing.fakes import FakeEnvironment, FakeModel, FakeSandbox, reply
from agentcompass.testing.fakes.model import FakeModelParameters, Reply
from agentcompass.testing.fakes.sandbox import ExecScript
from agentcompass.testing.harness import AsksModel, HarnessContract, Recording, RunsCommands, prepared_task
from pydantic import SecretStr, ValidationError
from structlog.contextvars import bound_contextvars, get_contextvars

SUBMIT = f"echo {MARKER}"
PRICE = Price(input=1_000_000, output=0)


def bash_call(command: str, call_id: str = "call") -> ToolCall:
    return ToolCall(id=call_id, name="bash", arguments=json.dumps({"command": command}))


def says(
    *commands: str, text: str = "", finish_reason: str = "tool_calls", usage: Usage | None = None
) -> ModelResponse:
    calls = tuple(bash_call(command, f"call-{number}") for number, command in enumerate(commands, 1))
    response = reply(text, *calls).model_copy(update={"finish_reason": finish_reason, "latency_s": 0.25})
    return response if usage is None else response.model_copy(update={"usage": usage})


def fenced(command: str, finish_reason: str = "stop") -> ModelResponse:
    text = f"I think.\n\n```mswea_bash_command\n{command}\n```"
    return reply(text).model_copy(update={"finish_reason": finish_reason})


def printed(stdout: str = "", exit_code: int | None = 0, **fields: Any) -> ExecResult:
    return ExecResult.model_validate(
        {"exit_code": exit_code, "stdout": stdout, "stderr": "", "duration_s": 1, **fields}
    )


class Shell:
    """Runs the sandbox's commands with the bash of this machine; absolute paths are those of a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.commands: list[Command] = []

    async def __call__(self, sandbox: FakeSandbox, command: Command) -> ExecResult:
        self.commands.append(command)
        environment = {"PATH": os.environ["PATH"], "AGENTCOMPASS_ROOT": str(self.root), **command.env}
        argv = ("bash", "-c", command.script) if command.script is not None else command.argv
        process = await asyncio.create_subprocess_exec(
            *argv,
            cwd=self.root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            out, err = await process.communicate()
        except asyncio.CancelledError:
            os.killpg(process.pid, signal.SIGKILL)
            await process.communicate()
            raise
        finally:
            for path in (self.root / "tmp").glob("*"):
                sandbox.files[PurePosixPath("/tmp") / path.name] = path.read_bytes()
        kept, truncated = self._cut(out, command.max_output_bytes)
        return ExecResult(
            exit_code=process.returncode,
            stdout=kept.decode(errors="replace"),
            stderr=err.decode(errors="replace"),
            stdout_bytes=len(out),
            stderr_bytes=len(err),
            truncated=truncated,
            duration_s=0.5,
        )

    @staticmethod
    def _cut(data: bytes, limit: int) -> tuple[bytes, bool]:
        return (data, False) if len(data) <= limit else (data[: limit // 2] + data[-(limit // 2) :], True)


class Driven:
    """One attempt with scripted replies and a scripted, or real, shell."""

    def __init__(
        self, tmp_path: Path, *replies: Reply, exec_script: ExecScript | None = None, **parameters: Any
    ) -> None:
        self.recording = Recording(tmp_path)
        self.shell = Shell(tmp_path)
        self.model = FakeModel(replies=replies)
        self.environment = FakeEnvironment(exec_script=exec_script or self.shell)
        parameters["env"] = {"BASH_ENV": "", **parameters.get("env", {})}  # not the start-up file of this machine
        self.parameters = MiniSweAgentParameters.model_validate({"config": "swebench", **parameters})
        self.task = prepared_task()

    async def run(self) -> HarnessResult:
        harness = MiniSweAgentHarness(self.parameters)
        async with HarnessContract().sandbox(self.environment, "task-1") as sandbox:
            return await harness.run(self.task, sandbox, self.model, self.recording.context)

    @property
    def shown(self) -> list[str]:
        """What the model was shown after each of its replies."""
        return [request.messages[-1].content for request in list(self.model.recent)[1:]]

    @property
    def observations(self) -> list[str | None]:
        return [step.observation for step in self.recording.steps]

    @property
    def trajectory(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads((self.recording.context.log_dir / TRAJECTORY).read_text())
        return data


class TestMiniSweAgentKeepsTheContract(RunsCommands, AsksModel):
    def make(self) -> Harness:
        return MiniSweAgentHarness(MiniSweAgentParameters())

    def answer(self, request: ModelRequest) -> Reply:
        return says("ls" if len(request.messages) == 2 else SUBMIT)

    def print_something(self, sandbox: FakeSandbox, command: Command) -> ExecResult:
        result = super().print_something(sandbox, command)
        submits = MARKER in (command.script or "")
        return result.model_copy(update={"stdout": f"{MARKER}\n{result.stdout}"}) if submits else result


async def test_commands_run_and_the_submission_ends_the_attempt(tmp_path: Path) -> None:
    driven = Driven(tmp_path, says("echo out; echo err >&2; echo out2"), says(f"{SUBMIT} && echo answer"))
    result = await driven.run()

    assert (result.exit_reason, result.submission) == (ExitReason.SUBMITTED, b"answer\n")
    assert driven.shown == ["<returncode>0</returncode>\n<output>\nout\nerr\nout2\n</output>"]
    assert result.extra["exit_status"] == "Submitted"
    assert result.extra["n_calls"] == 2
    assert str(result.extra["version"]).startswith("2.")


async def test_a_failed_command_is_an_observation(tmp_path: Path) -> None:
    driven = Driven(tmp_path, says("echo no; exit 3"), says(SUBMIT))
    await driven.run()

    assert driven.shown == ["<returncode>3</returncode>\n<output>\nno\n</output>"]


async def test_the_steps_say_what_was_asked_said_and_seen(tmp_path: Path) -> None:
    thinking = says("echo one", text="First.")
    thinking = thinking.model_copy(
        update={"message": thinking.message.model_copy(update={"reasoning_content": "Hm."})}, deep=True
    )
    driven = Driven(tmp_path, thinking, says(f"{SUBMIT}; echo two"))
    await driven.run()
    first, last = driven.recording.steps

    assert "solve programming tasks" in (first.system_prompt or "")
    assert "Solve <task-1>." in (first.user_content or "")
    assert first.assistant_content.content == "First."
    assert first.assistant_content.reasoning_content == "Hm."
    assert first.assistant_content.tool_calls == (bash_call("echo one", "call-1"),)
    assert first.observation == driven.shown[0]
    assert (first.metric.prompt_tokens_len, first.metric.completion_tokens_len) == (10, 5)
    assert first.metric.llm_infer_ms == 250
    assert (first.metric.env_action_ms or 0) > 0
    assert (last.step_id, last.system_prompt, last.user_content) == (2, None, None)
    assert last.observation == f"<returncode>0</returncode>\n{MARKER}\ntwo\n"


async def test_the_whole_conversation_goes_to_the_model_each_time(tmp_path: Path) -> None:
    driven = Driven(tmp_path, says("echo one", "echo two", text="Both."), says(SUBMIT))
    await driven.run()
    messages = driven.model.recent[1].messages

    assert [message.role for message in messages] == ["system", "user", "assistant", "tool", "tool"]
    assert messages[2] == says("echo one", "echo two", text="Both.").message
    assert [message.tool_call_id for message in messages[3:]] == ["call-1", "call-2"]
    assert [tool.name for tool in driven.model.recent[0].tools] == ["bash"]


async def test_actions_of_one_message_run_in_order_and_all_are_recorded(tmp_path: Path) -> None:
    driven = Driven(tmp_path, says("echo 1 >> log", "echo 2 >> log; cat log", f"{SUBMIT}; cat log"))
    result = await driven.run()

    assert result.submission == b"1\n2\n"
    assert driven.observations == [
        f"<returncode>0</returncode>\n<returncode>0</returncode>\n1\n2\n\n<returncode>0</returncode>\n{MARKER}\n1\n2\n"
    ]


@pytest.mark.parametrize(
    "answer",
    [
        b"a patch\n  \n\n",
        b"no newline at the end",
        b"",
        b"\n\nblank first",
        b"cr\r\nlf\n",
        b"\xff\xfe\x00 binary \n",
        b"x" * 9000,
    ],
)
async def test_the_submission_is_taken_byte_for_byte(answer: bytes, tmp_path: Path) -> None:
    (tmp_path / "patch.txt").write_bytes(answer)
    result = await Driven(tmp_path, says(f"{SUBMIT} && cat patch.txt"), max_output_bytes=1000).run()

    assert result.exit_reason is ExitReason.SUBMITTED
    assert result.submission == answer


@pytest.mark.parametrize(
    "command",
    [
        f"echo; echo; {SUBMIT} && cat patch.txt",
        f"bash -c 'echo welcome to this shell; echo again' && {SUBMIT} && cat patch.txt",
        f"trap 'true' EXIT; {SUBMIT} && cat patch.txt",
        f"printf '{MARKER}\\r\\n'; exec cat patch.txt",
        f"{SUBMIT}; cat patch.txt >&2",
        f"cat <<'EOF'\n{MARKER}\nEOF\ncat patch.txt",
        f"{SUBMIT}; cat patch.txt; sleep 30 & exit 0",
    ],
    ids=["blank lines", "noise", "own trap", "exec", "stderr", "heredoc", "daemon"],
)
async def test_a_submission_is_seen_however_it_is_printed(command: str, tmp_path: Path) -> None:
    (tmp_path / "patch.txt").write_bytes(b"patch\n")
    driven = Driven(tmp_path, says(command), says("exit 1"), step_limit=2)
    if "sleep" in command:
        driven.shell = Shell(tmp_path)
        driven.environment.exec_script = detached(driven.shell)
    result = await driven.run()

    assert result.submission == b"patch\n"


def detached(shell: Shell) -> ExecScript:
    """A shell whose commands do not hold the call open for a daemon, as a sandbox promises."""

    async def run(sandbox: FakeSandbox, command: Command) -> ExecResult:
        script = (command.script or "").replace("sleep 30 &", "sleep 0.2 &")
        return await shell(sandbox, command.model_copy(update={"script": script}))

    return run


async def test_noise_of_the_shells_start_does_not_hide_a_submission(tmp_path: Path) -> None:
    (tmp_path / "rc").write_text("\n".join(f"echo noise {number}" for number in range(20)) + "\necho warn >&2\n")
    driven = Driven(tmp_path, says(f"{SUBMIT}; echo answer"), env={"BASH_ENV": str(tmp_path / "rc")})
    result = await driven.run()

    assert result.submission == b"answer\n"


@pytest.mark.parametrize(
    "command",
    [f"{SUBMIT}; exit 1", f"echo not {MARKER}", f"seq 20; {SUBMIT}", f"grep -h {MARKER} script.sh"],
    ids=["failed", "within a line", "after much else", "quoted"],
)
async def test_what_is_no_submission_is_an_observation(command: str, tmp_path: Path) -> None:
    (tmp_path / "script.sh").write_text(f"{SUBMIT} && cat patch.txt\n")
    driven = Driven(tmp_path, says(command), step_limit=1)
    result = await driven.run()

    assert (result.exit_reason, result.submission) == (ExitReason.STEP_LIMIT, None)
    assert MARKER in (driven.observations[0] or "")


async def test_a_script_that_prints_the_marker_submits_too(tmp_path: Path) -> None:
    (tmp_path / "submit.sh").write_text(f"{SUBMIT}; echo answer\n")
    result = await Driven(tmp_path, says("bash submit.sh")).run()

    assert result.submission == b"answer\n"


async def test_a_submission_that_cannot_be_taken_whole_is_asked_for_again(tmp_path: Path) -> None:
    (tmp_path / "submit.sh").write_text(f"{SUBMIT}; printf '\\377'\n")
    driven = Driven(tmp_path, says("bash submit.sh"), says(f"{SUBMIT}; printf '\\377'"))
    result = await driven.run()

    assert "Not submitted" in driven.shown[0]
    assert result.submission == b"\xff"


async def test_a_submission_costs_one_call_of_the_sandbox(tmp_path: Path) -> None:
    driven = Driven(tmp_path, says(f"{SUBMIT}; echo answer"))
    await driven.run()

    assert driven.environment.recent[0].execs == 1


async def test_a_timed_out_command_names_its_limit_and_shows_what_it_printed(tmp_path: Path) -> None:
    result = printed("partial\n", None, timed_out=True, duration_s=30.2)
    driven = Driven(tmp_path, says("slow"), step_limit=1, timeout=30, exec_script=lambda sandbox, command: result)
    await driven.run()

    assert driven.observations == [
        "<exception>The command was killed: command limit 30 s reached after 30.2 s</exception>\n"
        "<returncode>-1</returncode>\n<output>\npartial\n</output>"
    ]


async def test_a_submission_that_times_out_shows_what_it_printed(tmp_path: Path) -> None:
    driven = Driven(tmp_path, says(f"{SUBMIT}; echo partial; sleep 60"), step_limit=1, timeout=1.5)
    result = await driven.run()

    assert result.submission is None
    assert f"{MARKER}\npartial" in (driven.observations[0] or "")


async def test_long_output_is_cut_and_says_so(tmp_path: Path) -> None:
    driven = Driven(tmp_path, says("seq 100000"), step_limit=1, max_output_bytes=50_000)
    await driven.run()
    observation = driven.observations[0] or ""

    assert "[output truncated: of 588895 bytes only the first and last are shown]\n1\n2\n" in observation
    assert "characters elided" in observation
    assert "99999\n100000\n" in observation
    assert len(observation) < 12_000


@pytest.mark.parametrize("command", ["echo \0", "echo \ud800"], ids=["NUL", "surrogate"])
async def test_a_command_that_no_shell_can_be_given_is_an_observation(command: str, tmp_path: Path) -> None:
    driven = Driven(tmp_path, says(command), step_limit=1)
    await driven.run()

    assert driven.environment.recent[0].execs == 0
    assert "The command was not run" in (driven.observations[0] or "")


@pytest.mark.parametrize(
    ("unusable", "why"),
    [
        (says(text="I am done.", finish_reason="stop"), "No tool calls found"),
        (reply("", ToolCall(id="1", name="python", arguments="{}")), "Unknown tool 'python'"),
        (reply("", ToolCall(id="1", name="bash", arguments='{"command": "l')), "Error parsing tool call arguments"),
        (reply("", ToolCall(id="1", name="bash", arguments='{"command": ["ls"]}')), "Missing 'command' argument"),
    ],
    ids=["no call", "other tool", "broken JSON", "no string"],
)
async def test_an_unusable_reply_is_explained_and_recorded(unusable: ModelResponse, why: str, tmp_path: Path) -> None:
    driven = Driven(tmp_path, unusable, says(SUBMIT))
    result = await driven.run()

    assert result.exit_reason is ExitReason.SUBMITTED
    assert why in driven.shown[0]
    assert driven.observations[0] == driven.shown[0]
    assert driven.recording.steps[0].assistant_content.tool_calls == unusable.message.tool_calls
    assert [message.role for message in driven.model.recent[1].messages] == ["system", "user", "user"]


async def test_three_unusable_replies_in_a_row_end_the_attempt(tmp_path: Path) -> None:
    unusable = reply("no command")
    driven = Driven(tmp_path, unusable, unusable, says("true"), unusable, unusable, unusable)
    result = await driven.run()

    assert result.exit_reason is ExitReason.FORMAT_ERRORS
    assert [step.step_id for step in driven.recording.steps] == [1, 2, 3, 4, 5, 6]


async def test_a_cut_reply_is_told_as_such_and_three_end_as_output_length(tmp_path: Path) -> None:
    cut = reply("").model_copy(update={"finish_reason": "length"})
    driven = Driven(tmp_path, cut, cut, cut)
    result = await driven.run()

    assert result.exit_reason is ExitReason.OUTPUT_LENGTH
    assert all("reached the output token limit" in shown for shown in driven.shown)
    assert not any("MUST include at least one tool call" in (seen or "") for seen in driven.observations)


async def test_a_template_that_knows_no_cut_replies_is_overruled(tmp_path: Path) -> None:
    cut = reply("").model_copy(update={"finish_reason": "length"})
    driven = Driven(tmp_path, cut, says(SUBMIT), format_error_template="You forgot the tool call.")
    await driven.run()

    assert "output token limit" in driven.shown[0]
    assert "forgot" not in driven.shown[0]


async def test_in_text_mode_one_fenced_command_is_the_action(tmp_path: Path) -> None:
    driven = Driven(tmp_path, fenced("echo seen"), fenced(f"{SUBMIT}; echo answer"), config="mini", action_mode="text")
    driven.parameters = MiniSweAgentParameters(action_mode="text")
    result = await driven.run()

    assert result.extra["config"] == "mini_textbased"
    assert result.submission == b"answer\n"
    assert driven.model.recent[0].tools == ()
    assert [message.role for message in driven.model.recent[1].messages] == ["system", "user", "assistant", "user"]
    assert "seen" in driven.shown[0]


@pytest.mark.parametrize("config", ["swebench_backticks", "mini_textbased", "default", "swebench_xml"])
def test_text_configs_are_known_as_such(config: str) -> None:
    harness = MiniSweAgentHarness(MiniSweAgentParameters(config=config))

    assert harness._settings(None).text_mode


async def test_in_text_mode_a_cut_reply_is_never_acted_on(tmp_path: Path) -> None:
    cut = fenced(f"{SUBMIT}; echo half", finish_reason="length")
    driven = Driven(tmp_path, cut, fenced(f"{SUBMIT}; echo whole"), config="swebench_backticks")
    result = await driven.run()

    assert result.submission == b"whole\n"
    assert "output token limit" in driven.shown[0]


async def test_the_step_limit_ends_the_attempt(tmp_path: Path) -> None:
    driven = Driven(tmp_path, says("true"), says("true"), says("true"), step_limit=2)
    result = await driven.run()

    assert result.exit_reason is ExitReason.STEP_LIMIT
    assert (driven.model.calls, len(driven.recording.steps)) == (2, 2)


async def test_the_cost_limit_ends_the_attempt(tmp_path: Path) -> None:
    usage = Usage(input_tokens=2, output_tokens=0)
    driven = Driven(tmp_path, says("true", usage=usage), reply("none", usage=usage), says("true"), cost_limit=4)
    driven.model.parameters = FakeModelParameters(price=PRICE)
    result = await driven.run()

    assert result.exit_reason is ExitReason.COST_LIMIT
    assert driven.model.calls == 2


async def test_the_configs_own_cost_limit_holds_only_where_the_price_is_known(tmp_path: Path) -> None:
    dear = Usage(input_tokens=100, output_tokens=0)
    priced = Driven(tmp_path, says("true", usage=dear), says(SUBMIT))
    priced.model.parameters = FakeModelParameters(price=PRICE)
    unknown = Driven(tmp_path, says("true", usage=dear.model_copy(update={"cost_usd": 100.0})), says(SUBMIT))

    assert (await priced.run()).exit_reason is ExitReason.COST_LIMIT
    assert (await unknown.run()).exit_reason is ExitReason.SUBMITTED


async def test_a_cost_limit_without_a_price_is_refused(tmp_path: Path) -> None:
    driven = Driven(tmp_path, says(SUBMIT), cost_limit=1)
    with pytest.raises(ConfigError, match="cost_limit 1 cannot be watched"):
        await driven.run()

    assert driven.model.calls == 0


@pytest.mark.parametrize("limit", [{"cost_limit": 1}, {"cost_limit": 0}, {}])
async def test_a_limit_set_on_a_cost_that_the_endpoint_does_not_tell_ends_the_attempt_as_an_error(
    tmp_path: Path, limit: dict[str, float]
) -> None:
    driven = Driven(tmp_path, says("true", usage=Usage()), says(SUBMIT, usage=Usage()), **limit)
    driven.model.parameters = FakeModelParameters(price=PRICE)
    if limit.get("cost_limit"):
        with pytest.raises(HarnessFailed, match="cost_limit 1 cannot be watched: the endpoint does not say"):
            await driven.run()
    else:
        await driven.run()

    assert driven.model.calls == (1 if limit.get("cost_limit") else 2)


async def test_a_cost_limit_of_zero_is_no_limit_and_needs_no_price(tmp_path: Path) -> None:
    result = await Driven(tmp_path, says(SUBMIT), cost_limit=0).run()

    assert result.exit_reason is ExitReason.SUBMITTED


async def test_a_full_context_is_a_result(tmp_path: Path) -> None:
    driven = Driven(tmp_path, says("true"), ContextExceeded("too long"))
    result = await driven.run()

    assert result.exit_reason is ExitReason.CONTEXT_EXCEEDED
    assert len(driven.recording.steps) == 1
    assert driven.trajectory["info"]["exit_status"] == "ContextExceeded"


async def test_a_busy_model_is_an_error_and_the_steps_before_it_are_kept(tmp_path: Path) -> None:
    driven = Driven(tmp_path, says("echo one"), ModelBusy("429"))
    with pytest.raises(ModelBusy):
        await driven.run()

    assert len(driven.recording.steps) == 1
    assert driven.trajectory["info"]["exit_status"] == "ModelBusy"


async def test_the_reply_before_a_lost_sandbox_is_recorded(tmp_path: Path) -> None:
    def dies(sandbox: FakeSandbox, command: Command) -> ExecResult:
        if "two" in (command.script or ""):
            raise SandboxLost("gone")
        return printed("first\n")

    driven = Driven(tmp_path, says("echo one", "echo two"), exec_script=dies)
    with pytest.raises(SandboxLost):
        await driven.run()

    assert driven.observations == ["<returncode>0</returncode>\nfirst\n"]


async def cancel_when(entered: asyncio.Event, running: "asyncio.Task[HarnessResult]") -> None:
    await entered.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_cancelled_in_a_command_the_command_dies_and_its_reply_is_recorded(tmp_path: Path) -> None:
    entered, ended = asyncio.Event(), asyncio.Event()

    async def hangs(sandbox: FakeSandbox, command: Command) -> ExecResult:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return printed()

    driven = Driven(tmp_path, says("sleep 1000"), exec_script=hangs)
    await cancel_when(entered, asyncio.create_task(driven.run()))

    assert ended.is_set()
    assert [step.assistant_content.tool_calls[0].id for step in driven.recording.steps] == ["call-1"]
    assert not any(thread.name.startswith("mini-swe-agent") for thread in threading.enumerate())
    assert driven.trajectory["info"]["exit_status"] == "CallCut"


async def test_cancelled_in_a_model_call_no_other_call_follows(tmp_path: Path) -> None:
    entered = asyncio.Event()

    async def hangs(request: ModelRequest) -> ModelResponse:
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return says("echo still going")  # a client that swallows the cancellation
        return says(SUBMIT)

    driven = Driven(tmp_path)
    driven.model.replies = hangs
    await cancel_when(entered, asyncio.create_task(driven.run()))

    assert driven.model.calls == 1
    assert driven.environment.recent[0].execs == 0


async def test_a_last_step_that_cannot_be_recorded_in_time_does_not_hide_the_cancellation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentcompass.adapters.harnesses.mini_swe_agent.harness.FLUSH_LIMIT_S", 0.01)
    entered = asyncio.Event()

    async def never(*_: object) -> Any:
        entered.set()
        await asyncio.Event().wait()

    driven = Driven(tmp_path, says("sleep 1000"), exec_script=never)
    monkeypatch.setattr(driven.recording.context, "record_step", never)

    await cancel_when(entered, asyncio.create_task(driven.run()))


async def test_a_call_cancelled_by_somebody_else_is_the_harnesss_failure(tmp_path: Path) -> None:
    async def cancels_itself(request: ModelRequest) -> ModelResponse:
        raise asyncio.CancelledError

    driven = Driven(tmp_path)
    driven.model.replies = cancels_itself
    with pytest.raises(HarnessFailed, match="was cancelled from outside"):
        await driven.run()


async def test_the_log_context_of_the_attempt_reaches_its_ports(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []

    def look(sandbox: FakeSandbox, command: Command) -> ExecResult:
        seen.append(get_contextvars())
        return printed(f"{MARKER}\n")

    with bound_contextvars(task_id="task-1"):
        await Driven(tmp_path, says(SUBMIT), exec_script=look).run()

    assert seen == [{"task_id": "task-1"}]


async def test_the_prompt_names_the_sandboxs_machine_not_this_one(tmp_path: Path) -> None:
    def is_uname(sandbox: FakeSandbox, command: Command) -> ExecResult:
        if "uname" in (command.script or ""):
            return printed("motd\nPlan9\nbox\n4.2\n#1 SMP\nvax\n")
        return printed(f"{MARKER}\n")

    driven = Driven(tmp_path, says(SUBMIT), exec_script=is_uname, config="mini")
    await driven.run()

    assert "Plan9 4.2 #1 SMP vax" in (driven.recording.steps[0].user_content or "")
    assert driven.environment.recent[0].execs == 2


async def test_a_sandbox_without_uname_is_no_obstacle(tmp_path: Path) -> None:
    def no_uname(sandbox: FakeSandbox, command: Command) -> ExecResult:
        return printed("", 127) if "uname" in (command.script or "") else printed(f"{MARKER}\n")

    driven = Driven(tmp_path, says(SUBMIT), exec_script=no_uname, config="mini")
    result = await driven.run()

    assert result.exit_reason is ExitReason.SUBMITTED


async def test_commands_run_as_the_agent_in_the_workspace_with_its_variables(tmp_path: Path) -> None:
    driven = Driven(tmp_path, says(SUBMIT), env={"LESS": "mine", "C": "user"}, timeout=7)
    commands: list[Command] = []

    def keep(sandbox: FakeSandbox, command: Command) -> ExecResult:
        commands.append(command)
        return printed(f"{MARKER}\n")

    driven.environment.exec_script = keep
    fields = {"agent_user": "me", "agent_env": {"B": "b", "C": "c"}, "workspace_root": PurePosixPath("/testbed")}
    driven.task = driven.task.model_copy(update=fields)
    await driven.run()
    command = commands[0]

    assert (command.user, command.cwd, command.timeout_s) == ("me", PurePosixPath("/testbed"), 7)
    assert command.env["PAGER"] == "cat"
    assert (command.env["LESS"], command.env["B"], command.env["C"]) == ("mine", "b", "user")


def test_swebench_commands_get_the_start_up_file_that_its_images_need() -> None:
    assert MiniSweAgentHarness(MiniSweAgentParameters(config="swebench"))._settings(None).env["BASH_ENV"]


async def test_on_this_machine_it_works_and_submits_byte_for_byte(tmp_path: Path) -> None:
    recording = Recording(tmp_path)
    replies = [
        says("printf 'a\\377 \\n\\n' > patch.txt; seq 9 | tail -1; (sleep 60 &)", "echo late; sleep 60"),
        says(f"{SUBMIT} && cat patch.txt"),
    ]
    model = FakeModel(replies=replies)
    environment = HostProcessEnvironment(HostProcessParameters(root_folder=tmp_path / "sandboxes"))
    async with environment.open(SandboxSpec(), an_owner()) as sandbox:
        harness = MiniSweAgentHarness(MiniSweAgentParameters(timeout=1))
        result = await harness.run(prepared_task(), sandbox, model, recording.context)
    await environment.close()
    first, second = (json.loads(message.content) for message in model.recent[1].messages[3:])

    assert (result.exit_reason, result.submission) == (ExitReason.SUBMITTED, b"a\xff \n\n")
    assert first == {"returncode": 0, "output": "9\n"}
    assert (second["returncode"], second["output"]) == (-1, "late\n")
    assert "command limit 1 s" in second["exception_info"]
    assert "Linux" in (recording.steps[0].user_content or "")


async def test_another_interpreter_is_given_the_command_as_it_is(tmp_path: Path) -> None:
    driven = Driven(tmp_path, says("print(6 * 7)"), says(f"print('{MARKER}')"), interpreter=[sys.executable, "-c"])
    result = await driven.run()

    assert "42" in driven.shown[0]
    assert result.exit_reason is ExitReason.SUBMITTED


async def test_the_packages_own_trajectory_is_saved_without_the_key(tmp_path: Path) -> None:
    driven = Driven(tmp_path, says("echo sk-very-secret"), says(f"{SUBMIT}; echo answer"))
    driven.recording.context.endpoint = ModelEndpoint(name="m", api_key=SecretStr("sk-very-secret"))
    await driven.run()

    assert driven.trajectory["trajectory_format"] == "mini-swe-agent-1.1"
    assert driven.trajectory["info"]["submission"] == "answer\n"
    assert [message["role"] for message in driven.trajectory["messages"]][-1] == "exit"
    assert "sk-very-secret" not in (tmp_path / TRAJECTORY).read_text()


async def test_the_packages_own_trajectory_is_saved_without_a_key_among_the_variables(tmp_path: Path) -> None:
    driven = Driven(tmp_path, says('echo "$AGENT_API_KEY"'), says(SUBMIT), env={"AGENT_API_KEY": "sk-of-the-agent"})
    await driven.run()

    assert "sk-of-the-agent" in driven.shown[0]
    assert "sk-of-the-agent" not in (tmp_path / TRAJECTORY).read_text()


async def test_a_full_disk_does_not_lose_the_result(tmp_path: Path) -> None:
    driven = Driven(tmp_path, says(SUBMIT))
    driven.recording.context.log_dir = tmp_path / "gone"

    assert (await driven.run()).exit_reason is ExitReason.SUBMITTED


@pytest.mark.parametrize(
    ("own", "benchmarks", "used"),
    [(None, None, "mini"), (None, "swebench", "swebench"), ("default", "swebench", "default")],
)
async def test_the_benchmark_chooses_the_config_and_the_user_over_it(
    own: str | None, benchmarks: str | None, used: str, tmp_path: Path
) -> None:
    driven = Driven(tmp_path, step_limit=1, config=own)
    driven.model.replies = lambda request: says("true")
    if benchmarks is not None:
        driven.task = driven.task.model_copy(update={"extra": {CONFIG_KEY: benchmarks}})
    result = await driven.run()

    assert result.extra["config"] == used


async def test_a_config_file_of_the_user_is_used(tmp_path: Path) -> None:
    config = tmp_path / "own.yaml"
    config.write_text("agent: {system_template: Own., instance_template: '{{task}}', step_limit: 1}\n")
    driven = Driven(tmp_path, says("echo seen"), config=str(config), system_template="Over it.")
    result = await driven.run()

    assert (driven.recording.steps[0].system_prompt, result.exit_reason) == ("Over it.", ExitReason.STEP_LIMIT)
    assert "seen" in (driven.observations[0] or "")


PROMPTS = "agent: {system_template: a, instance_template: b}\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[1]", ": expected a mapping"),
        ("agent: 3", ": agent: expected a mapping"),
        ("", " has no agent.system_template"),
        ("agent: {system_template: [a]}", ": agent.system_template: expected a valid string"),
        ("agent: {step_limit: many}", ": agent.step_limit: expected a valid integer, unable to parse"),
        ("agent: {cost_limit: lots}", ": agent.cost_limit: expected a valid number, unable to parse"),
        ("agent: {cost_limit: .nan}", ": agent.cost_limit: expected a finite number"),
        ("environment: {timeout: abc}", ": environment.timeout: expected a valid number, unable to parse"),
        ("environment: {timeout: 0}", ": environment.timeout: expected greater than 0"),
        ("environment: {timeout: .inf}", ": environment.timeout: expected a finite number"),
        ("environment: {interpreter: bash -c}", ": environment.interpreter: expected a valid list"),
        ("environment: {interpreter: 5}", ": environment.interpreter: expected a valid list"),
        ("environment: {env: [A]}", ": environment.env: expected a valid dictionary"),
        ("environment: {env: {A: off}}", ": environment.env.A: expected a valid string"),
        ("environment: {env: {A=B: x}}", ": environment.env: 'A=B' is no name of an environment variable"),
        ("environment: {env: {PIP_TOKEN: abcdefgh}}", ": environment.env holds a secret, which would not be masked"),
        ("model: {action_regex: 'a{99999999999}'}", "model.action_regex: 'a{99999999999}' is no regular expression"),
        (f"model: {{observation_template: '{{{{ {'(' * 9999}'}}", "observation_template: no template: nested too deep"),
        ("a: 1\nb: [", "cannot be read: line 2: expected the node content, but found"),
        (f"a: {'[' * 2500}", "cannot be read: nested too deeply"),
        ("a: 2024-13-45", "cannot be read: month must be in 1..12"),
        ("a: !!bool maybe", "cannot be read: 'maybe'"),
        ("a: \0", "cannot be read: unacceptable character #x0000: "),
    ],
    ids=lambda value: value[:40],
)
def test_a_config_file_that_cannot_be_used_is_refused_in_one_line(text: str, why: str, tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(text)

    with pytest.raises(ConfigError) as caught:
        MiniSweAgentHarness(MiniSweAgentParameters(config=str(own)))

    assert caught.value.message.startswith(f"mini-swe-agent config {str(own)!r}")
    assert why in caught.value.message
    assert "\n" not in caught.value.message


async def test_a_config_files_interpreter_runs_the_commands(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(f"{PROMPTS}environment: {{interpreter: [bash, -eu, -c], timeout: 7, env:}}\nmodel:\nother: 1\n")
    driven = Driven(tmp_path, says("echo seen"), config=str(own), step_limit=1)
    await driven.run()

    assert driven.shell.commands[0].argv[:3] == ("bash", "-eu", "-c")
    assert driven.shell.commands[0].timeout_s == 7
    assert "seen" in (driven.observations[0] or "")


def test_every_setting_of_the_packages_agent_is_taken_from_a_config_file() -> None:
    package = set(importlib.import_module("minisweagent.agents.default").AgentConfig.model_fields)

    assert set(AgentSection.model_fields) == package - {"output_path"}


async def test_a_config_file_in_the_users_folder_goes_over_the_packages_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mini.yaml", "mini"):
        Path(name).write_text("agent: {system_template: Own., instance_template: '{{task}}', step_limit: 1}\n")
    prompts = []
    for config in ("mini.yaml", "mini", "default.yaml"):
        driven = Driven(tmp_path, says("true"), config=config, step_limit=1)
        await driven.run()
        prompts.append(driven.recording.steps[0].system_prompt)

    assert prompts[0] == "Own."
    assert "Own." not in prompts[1:]


def test_the_users_config_file_is_told_by_its_content_and_the_packages_is_not(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    told = []
    for text in (PROMPTS, f"{PROMPTS}\n", PROMPTS):
        own.write_text(text)
        told.append(MiniSweAgentHarness(MiniSweAgentParameters(config=str(own))).files()["config_sha256"])

    assert told[0] == told[2] != told[1]
    assert MiniSweAgentHarness(MiniSweAgentParameters(config="swebench")).files() == {}
    assert MiniSweAgentHarness(MiniSweAgentParameters()).files() == {}


async def test_a_run_goes_by_the_config_file_that_was_told(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(PROMPTS)
    driven = Driven(tmp_path, says("true"), config=str(own), step_limit=1)
    driven.task = driven.task.model_copy(update={"extra": {CONFIG_KEY: "swebench"}})
    harness = MiniSweAgentHarness(driven.parameters)
    own.write_text("no config")
    async with HarnessContract().sandbox(driven.environment, "task-1") as sandbox:
        result = await harness.run(driven.task, sandbox, driven.model, driven.recording.context)

    assert result.exit_reason is ExitReason.STEP_LIMIT


def test_a_config_of_a_user_who_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="no mini-swe-agent config '~nosuch/own.yaml'"):
        MiniSweAgentHarness(MiniSweAgentParameters(config="~nosuch/own.yaml"))


BROKEN = [
    ("system_template", "{{ task", "line 1"),
    ("instance_template", "a\n{% if %}", "line 2"),
    ("observation_template", "{% for %}", "line 1"),
    ("format_error_template", "{{ a b }}", "line 1"),
    ("action_regex", "(", "no regular expression"),
]


@pytest.mark.parametrize(("key", "text", "why"), BROKEN)
def test_a_template_or_pattern_that_is_broken_is_refused_as_the_settings_are_read(
    key: str, text: str, why: str
) -> None:
    with pytest.raises(ValidationError, match=why):
        MiniSweAgentParameters.model_validate({key: text})


@pytest.mark.parametrize(("key", "text", "why"), BROKEN)
def test_a_config_file_with_a_broken_text_is_refused_before_anything_runs(
    key: str, text: str, why: str, tmp_path: Path
) -> None:
    section = "agent" if key in ("system_template", "instance_template") else "model"
    config: dict[str, dict[str, str]] = {"agent": {"system_template": "a", "instance_template": "b"}, "model": {}}
    config[section][key] = text
    (tmp_path / "own.yaml").write_text(json.dumps(config))

    with pytest.raises(ConfigError, match=f"{key}: .*{why}"):
        MiniSweAgentHarness(MiniSweAgentParameters(config=str(tmp_path / "own.yaml")))


def test_an_unknown_config_is_refused_with_its_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'swebench'"):
        MiniSweAgentHarness(MiniSweAgentParameters(config="swebnech"))


def test_a_missing_package_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "minisweagent", None)

    with pytest.raises(ConfigError, match=r"pip install 'agentcompass\[mini-swe-agent\]'"):
        MiniSweAgentHarness(MiniSweAgentParameters())


async def test_without_a_sandbox_or_a_model_it_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(HarnessFailed, match="needs a sandbox and a model"):
        await MiniSweAgentHarness(MiniSweAgentParameters()).run(
            prepared_task(), None, None, Recording(tmp_path).context
        )


def test_using_the_package_changes_nothing_outside(tmp_path: Path) -> None:
    program = (
        "import os, sys, logging\n"
        "from agentcompass.adapters.harnesses.mini_swe_agent.package import load_package\n"
        "assert 'minisweagent' not in sys.modules\n"
        "before = dict(os.environ)\n"
        "load_package()\n"
        "assert dict(os.environ) == before\n"
        "assert not any('litellm' in name for name in sys.modules)\n"
        "assert logging.getLogger('minisweagent').handlers == []\n"
    )
    (tmp_path / ".config" / "mini-swe-agent").mkdir(parents=True)
    (tmp_path / ".config" / "mini-swe-agent" / ".env").write_text("LEAKED=1\n")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, cwd=tmp_path)

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert [path.name for path in tmp_path.iterdir()] == [".config"]
