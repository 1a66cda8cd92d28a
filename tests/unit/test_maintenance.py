"""`cleanup` and `doctor` of several environments, of which some are broken."""

from typing import ClassVar

import pytest
from agentcompass.app.catalog import BUILT_INS, Kind
from agentcompass.domain.sandbox import Check, SweepSelector, SweptSandbox
from agentcompass.domain.value import Parameters
from agentcompass.testing.fakes import FakeEnvironment
from command_line import command
from pydantic import SecretStr

KEY = "key-of-a-provider-0123"
NOT_IMPORTED = "adapter_with_a_bug: broken: importing it failed: NameError: name 'undefined_thing' is not defined"


class Breaking(FakeEnvironment):
    """Keeps no promise of its port."""

    name: ClassVar[str] = "breaking"

    async def check(self) -> list[Check]:
        raise SystemExit(0)

    async def sweep(self, selector: SweepSelector) -> list[SweptSandbox]:
        raise RuntimeError("a bug")


class Sweepless(FakeEnvironment):
    """Breaks when it is swept."""

    async def sweep(self, selector: SweepSelector) -> list[SweptSandbox]:
        raise RuntimeError("a bug")


class Unmakeable(FakeEnvironment):
    """Breaks when it is made."""

    def __init__(self, parameters: object) -> None:
        raise RuntimeError("a bug")


class KeyParameters(Parameters):
    """A credential."""

    api_key: SecretStr = SecretStr(KEY)


class NotClosing(FakeEnvironment):
    """Tells its credential as it breaks."""

    name: ClassVar[str] = "not_closing"
    Parameters: ClassVar[type[Parameters]] = KeyParameters

    async def close(self) -> None:
        raise RuntimeError(f"no session for {KEY}")


class Littered(FakeEnvironment):
    """Has something to stop."""

    async def sweep(self, selector: SweepSelector) -> list[SweptSandbox]:
        return [SweptSandbox(environment="littered", id="sb-1", run_id="old", task_id="t")]


@pytest.fixture
def all_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    environments = {
        **dict.fromkeys(BUILT_INS[Kind.ENVIRONMENTS], "adapter_with_a_bug:X"),
        "unmakeable": f"{__name__}:Unmakeable",
        "sweepless": f"{__name__}:Sweepless",
        "breaking": f"{__name__}:Breaking",
        "not_closing": f"{__name__}:NotClosing",
        "littered": f"{__name__}:Littered",
    }
    found = {**BUILT_INS, Kind.ENVIRONMENTS: environments}
    monkeypatch.setattr("agentcompass.app.catalog.Catalog.__init__.__defaults__", (found, lambda group: []))


@pytest.mark.usefixtures("all_kinds")
def test_cleanup_passes_over_environments_that_are_broken_and_sweeps_the_rest() -> None:
    code, out, err = command("cleanup")

    assert code == 0
    assert out.splitlines() == [
        "littered: sb-1 (run old, task t): stopped",
        "1 stopped, 0 could not be stopped",
    ]
    assert [line for line in err.splitlines() if line.startswith("passed over: ")] == [
        *(f"passed over: environment {name!r}: {NOT_IMPORTED}" for name in BUILT_INS[Kind.ENVIRONMENTS]),
        "passed over: environment 'unmakeable': RuntimeError: a bug",
        "passed over: environment 'sweepless': RuntimeError: a bug",
        "passed over: environment 'breaking' is not ready: check: SystemExit: 0 (see agentcompass doctor breaking)",
    ]


@pytest.mark.usefixtures("all_kinds")
def test_doctor_fails_the_environments_that_are_broken_and_tells_of_the_rest() -> None:
    code, out, _ = command("doctor")

    assert code == 1
    assert out.splitlines() == [
        *(f"{name}: FAIL adapter: environment {name!r}: {NOT_IMPORTED}" for name in BUILT_INS[Kind.ENVIRONMENTS]),
        "unmakeable: FAIL adapter: environment 'unmakeable': RuntimeError: a bug",
        "sweepless: ok   fake: in memory",
        "breaking: FAIL check: SystemExit: 0",
        "not_closing: ok   fake: in memory",
        "littered: ok   fake: in memory",
    ]


@pytest.mark.usefixtures("all_kinds")
@pytest.mark.parametrize("words", [("doctor", "unmakeable"), ("cleanup", "--env", "unmakeable")])
def test_an_environment_that_is_named_and_cannot_be_made_is_an_error(words: tuple[str, ...]) -> None:
    code, out, err = command(*words)

    assert (code, out, err) == (2, "", "error: environment 'unmakeable': RuntimeError: a bug\n")


@pytest.mark.usefixtures("all_kinds")
@pytest.mark.parametrize("words", [("doctor",), ("cleanup",)])
def test_wrong_settings_are_an_error_also_where_no_environment_is_named(words: tuple[str, ...]) -> None:
    code, out, err = command(*words, "--config", "no-such.yaml")

    assert (code, out) == (2, "")
    assert "no-such.yaml" in err


@pytest.mark.usefixtures("all_kinds")
@pytest.mark.parametrize("words", [("doctor", "not_closing"), ("cleanup", "--env", "not_closing")])
def test_a_close_that_fails_is_a_line_on_stderr_without_secrets(words: tuple[str, ...]) -> None:
    code, _, err = command(*words)

    assert code == 0
    assert err.count("\n") == 1
    assert "adapter.not_closed adapter=not_closing error='RuntimeError: no session for ***'" in err
    assert KEY not in err
