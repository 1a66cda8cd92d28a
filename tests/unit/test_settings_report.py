"""What `config show`, `check` and `schema` say, for adapters of every kind."""

from pathlib import Path

import pytest
from agentcompass.app.catalog import BUILT_INS as REAL
from agentcompass.app.catalog import Catalog, Kind
from agentcompass.app.settings.report import Line, check, shown
from agentcompass.app.settings.schema import schema
from agentcompass.domain.errors import ConfigError
from agentcompass.domain.redaction import MASK
from settings_fakes import BUILT_INS, fake_catalog, real_and_fake

KEY = "sk-hush"


@pytest.fixture
def catalog(monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """The fakes alone, above a defaults.yaml that has no section of adapters."""
    from agentcompass.app.settings.provenance import Layer, LayerKind

    monkeypatch.setattr("agentcompass.app.settings.loading.defaults_layer", lambda: Layer(LayerKind.DEFAULTS, {}))
    return fake_catalog()


def private(tmp_path: Path, text: str) -> list[Path]:
    path = tmp_path / "my.yaml"
    path.write_text(text)
    return [path]


def by_key(lines: list[Line]) -> dict[str, Line]:
    return {line.key: line for line in lines}


def test_each_effective_setting_is_shown_with_its_place(tmp_path: Path, catalog: Catalog) -> None:
    config = private(tmp_path, "environments:\n  cloud-box:\n    memory: 5\n")

    lines = by_key(shown(config, {"AGENTCOMPASS_RUN__MAX_RETRIES": "3"}, catalog))

    assert lines["environments.cloud-box.memory"] == Line("environments.cloud-box.memory", 5, "file", f"{config[0]}:3")
    assert lines["run.max_retries"] == Line("run.max_retries", 3, "variable", "AGENTCOMPASS_RUN__MAX_RETRIES")
    assert lines["environments.cloud-box.debug"].layer == "built-in"


def test_secrets_are_masked_wherever_they_are_set(tmp_path: Path, catalog: Catalog) -> None:
    config = private(
        tmp_path,
        f"environments:\n  cloud-box: {{token_id: {KEY}, token_secret: {KEY}, headers: {{a: {KEY}}}}}\n"
        f"  no_sdk: {{whatever: {KEY}, deep: {{er: [{KEY}]}}}}\n"
        f"model: {{api_key: {KEY}, base_url: 'https://me:{KEY}@host/v1'}}\n",
    )

    lines = shown(config, {"AGENTCOMPASS_ENVIRONMENTS__NO_SDK__TOKEN": KEY}, catalog)

    values = {line.key: line.value for line in lines}
    assert KEY not in str(lines)
    assert values["environments.cloud-box.token_id"] == MASK
    assert values["environments.no_sdk.whatever"] == MASK
    assert values["environments.no_sdk.token"] == MASK
    assert values["model.base_url"] == f"https://{MASK}@host/v1"


def test_keys_in_the_query_of_an_address_are_masked(tmp_path: Path, catalog: Catalog) -> None:
    config = private(tmp_path, f"model: {{base_url: 'https://host/v1?api-key={KEY}&api-version=2024-06-01'}}\n")

    values = {line.key: line.value for line in shown(config, {}, catalog)}

    assert values["model.base_url"] == f"https://host/v1?api-key={MASK}&api-version=2024-06-01"


def test_keys_in_an_address_within_a_text_are_masked(tmp_path: Path, catalog: Catalog) -> None:
    text = f"curl 'https://host/x?token={KEY}' --fail"
    config = private(tmp_path, f'environments: {{cloud-box: {{env_variables: {{FETCH: "{text}"}}}}}}')

    values = {line.key: line.value for line in shown(config, {}, catalog)}

    assert values["environments.cloud-box.env_variables.FETCH"] == f"curl 'https://host/x?token={MASK}' --fail"


def test_showing_wrong_settings_is_refused(tmp_path: Path, catalog: Catalog) -> None:
    with pytest.raises(ConfigError, match=r"my.yaml:1: run.x: unknown key"):
        shown(private(tmp_path, "run: {x: 1}"), {}, catalog)


def test_a_check_tells_every_problem_of_every_section(tmp_path: Path, catalog: Catalog) -> None:
    text = (
        "run: {x: 1, task_concurrency: many}\nenvironments: {fake: {imag: 1}, clod: {}}\nharnesses: {fake: {steps: x}}"
    )

    report = check(private(tmp_path, text), {}, catalog)

    starts = ["my.yaml:2: environments.clod", "my.yaml:1: run.x", "my.yaml:1: run.task_concurrency"]
    starts += ["my.yaml:3: harnesses.fake.steps", "my.yaml:2: environments.fake.imag"]
    assert len(report.problems) == len(starts)
    assert all(any(start in problem for problem in report.problems) for start in starts)


def test_a_check_reads_on_after_a_broken_file(tmp_path: Path, catalog: Catalog) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("run: [")

    report = check([broken, *private(tmp_path, "run: {x: 1}")], {}, catalog)

    assert len(report.problems) == 2


def test_a_check_notes_what_it_could_not_check(tmp_path: Path, catalog: Catalog) -> None:
    report = check(private(tmp_path, "environments: {no_sdk: {x: 1}}"), {}, catalog)

    assert report.problems == []
    assert len(report.notes) == 1
    assert report.notes[0].startswith("environments.no_sdk: not checked: environment 'no_sdk' needs the package")


def test_a_missing_sdk_is_no_note_where_its_section_is_not_set(catalog: Catalog) -> None:
    report = check([], {}, catalog)

    assert (report.problems, report.notes) == ([], [])


def test_a_broken_adapter_is_a_problem(catalog: Catalog) -> None:
    broken = {**BUILT_INS, Kind.HARNESSES: {"broken": "adapter_with_a_bug:X"}}

    report = check([], {}, Catalog(broken, lambda group: []))

    assert len(report.problems) == 1
    assert "broken: importing it failed: NameError" in report.problems[0]


def test_sections_of_import_paths_are_checked_too(tmp_path: Path, catalog: Catalog) -> None:
    report = check(private(tmp_path, "environments: {'settings_fakes:CloudEnvironment': {memry: 1}}"), {}, catalog)

    assert len(report.problems) == 1
    assert "memry: unknown key; did you mean 'memory'?" in report.problems[0]


def test_the_schema_has_every_section_and_resolves_its_references() -> None:
    whole = schema(real_and_fake())

    def references(value: object) -> set[str]:
        if isinstance(value, dict):
            own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
            return own.union(*map(references, value.values()))
        return set().union(*map(references, value)) if isinstance(value, list) else set()

    sections = whole["properties"]
    assert sections.keys() == {"run", "model", "environments", "benchmarks", "harnesses", "recipes"}
    assert sections["environments"]["properties"].keys() == {*REAL[Kind.ENVIRONMENTS], *BUILT_INS[Kind.ENVIRONMENTS]}
    assert {reference.removeprefix("#/$defs/") for reference in references(whole)} <= whole["$defs"].keys()


def test_the_schema_describes_fields_by_the_docstring_under_them() -> None:
    run = schema(fake_catalog())["$defs"]["RunSettings"]["properties"]

    assert run["task_concurrency"]["description"] == "Attempts at the same time."
