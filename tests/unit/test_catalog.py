"""Looking adapters up by name."""

from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from agentcompass.app.catalog import BUILT_INS as REAL
from agentcompass.app.catalog import Catalog, Kind, SdkMissing, description_of
from agentcompass.domain.errors import ConfigError
from agentcompass.testing.fakes.environment import FakeEnvironment
from settings_fakes import BUILT_INS, CloudEnvironment, fake_catalog


def registered(**values: str) -> Callable[[str], Iterable[EntryPoint]]:
    """Entry points of environments, name -> value."""
    group = "agentcompass.environments"
    points = [EntryPoint(name, value, group) for name, value in values.items()]
    return lambda wanted: points if wanted == group else []


def refusal(catalog: Catalog, name: str, kind: Kind = Kind.ENVIRONMENTS) -> ConfigError:
    with pytest.raises(ConfigError) as raised:
        catalog.load(kind, name)
    return raised.value


class Shapeless:
    """No port."""


class Halfway(FakeEnvironment):
    """Its parameters are no Parameters."""

    Parameters = dict  # type: ignore[assignment] # what the test is about


NOT_A_CLASS = 5


def test_a_name_is_its_class() -> None:
    assert fake_catalog().load(Kind.ENVIRONMENTS, "fake") is FakeEnvironment


def test_an_import_path_goes_wherever_a_name_goes() -> None:
    assert fake_catalog().load(Kind.ENVIRONMENTS, "settings_fakes:CloudEnvironment") is CloudEnvironment


def test_an_entry_point_is_a_name_too() -> None:
    catalog = Catalog(BUILT_INS, registered(theirs="settings_fakes:CloudEnvironment"))

    assert "theirs" in catalog.names(Kind.ENVIRONMENTS)
    assert catalog.load(Kind.ENVIRONMENTS, "theirs") is CloudEnvironment


def test_an_entry_point_does_not_replace_a_built_in_name_silently() -> None:
    catalog = Catalog(BUILT_INS, registered(fake="settings_fakes:CloudEnvironment"))

    error = refusal(catalog, "fake")

    assert "'fake' is registered twice" in error.message
    assert "settings_fakes:CloudEnvironment" in error.message


def test_registering_the_same_class_again_is_no_conflict() -> None:
    catalog = Catalog(BUILT_INS, registered(fake=BUILT_INS[Kind.ENVIRONMENTS]["fake"]))

    assert catalog.load(Kind.ENVIRONMENTS, "fake") is FakeEnvironment


def test_an_unknown_name_is_told_with_the_nearest() -> None:
    assert refusal(fake_catalog(), "cloud_bx").message == "no environment 'cloud_bx'; did you mean 'cloud-box'?"


def test_an_unknown_name_far_from_all_is_told_with_those_there_are() -> None:
    assert refusal(fake_catalog(), "zzz").message == "no environment 'zzz'; known: cloud-box, fake, no_sdk"


def test_a_missing_sdk_is_told_with_what_to_install() -> None:
    catalog = Catalog(BUILT_INS, registered(theirs="adapter_without_sdk:Adapter"))

    error = refusal(catalog, "theirs")

    assert isinstance(error, SdkMissing)
    assert "needs the package 'an_sdk_that_nobody_has'" in error.message
    assert error.hint == "pip install an_sdk_that_nobody_has"


def test_a_missing_sdk_of_an_extra_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentcompass.app.catalog.EXTRAS", {"an_sdk_that_nobody_has": "that-extra"})

    assert refusal(fake_catalog(), "no_sdk").hint == "pip install 'agentcompass[that-extra]'"


def test_a_bug_in_the_module_is_no_typo_and_its_cause_is_kept() -> None:
    error = refusal(fake_catalog(), "adapter_with_a_bug:Adapter")

    assert "broken: importing it failed: NameError: name 'undefined_thing' is not defined" in error.message
    assert isinstance(error.__cause__, NameError)
    assert not isinstance(error, SdkMissing)


def test_what_a_broken_module_says_stays_on_its_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "module_that_shouts.py").write_text("raise ValueError('one\\n two \\x1b[31mred')")
    monkeypatch.syspath_prepend(tmp_path)

    error = refusal(fake_catalog(), "module_that_shouts:Adapter")

    assert error.message.endswith(r"importing it failed: ValueError: one two \x1b[31mred")


def test_a_module_that_does_not_exist_says_so() -> None:
    error = refusal(fake_catalog(), "no_such_package.box:Box")

    assert "no_such_package.box: no such module" in error.message
    assert not isinstance(error, SdkMissing)


def test_a_class_that_does_not_exist_is_told_with_the_nearest() -> None:
    error = refusal(fake_catalog(), "settings_fakes:CloudEnviroment")

    assert "no class 'CloudEnviroment' in it; did you mean 'CloudEnvironment'?" in error.message


def test_what_is_no_class_is_refused() -> None:
    assert "no class 'NOT_A_CLASS'" in refusal(fake_catalog(), "test_catalog:NOT_A_CLASS").message


def test_a_class_that_does_not_implement_the_port_is_told_what_it_lacks() -> None:
    message = refusal(fake_catalog(), "test_catalog:Shapeless").message

    assert "Shapeless does not implement the port; it lacks Parameters, capabilities, check, close, name" in message


def test_an_adapter_of_another_kind_does_not_implement_the_port() -> None:
    message = refusal(fake_catalog(), "settings_fakes:CloudEnvironment", Kind.HARNESSES).message

    assert "harness" in message
    assert "it lacks exposes_model, files, needs_model, needs_sandbox, run" in message


def test_parameters_of_another_type_are_refused() -> None:
    assert "Parameters is no subclass" in refusal(fake_catalog(), "test_catalog:Halfway").message


@pytest.mark.parametrize("path", ["a:", ":B", "a b:C", "a:B:C", "a/b:C", "a..b:C"])
def test_a_malformed_import_path_is_refused(path: str) -> None:
    assert "is no import path" in refusal(fake_catalog(), path).message


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in Kind for name in REAL[kind]])
def test_every_built_in_adapter_loads_and_has_a_description(kind: Kind, name: str) -> None:
    assert description_of(Catalog().load(kind, name))
