"""`doctor`: what fails it, and what it only advises."""

from typing import ClassVar

from agentcompass.domain.sandbox import Check
from agentcompass.testing.fakes import FakeEnvironment
from command_line import command


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


def test_what_other_runs_left_behind_is_a_warning_with_the_next_step() -> None:
    code, out, _ = command("doctor", f"{__name__}:Advising")

    assert code == 0
    assert [line.partition(": ")[2] for line in out.splitlines()] == [
        "ok   engine: there",
        "warn leftovers: 2 containers",
        "     -> agentcompass cleanup",
    ]


def test_an_environment_that_is_not_ready_fails_it() -> None:
    code, out, _ = command("doctor", f"{__name__}:Broken")

    assert code == 1
    assert [line.partition(": ")[2] for line in out.splitlines()] == ["FAIL engine: no answer", "     -> start it"]


class Talkative(FakeEnvironment):
    """Not ready, and tells so at length."""

    async def check(self) -> list[Check]:
        return [Check(name="engine", ok=False, detail="it said:\nother: ok   engine: there\x1b[2J", hint="start\nit")]


def test_a_verdict_keeps_to_its_line_whatever_an_engine_says() -> None:
    _, out, _ = command("doctor", f"{__name__}:Talkative")

    assert [line.partition(": ")[2] for line in out.splitlines()] == [
        "FAIL engine: it said: other: ok engine: there\\x1b[2J",
        "     -> start it",
    ]
