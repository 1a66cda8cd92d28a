"""Which Modal token is used: the order of the places, and every way in which a place can be wrong."""

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from agentcompass.adapters.environments.modal.credentials import Credentials, resolve_credentials
from agentcompass.adapters.environments.modal.environment import ModalEnvironment
from agentcompass.adapters.environments.modal.parameters import ModalParameters
from agentcompass.domain.errors import ConfigError

GOOD = '[default]\ntoken_id = "ak-file"\ntoken_secret = "as-file"\n'
TWO = '[one]\ntoken_id = "ak-1"\ntoken_secret = "as-1"\n{one}\n[two]\ntoken_id = "ak-2"\ntoken_secret = "as-2"\n{two}\n'
ENV = {"MODAL_TOKEN_ID": "ak-env", "MODAL_TOKEN_SECRET": "as-env"}


@dataclass(frozen=True)
class Case:
    """What is set, and what is made of it: a pair and its origin, or what the refusal says."""

    setting: tuple[str | None, str | None] = (None, None)
    environ: dict[str, str] = field(default_factory=dict)
    file: str | None = None
    pair: tuple[str, str] | None = None
    says: tuple[str, ...] = ()


CASES = {
    "nothing at all": Case(says=("no Modal credentials", "MODAL_TOKEN_ID", ".modal.toml", "modal setup")),
    "the settings win": Case(("ak-set", "as-set"), ENV, GOOD, ("ak-set", "as-set"), ("environments.modal.token_id",)),
    "the variables win over the file": Case((None, None), ENV, GOOD, ("ak-env", "as-env"), ("MODAL_TOKEN_ID",)),
    "the file alone": Case(file=GOOD, pair=("ak-file", "as-file"), says=("profile 'default'", ".modal.toml")),
    "white space is no part of a token": Case(("ak-set\n", " as-set"), pair=("ak-set", "as-set")),
    "half in the settings": Case(("ak-set", None), ENV, GOOD, says=("environments.modal.token_secret is missing",)),
    "the other half in the settings": Case((None, "as"), ENV, GOOD, says=("environments.modal.token_id is missing",)),
    "half in the variables, the file is whole": Case(
        environ={"MODAL_TOKEN_ID": "ak-env"}, file=GOOD, says=("MODAL_TOKEN_SECRET is missing",)
    ),
    "the other half in the variables": Case(
        environ={"MODAL_TOKEN_SECRET": "as-env"}, file=GOOD, says=("MODAL_TOKEN_ID is missing",)
    ),
    "empty variables and a good file": Case(
        environ={"MODAL_TOKEN_ID": "", "MODAL_TOKEN_SECRET": ""}, file=GOOD, pair=("ak-file", "as-file")
    ),
    "one variable empty": Case(
        environ={**ENV, "MODAL_TOKEN_SECRET": ""}, file=GOOD, says=("MODAL_TOKEN_SECRET is missing",)
    ),
    "half in the file": Case(
        file='[default]\ntoken_id = "ak"\n', says=("token_secret in profile 'default'", "missing")
    ),
    "a profile without a token": Case(file="[default]\nactive = true\n", says=("has no token", "modal setup")),
    "no file, MODAL_PROFILE": Case(environ={"MODAL_PROFILE": "work"}, says=("'work'", "none")),
    "an unknown profile": Case(environ={"MODAL_PROFILE": "work"}, file=GOOD, says=("'work'", "its profiles: default")),
    "an unknown profile does not matter to variables": Case(
        environ={**ENV, "MODAL_PROFILE": "work"}, file=GOOD, pair=("ak-env", "as-env")
    ),
    "the active profile": Case(file=TWO.format(one="", two="active = true"), pair=("ak-2", "as-2"), says=("'two'",)),
    "MODAL_PROFILE wins over the active one": Case(
        environ={"MODAL_PROFILE": "one"}, file=TWO.format(one="", two="active = true"), pair=("ak-1", "as-1")
    ),
    "several active profiles": Case(
        file=TWO.format(one="active = true", two="active = true"), says=("several profiles", "one, two", "activate")
    ),
    "several profiles, none active": Case(file=TWO.format(one="", two=""), says=("no profile", "one, two", "activate")),
    "several active profiles do not matter to variables": Case(
        environ=ENV, file=TWO.format(one="active = true", two="active = true"), pair=("ak-env", "as-env")
    ),
    "the only profile has another name": Case(
        file=GOOD.replace("default", "work"), pair=("ak-file", "as-file"), says=("'work'",)
    ),
    "a malformed file": Case(file="[default\ntoken", says=(".modal.toml", "cannot be read")),
    "a malformed file breaks the SDK for everyone": Case(environ=ENV, file="[default\n", says=("cannot be read",)),
    "a file without tables": Case(file='token_id = "ak"\n', says=("'token_id'", "outside of a profile's table")),
    "a token that is no text": Case(file="[default]\ntoken_id = 5\ntoken_secret = 6\n", says=("has no token",)),
    "a remote container is no reason to ignore them": Case(
        environ={**ENV, "MODAL_IS_REMOTE": "1"}, pair=("ak-env", "as-env")
    ),
}


def resolved(case: Case, home: Path) -> Credentials:
    if case.file is not None:
        (home / ".modal.toml").write_text(case.file)
    return resolve_credentials(*case.setting, {"HOME": str(home), **case.environ})


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.pair])
def test_a_whole_pair_from_the_first_place_is_used(name: str, tmp_path: Path) -> None:
    found = resolved(CASES[name], tmp_path)

    assert (found.token_id, found.token_secret) == CASES[name].pair
    assert all(word in found.origin for word in CASES[name].says)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.pair])
def test_what_is_not_a_whole_pair_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        resolved(CASES[name], tmp_path)

    assert [word for word in CASES[name].says if word not in str(raised.value)] == []
    assert "\n" not in str(raised.value)
    assert not {"ak-1", "as-1", "as-env", "as-file"} & set(str(raised.value).split())


NO_TOKEN = [name for name, case in CASES.items() if not case.pair and case.setting == (None, None)]


@pytest.mark.parametrize("name", NO_TOKEN)
async def test_doctor_says_what_is_wrong_and_what_to_do(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    if case.file is not None:
        (tmp_path / ".modal.toml").write_text(case.file)
    environment = ModalEnvironment(ModalParameters(), {"HOME": str(tmp_path), **case.environ})
    checks = await environment.check()

    assert [(check.name, check.ok) for check in checks] == [("credentials", False)]
    assert checks[0].hint


def test_the_file_may_lie_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "elsewhere.toml").write_text(GOOD)
    found = resolve_credentials(None, None, {"MODAL_CONFIG_PATH": str(tmp_path / "elsewhere.toml")})

    assert found.token_id == "ak-file"
    assert "elsewhere.toml" in found.origin


def test_a_profile_brings_its_server_and_environment(tmp_path: Path) -> None:
    extra = 'server_url = "https://modal.test"\nenvironment = "dev"\n'
    found = resolved(Case(file=GOOD + extra), tmp_path)

    assert (found.server_url, found.environment) == ("https://modal.test", "dev")


def test_variables_for_server_and_environment_win(tmp_path: Path) -> None:
    environ = {"MODAL_SERVER_URL": "http://127.0.0.1:1", "MODAL_ENVIRONMENT": "main"}
    found = resolved(Case(file=GOOD + 'environment = "dev"\n', environ=environ), tmp_path)

    assert (found.server_url, found.environment) == ("http://127.0.0.1:1", "main")


def test_neither_half_is_in_a_printed_form(tmp_path: Path) -> None:
    found = resolved(Case(file=GOOD), tmp_path)

    assert "ak-file" not in repr(found)
    assert "as-file" not in repr(found)


def test_the_process_environment_is_left_alone(tmp_path: Path) -> None:
    before = dict(os.environ)
    resolved(Case(environ=ENV, file=GOOD), tmp_path)

    assert dict(os.environ) == before
