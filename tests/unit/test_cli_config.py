"""`agentcompass config` and `agentcompass list`."""

import json
from pathlib import Path

import pytest
from agentcompass.app.catalog import BUILT_INS, Kind
from agentcompass.app.cli import main


def ended(*arguments: str) -> object:
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    return raised.value.code


def test_show_prints_each_setting_and_its_layer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTCOMPASS_RUN__MAX_RETRIES", "3")

    assert ended("config", "show") == 0
    assert "run.max_retries = 3  # variable: AGENTCOMPASS_RUN__MAX_RETRIES\n" in capsys.readouterr().out


def test_show_as_json_masks_the_key(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTCOMPASS_MODEL__API_KEY", "sk-hush")

    assert ended("config", "show", "--json") == 0

    out = capsys.readouterr().out
    assert "sk-hush" not in out
    assert json.loads(out)["model.api_key"] == {
        "value": "***",
        "layer": "variable",
        "where": "AGENTCOMPASS_MODEL__API_KEY",
    }


def test_show_masks_a_key_among_an_agents_variables(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text("harnesses: {command: {env: {MY_API_KEY: key-0123456789, COLOUR: red}}}\n")

    assert ended("config", "show", "--config", str(path)) == 0

    out = capsys.readouterr().out
    assert 'harnesses.command.env.MY_API_KEY = "***"' in out
    assert 'harnesses.command.env.COLOUR = "red"' in out


def test_check_says_ok(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("config", "check") == 0
    assert capsys.readouterr().out == "OK\n"


def test_check_says_every_problem_on_a_line_of_its_own(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text("run: {max_retry: 1}\nenvironments: {dokcer: {}}\n")

    code = ended("config", "check", "--config", str(path))

    assert code == 2
    assert capsys.readouterr().err.splitlines() == [
        f"error: {path}:2: environments.dokcer: unknown name; did you mean 'docker'?",
        f"error: {path}:1: run.max_retry: unknown key; did you mean 'max_retries'?",
    ]


def test_schema_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("config", "schema") == 0
    assert "RunSettings" in json.loads(capsys.readouterr().out)["$defs"]


@pytest.mark.parametrize("kind", Kind)
def test_list_as_json_has_every_built_in_adapter_with_its_parameters(
    capsys: pytest.CaptureFixture[str], kind: Kind
) -> None:
    assert ended("list", kind.value, "--json") == 0

    listed = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert listed.keys() >= BUILT_INS[kind].keys()
    for name, path in BUILT_INS[kind].items():
        assert listed[name]["import_path"] == path
        assert listed[name]["origin"] == "built-in"
        assert listed[name]["parameters"]["type"] == "object"
        assert listed[name]["description"]
        assert listed[name]["problem"] is None


def test_list_prints_a_line_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("list", "environments") == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()][:2] == ["docker", "host_process"]


def test_an_adapter_without_its_sdk_is_listed_with_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fakes = {**BUILT_INS, Kind.HARNESSES: {"no_sdk": "adapter_without_sdk:Adapter", "bug": "adapter_with_a_bug:X"}}
    monkeypatch.setattr("agentcompass.app.catalog.EXTRAS", {"an_sdk_that_nobody_has": "that-extra"})
    monkeypatch.setattr("agentcompass.app.catalog.Catalog.__init__.__defaults__", (fakes, lambda group: []))

    assert ended("list", "harnesses") == 0
    assert capsys.readouterr().out.splitlines() == [
        "no_sdk  (not installed: pip install 'agentcompass[that-extra]')",
        "bug     (harness 'bug': adapter_with_a_bug: broken: importing it failed: "
        "NameError: name 'undefined_thing' is not defined)",
    ]
