"""`agentcompass config` and `agentcompass list`."""

import json
from pathlib import Path

import pytest
from agentcompass.app.catalog import BUILT_INS, Kind
from command_line import command


def test_show_prints_each_setting_and_its_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTCOMPASS_RUN__MAX_RETRIES", "3")

    ended = command("config", "show")

    assert ended.code == 0
    assert "run.max_retries = 3  # variable: AGENTCOMPASS_RUN__MAX_RETRIES\n" in ended.out


def test_show_as_json_masks_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTCOMPASS_MODEL__API_KEY", "sk-hush")

    code, out, _ = command("config", "show", "--json")

    assert code == 0
    assert "sk-hush" not in out
    assert json.loads(out)["model.api_key"] == {
        "value": "***",
        "layer": "variable",
        "where": "AGENTCOMPASS_MODEL__API_KEY",
    }


def test_show_masks_a_key_among_an_agents_variables(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text("harnesses: {command: {env: {MY_API_KEY: key-0123456789, COLOUR: red}}}\n")

    code, out, _ = command("config", "show", "--config", path)

    assert code == 0
    assert 'harnesses.command.env.MY_API_KEY = "***"' in out
    assert 'harnesses.command.env.COLOUR = "red"' in out


def test_check_says_ok() -> None:
    ended = command("config", "check")

    assert ended.code == 0
    assert ended.out == "OK\n"


def test_check_says_every_problem_on_a_line_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text("run: {max_retry: 1}\nenvironments: {dokcer: {}}\n")

    ended = command("config", "check", "--config", path)

    assert ended.code == 2
    assert ended.err.splitlines() == [
        f"error: {path}:2: environments.dokcer: unknown name; did you mean 'docker'?",
        f"error: {path}:1: run.max_retry: unknown key; did you mean 'max_retries'?",
    ]


def test_schema_is_json() -> None:
    ended = command("config", "schema")

    assert ended.code == 0
    assert "RunSettings" in json.loads(ended.out)["$defs"]


@pytest.mark.parametrize("kind", Kind)
def test_list_as_json_has_every_built_in_adapter_with_its_parameters(kind: Kind) -> None:
    ended = command("list", kind.value, "--json")

    assert ended.code == 0
    listed = {each["name"]: each for each in json.loads(ended.out)}
    assert listed.keys() >= BUILT_INS[kind].keys()
    for name, path in BUILT_INS[kind].items():
        assert listed[name]["import_path"] == path
        assert listed[name]["origin"] == "built-in"
        assert listed[name]["parameters"]["type"] == "object"
        assert listed[name]["description"]
        assert listed[name]["problem"] is None


def test_list_prints_a_line_for_each() -> None:
    ended = command("list", "environments")

    assert ended.code == 0
    assert [line.split()[0] for line in ended.out.splitlines()][:2] == ["docker", "host_process"]


def test_an_adapter_without_its_sdk_is_listed_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = {**BUILT_INS, Kind.HARNESSES: {"no_sdk": "adapter_without_sdk:Adapter", "bug": "adapter_with_a_bug:X"}}
    monkeypatch.setattr("agentcompass.app.catalog.EXTRAS", {"an_sdk_that_nobody_has": "that-extra"})
    monkeypatch.setattr("agentcompass.app.catalog.Catalog.__init__.__defaults__", (fakes, lambda group: []))

    ended = command("list", "harnesses")

    assert ended.code == 0
    assert ended.out.splitlines() == [
        "no_sdk  (not installed: pip install 'agentcompass[that-extra]')",
        "bug     (harness 'bug': adapter_with_a_bug: broken: importing it failed: "
        "NameError: name 'undefined_thing' is not defined)",
    ]
