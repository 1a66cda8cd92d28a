"""`doctor`: what fails it, and what it only advises."""

from typing import ClassVar

import pytest
from agentcompass.app.cli import main
from agentcompass.domain.sandbox import Check
from agentcompass.testing.fakes import FakeEnvironment


class Advising(FakeEnvironment):
    """Ready, with something to tidy up."""

    async def check(self) -> list[Check]:
        hint = "agentcompass cleanup"
        return [
            Check(name="engine", ok=True, detail="there"),
            Check(name="leftovers", ok=False, detail="2 containers", hint=hint, is_advice=True),
        ]


class Broken(FakeEnvironment):
    """Not ready."""

    name: ClassVar[str] = "broken"

    async def check(self) -> list[Check]:
        return [Check(name="engine", ok=False, detail="no answer", hint="start it")]


def doctor(capsys: pytest.CaptureFixture[str], environment: str) -> tuple[object, list[str]]:
    with pytest.raises(SystemExit) as ended:
        main(("doctor", f"{__name__}:{environment}"))
    return ended.value.code, capsys.readouterr().out.splitlines()


def test_what_other_runs_left_behind_is_a_warning_with_the_next_step(capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = doctor(capsys, "Advising")

    assert code == 0
    assert [line.partition(": ")[2] for line in lines] == [
        "ok   engine: there",
        "warn leftovers: 2 containers",
        "     -> agentcompass cleanup",
    ]


def test_an_environment_that_is_not_ready_fails_it(capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = doctor(capsys, "Broken")

    assert code == 1
    assert [line.partition(": ")[2] for line in lines] == ["FAIL engine: no answer", "     -> start it"]
