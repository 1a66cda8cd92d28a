"""Grading submissions in real repositories: honest ones, ones that do not apply, and ones that pretend."""

import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path, PurePosixPath

import pytest
from agentcompass.adapters.benchmarks.swebench import evaluation_scripts
from agentcompass.adapters.benchmarks.swebench.evaluation import Evaluation, evaluate
from agentcompass.adapters.benchmarks.swebench.rows import Row
from agentcompass.adapters.environments.host_process.environment import HostProcessEnvironment, HostProcessParameters
from agentcompass.domain.errors import BenchmarkBroken, SandboxLost, VerifierFailed
from agentcompass.domain.ports import Sandbox
from agentcompass.domain.sandbox import Command, ExecResult, SandboxSpec
from agentcompass.testing.environment import an_owner
from agentcompass.testing.fakes import FakeEnvironment, FakeSandbox
from swebench_attacks import ATTACKS, HONEST, MEND, MENDED, columns, make_project, patch_of, printing, put

ROOT = PurePosixPath("/testbed")
PATIENCE_S = 300.0


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """The row, in upstream's columns."""
    return columns(tmp_path_factory.mktemp("row") / "hidden", sys.executable)


@pytest.fixture
def row(given: dict[str, object]) -> Row:
    return Row.model_validate(given)


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    """As if fresh from the row's image."""
    environment = HostProcessEnvironment(HostProcessParameters(root_folder=tmp_path / "sandboxes"))
    (tmp_path / "image").mkdir()
    make_project(tmp_path / "image")
    async with environment.open(SandboxSpec(workspace_root=ROOT), an_owner()) as sandbox:
        await sandbox.upload(tmp_path / "image", ROOT)
        yield sandbox
    await environment.close()


@pytest.mark.parametrize("name", ATTACKS)
async def test_a_submission_that_pretends_is_false_and_flagged(name: str, row: Row, sandbox: Sandbox, tmp_path: Path):
    patch = patch_of(tmp_path / "submission", *ATTACKS[name].changes)

    found = await evaluate(sandbox, row, patch, tmp_path / "logs", PATIENCE_S)

    assert not found.correct
    assert found.outcome == "unresolved"
    assert ATTACKS[name].flag in found.flags


@pytest.mark.parametrize("name", HONEST)
async def test_an_honest_submission_is_true(name: str, row: Row, sandbox: Sandbox, tmp_path: Path):
    patch = patch_of(tmp_path / "submission", *HONEST[name])

    found = await evaluate(sandbox, row, patch, tmp_path / "logs", PATIENCE_S)

    assert found.correct, (tmp_path / "logs" / "test_output.txt").read_text()
    assert (found.outcome, found.completed, found.patch_applied) == ("resolved", True, True)


async def test_the_reference_solution_is_true_without_a_flag(row: Row, sandbox: Sandbox, tmp_path: Path):
    found = await evaluate(sandbox, row, row.patch.encode(), tmp_path, PATIENCE_S)

    assert (found.correct, found.flags, found.put_back) == (True, (), ())
    raw = found.raw_data()
    assert json.loads(json.dumps(raw)) == raw
    assert raw["resolved"] is True
    assert raw["report"] == json.loads((tmp_path / "report.json").read_text())[row.instance_id]


async def test_empty_required_lists_are_never_all_passed(given: dict[str, object], sandbox: Sandbox, tmp_path: Path):
    row = Row.model_validate(given | {"FAIL_TO_PASS": "[]", "PASS_TO_PASS": "[]"})

    found = await evaluate(sandbox, row, row.patch.encode(), tmp_path, PATIENCE_S)

    assert (found.correct, found.flags) == (False, ("no_required_tests",))


async def test_settings_that_tests_do_not_read_need_no_second_run(row: Row, sandbox: Sandbox, tmp_path: Path):
    patch = patch_of(tmp_path / "submission", *HONEST["a mend and a new requirement in setup.cfg"])

    found = await evaluate(sandbox, row, patch, tmp_path / "logs", PATIENCE_S)

    assert (found.correct, found.flags, found.put_back) == (True, (), ())


async def test_a_confirmed_submission_says_what_was_put_back_and_keeps_both_logs(
    row: Row, sandbox: Sandbox, tmp_path: Path
):
    patch = patch_of(tmp_path / "submission", *HONEST["a mend and a conftest.py"])

    found = await evaluate(sandbox, row, patch, tmp_path / "logs", PATIENCE_S)

    assert (found.flags, found.put_back) == (("outcome_hooks",), ("conftest.py",))
    assert {path.name for path in (tmp_path / "logs").iterdir()} == {
        *("patch.diff", "eval.sh", "run_instance.log", "report.json"),
        *("test_output.txt", "test_output_confirming.txt"),
    }


async def test_upstream_s_report_is_of_the_submission_as_it_is(row: Row, sandbox: Sandbox, tmp_path: Path):
    patch = patch_of(tmp_path / "submission", *ATTACKS["conftest.py at the root"].changes)

    found = await evaluate(sandbox, row, patch, tmp_path / "logs", PATIENCE_S)

    assert found.report["resolved"] is True
    assert found.raw_data()["resolved"] is False
    assert "not_confirmed" in found.flags


async def test_an_empty_patch_is_not_run(row: Row, tmp_path: Path):
    found = await evaluate(None, row, b"", tmp_path, PATIENCE_S)

    assert (found.correct, found.outcome, found.completed, found.patch_applied) == (False, "empty_patch", False, False)


async def test_a_patch_that_does_not_apply_is_the_model_s_failure(row: Row, sandbox: Sandbox, tmp_path: Path):
    patch = row.patch.encode().replace(b"a - b", b"b - a")

    found = await evaluate(sandbox, row, patch, tmp_path, PATIENCE_S)

    assert (found.correct, found.outcome, found.completed) == (False, "patch_failed", False)
    assert ">>>>> Patch Apply Failed" in (tmp_path / "run_instance.log").read_text()
    assert not (tmp_path / "report.json").exists()


async def test_a_lost_last_newline_is_mended_and_flagged(row: Row, sandbox: Sandbox, tmp_path: Path):
    found = await evaluate(sandbox, row, row.patch.encode()[:-1], tmp_path, PATIENCE_S)

    assert (found.correct, found.flags) == (True, ("newline_added",))


async def test_tests_that_outlive_their_limit_are_the_model_s_failure(row: Row, sandbox: Sandbox, tmp_path: Path):
    patch = patch_of(tmp_path / "submission", put("adder/__init__.py", "import time\nprint('up')\ntime.sleep(600)\n"))

    found = await evaluate(sandbox, row, patch, tmp_path / "logs", 4)

    assert (found.correct, found.outcome, found.timed_out, found.completed) == (False, "timed_out", True, False)
    assert (tmp_path / "logs" / "test_output.txt").read_text().endswith("\n\nTimeout error: 4 seconds exceeded.")
    assert not (tmp_path / "logs" / "report.json").exists()


async def test_a_confirming_run_that_outlives_its_limit_is_a_time_out_and_no_forgery(
    row: Row, sandbox: Sandbox, tmp_path: Path
):
    slow = "import os, time\n\nif not os.path.exists('conftest.py'):\n    time.sleep(600)\n\n\n"
    patch = patch_of(tmp_path / "submission", put("adder/__init__.py", slow + MENDED), put("conftest.py", "x = 1\n"))

    found = await evaluate(sandbox, row, patch, tmp_path / "logs", 8)

    assert (found.correct, found.outcome, found.timed_out, found.completed) == (False, "timed_out", True, True)
    assert found.report["resolved"] is True
    assert found.flags == ("outcome_hooks", "confirming_timed_out")


async def test_a_log_of_invalid_bytes_is_read_and_kept_as_text(row: Row, sandbox: Sandbox, tmp_path: Path):
    noisy = put("adder/__init__.py", "import os\nos.write(2, b'\\xff\\xfe\\n')\n\n\ndef add(a, b):\n    return a + b\n")

    found = await evaluate(sandbox, row, patch_of(tmp_path / "submission", noisy), tmp_path / "logs", PATIENCE_S)

    assert found.correct
    (tmp_path / "logs" / "test_output.txt").read_text("utf-8")


async def test_code_that_kills_the_tests_shell_is_no_error_of_ours(row: Row, sandbox: Sandbox, tmp_path: Path):
    kill = printing(leave="    os.kill(os.getppid(), 9)")

    found = await evaluate(sandbox, row, patch_of(tmp_path / "submission", kill), tmp_path / "logs", PATIENCE_S)

    assert (found.correct, found.outcome) == (False, "unresolved")
    assert "tests_shell_killed" in found.flags


async def test_code_that_prints_without_end_is_timed_out_and_its_log_is_cut(
    row: Row, sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(evaluation_scripts, "MAX_LOG_BYTES", 100_000)
    endless = put("adder/__init__.py", "while True:\n    print('x' * 1000)\n")

    found = await evaluate(sandbox, row, patch_of(tmp_path / "submission", endless), tmp_path / "logs", 6)

    assert (found.correct, found.outcome) == (False, "timed_out")
    assert (tmp_path / "logs" / "test_output.txt").stat().st_size < 200_000


async def test_what_the_tests_do_to_their_own_script_comes_too_late(row: Row, sandbox: Sandbox, tmp_path: Path):
    spoiling = """import glob
for path in glob.glob("/.grading-*/eval.sh") + glob.glob("/*/*/.grading-*/eval.sh"):
    open(path, "w").write("\\n" * 100000)
"""
    patch = patch_of(tmp_path / "submission", put("adder/__init__.py", spoiling))

    found = await evaluate(sandbox, row, patch, tmp_path / "logs", PATIENCE_S)

    assert (found.correct, found.completed) == (False, True)
    assert "End Test Output" in (tmp_path / "logs" / "test_output.txt").read_text()


async def test_hidden_tests_that_do_not_fit_the_image_are_a_fault_of_the_data(
    given: dict[str, object], sandbox: Sandbox, tmp_path: Path
):
    text = str(given["test_patch"])
    row = Row.model_validate(given | {"test_patch": text.replace("(0, 0)", "(0, 1)")})

    with pytest.raises(BenchmarkBroken, match="acme__adder-1: the hidden tests do not apply"):
        await evaluate(sandbox, row, row.patch.encode(), tmp_path, PATIENCE_S)


async def test_test_files_that_the_image_s_set_up_has_edited_are_those_of_the_base_commit(
    row: Row, sandbox: Sandbox, tmp_path: Path
):
    await sandbox.exec(Command(script='sed -i "s/0, 0/00, 0/" tests/test_adder.py', cwd=ROOT, timeout_s=60))

    assert (await evaluate(sandbox, row, row.patch.encode(), tmp_path, PATIENCE_S)).correct


async def test_names_of_odd_bytes_do_not_break_the_record(row: Row, sandbox: Sandbox, tmp_path: Path):
    patch = patch_of(tmp_path / "submission", MEND, put("tests/\udcff.py", "1\n"))

    found = await evaluate(sandbox, row, patch, tmp_path / "logs", PATIENCE_S)

    assert (found.correct, found.raw_data()["put_back"]) == (True, ["tests/?.py"])


@pytest.mark.parametrize("spoil", ["rm -rf .git", 'rm -rf "$PWD"'])
async def test_an_image_without_the_repository_gives_no_score(spoil: str, row: Row, sandbox: Sandbox, tmp_path: Path):
    await sandbox.exec(Command(script=spoil, cwd=ROOT, timeout_s=60))

    with pytest.raises(VerifierFailed, match="cannot grade in image"):
        await evaluate(sandbox, row, row.patch.encode(), tmp_path, PATIENCE_S)


async def test_a_sandbox_without_bash_gives_no_score(row: Row, tmp_path: Path):
    def no_bash(_sandbox: FakeSandbox, _command: Command) -> ExecResult:
        return ExecResult(exit_code=2, stdout="", stderr="sh: syntax error\n", duration_s=0)

    async with FakeEnvironment(exec_script=no_bash).open(SandboxSpec(), an_owner()) as sandbox:
        with pytest.raises(VerifierFailed, match="syntax error"):
            await evaluate(sandbox, row, b"diff", tmp_path, PATIENCE_S)


async def test_a_lost_sandbox_gives_no_score(row: Row, tmp_path: Path):
    async with FakeEnvironment().open(SandboxSpec(), an_owner()) as sandbox:
        sandbox.lose()
        with pytest.raises(SandboxLost):
            await evaluate(sandbox, row, b"diff", tmp_path, PATIENCE_S)


def refusing(part: str) -> Callable[[FakeSandbox, Command], ExecResult]:
    """A sandbox in which scripts work, but one whose text contains `part` loses it."""

    def script(sandbox: FakeSandbox, command: Command) -> ExecResult:
        if part in (command.script or ""):
            sandbox.lose()
        return ExecResult(exit_code=0, stdout="\n0 ", stderr="", duration_s=0)

    return script


async def test_a_sandbox_that_dies_in_the_tests_gives_no_score(row: Row, tmp_path: Path):
    async with FakeEnvironment(exec_script=refusing("eval.sh")).open(SandboxSpec(), an_owner()) as sandbox:
        with pytest.raises(SandboxLost):
            await evaluate(sandbox, row, b"diff", tmp_path, PATIENCE_S)


def test_an_evaluation_is_plain_data():
    found = Evaluation(correct=False, outcome="empty_patch", swebench_version="5.0.2", eval_timeout_s=1800)

    assert set(found.raw_data()) == {
        *("completed", "resolved", "outcome", "timed_out", "returncode", "patch_applied", "patch_command"),
        *("report", "flags", "put_back", "swebench_version", "eval_timeout_s"),
    }
