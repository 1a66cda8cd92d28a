"""Where errors end: one line on stderr and exit code 2 for the user's, a traceback and 1 for ours."""

import io
from contextlib import redirect_stderr, redirect_stdout
from importlib.metadata import version

import pytest
import typer
from agentcompass.app.cli import border, main
from agentcompass.app.cli.lazy import COMMANDS
from agentcompass.app.logs import mask_from_now
from agentcompass.domain.errors import ConfigError, ResultsUnwritable
from command_line import command


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lst"], "error: No such command 'lst'. Did you mean 'list'? (see agentcompass --help)\n"),
        (["list", "harness"], "error: nothing to list by the name 'harness'; did you mean 'harnesses'?\n"),
        (["config"], "error: Missing command. (see agentcompass config --help)\n"),
        (["config", "show", "--config", "no.yaml"], "error: --config no.yaml: No such file or directory\n"),
        (["run", "no_such", "nop", "none"], "error: no benchmark 'no_such'; known: "),
        (["run", "quickstart", "nop"], "error: Missing argument 'model'"),
        (["run", "quickstart", "nop", "none", "--max-retries", "x"], "error: Invalid value for '--max-retries': "),
        (
            ["run", "quickstart", "nop", "none", "--max-retries", "-1"],
            "error: --max-retries: run.max_retries: expected at least 0, not -1\n",
        ),
    ],
)
def test_what_the_user_did_wrong_is_one_line_and_exit_code_2(arguments: list[str], message: str) -> None:
    code, out, err = command(*arguments)

    assert code == 2
    assert out == ""
    assert err.startswith(message)
    assert err.count("\n") == 1


def raising(error: BaseException) -> object:
    def app(*_: object, **__: object) -> object:
        raise error

    return app


def test_each_fault_keeps_its_line_and_its_blanks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(border, "app", raising(ConfigError("2 problems in 'a  b':\nfirst\x07\n\nsecond")))

    ended = command("list")

    assert ended.code == 2
    assert ended.err == "error: 2 problems in 'a  b':\n  first\\x07\n  second\n"


def test_a_bug_is_a_traceback_and_not_the_users_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(border, "app", raising(ZeroDivisionError("a bug")))

    ended = command("list")

    assert ended.code == 1
    assert ended.err.endswith("ZeroDivisionError: a bug\n")


def test_the_traceback_of_a_bug_shows_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    mask_from_now(["the-models-key"])
    monkeypatch.setattr(border, "app", raising(ZeroDivisionError("https://me:word@host takes no the-models-key")))

    assert command("list").err.endswith("ZeroDivisionError: https://***@host takes no ***\n")


def test_results_that_cannot_be_stored_are_one_line_and_not_the_commands_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(border, "app", raising(ResultsUnwritable("'f' is full", hint="free space")))

    ended = command("list")

    assert ended.code == 1
    assert ended.err == "error: 'f' is full (free space)\n"


def test_a_letter_that_the_terminal_lacks_is_its_escape(monkeypatch: pytest.MonkeyPatch) -> None:
    def prints(*_: object, **__: object) -> None:
        typer.echo("Model  é 中文")
        typer.echo("中文", err=True)

    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="latin-1") for _ in range(2))
    monkeypatch.setattr(border, "app", prints)
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
        main(["list"])
    written = [stream.detach().getvalue() for stream in (out, err)]  # type: ignore[attr-defined]  # bytes in memory

    assert ended.value.code == 0
    assert written == [b"Model  \xe9 \\u4e2d\\u6587\n", b"\\u4e2d\\u6587\n"]


def test_an_interrupt_is_exit_code_130(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(border, "app", raising(KeyboardInterrupt()))

    ended = command("list")

    assert ended.code == 130
    assert ended.err == "error: interrupted\n"


def test_no_arguments_show_the_help() -> None:
    ended = command()

    assert ended.code == 0
    assert [name for name in COMMANDS if f" {name} " not in ended.out] == []


def test_the_version_is_printed() -> None:
    ended = command("--version")

    assert ended.code == 0
    assert ended.out == f"{version('agentcompass')}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_that_help_names_is_there(name: str) -> None:
    ended = command(name, "--help")

    assert ended.code == 0
    assert f"agentcompass {name}" in ended.out
