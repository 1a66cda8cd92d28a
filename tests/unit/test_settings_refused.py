"""What is refused before anything starts, and how it is told: one line, the place, the key, the nearest valid one."""

from pathlib import Path
from typing import Any

import pytest
from agentcompass.app.settings import Used
from agentcompass.domain.errors import ConfigError
from settings_fakes import settings

BOX = "environments:\n  cloud-box:\n    "
AT = "environments.cloud-box."


def refusal(*files: Path, **given: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        settings(*files, **given)
    assert str(raised.value).isprintable()
    return str(raised.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOX + "memry: 5", ":3: " + AT + "memry: unknown key; did you mean 'memory'?"),
        (BOX + "memory: lots", ":3: " + AT + "memory: expected a whole number, not text"),
        (BOX + "memory: true", ":3: " + AT + "memory: expected a whole number, not true or false"),
        (BOX + "memory: 0", ":3: " + AT + "memory: expected more than 0, not 0"),
        (BOX + "timeout: '5'", ":3: " + AT + "timeout: expected a number, not text"),
        (BOX + "debug: yes", ":3: " + AT + "debug: expected true or false, not text"),
        (BOX + "tags: a", ":3: " + AT + "tags: expected a list, not text"),
        (BOX + "tags:\n      - a\n      - 1", ":5: " + AT + "tags[1]: expected text, not a whole number"),
        (BOX + "env_variables:\n      A: 1", ":4: " + AT + "env_variables.A: expected text, not a whole number"),
        (BOX + "price:\n      inputs: 1\n      output: 2", ":4: " + AT + "price.inputs: unknown key; did you mean"),
        ("environments:\n  cloud-box: 5", ":2: environments.cloud-box: expected a mapping of settings"),
        ("environments:\n  cloud-bx:\n    memory: 5", ":2: environments.cloud-bx: unknown name; did you mean"),
        ("environments: 5", ":1: environments: expected a mapping of names of environments"),
        ("enviroments:\n  cloud-box: {}", ":1: enviroments: unknown section; did you mean 'environments'?"),
        ("task_concurrency: 5", ":1: task_concurrency: unknown section; did you mean 'run.task_concurrency'?"),
        ("run: 5", ":1: run: expected a mapping of settings"),
        ("run:\n  progress: fancy", ":2: run.progress: expected 'auto', 'rich', 'plain', 'json' or 'none'"),
        ("run:\n  run_name: a/b", ":2: run.run_name: 'a/b' is not a name"),
        ("run:\n  enabled_recipes: [plane]", ":2: run.enabled_recipes: no recipe 'plane'; did you mean 'plain'?"),
        ("run:\n  a: 1\n  a: 2", ":3: run.a: the same key again; first in line 2"),
        ("run: [", ":1: broken YAML: "),
        ("- run", ": expected a mapping of sections"),
        ("run: {}\nharnesses:\n  thinkin: {}", ":3: harnesses.thinkin: unknown name; did you mean 'thinking'?"),
        (BOX + "price: {input: 1}", ":3: " + AT + "price: the key 'output' is missing in it"),
    ],
)  # fmt: skip
def test_a_fault_in_a_file_is_told_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "my.yaml"
    path.write_text(text)

    assert refusal(path).startswith(f"{path}{message}")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("RUN__TASK_CONCURRENCY", "many", ": run.task_concurrency: expected a whole number, not text"),
        ("RUN__TASK_CONCURRENCY", "", ": run.task_concurrency: the variable is empty"),
        ("RUN__TASK_CONCURRENCY", "[", ": run.task_concurrency:1: broken YAML"),
        ("RUN__TASK_CONCURENCY", "5", ": run.task_concurency: unknown key; did you mean 'task_concurrency'?"),
        ("RUN_TASK_CONCURRENCY", "5", ": no such setting; write AGENTCOMPASS_RUN__TASK_CONCURRENCY"),
        ("RNU__TASK_CONCURRENCY", "5", ": no such setting; did you mean AGENTCOMPASS_RUN__...?"),
        ("RUN", "5", ": names no key; write AGENTCOMPASS_RUN__KEY"),
        ("ENVIRONMENTS__CLOUD_BOX", "5", ": names no key; write AGENTCOMPASS_ENVIRONMENTS__NAME__KEY"),
        ("ENVIRONMENTS__CLOUDBOX__MEMORY", "5", ": environments.cloudbox: unknown name; did you mean"),
        ("ENVIRONMENTS__CLOUD_BOX__PRICE__INPUT", "x", ": " + AT + "price.input: expected a number"),
    ],
)
def test_a_fault_in_a_variable_is_told_with_its_name(name: str, value: str, message: str) -> None:
    assert refusal(environ={f"AGENTCOMPASS_{name}": value}).startswith(f"AGENTCOMPASS_{name}{message}")


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("environment_params", '{"memry": 5}', "--env-params: environments.cloud-box.memry: unknown key; did you mean"),
        ("environment_params", "{memory: 5}", "--env-params: not JSON: "),
        ("environment_params", "[5]", "--env-params: expected a mapping of settings"),
        ("environment_params", "@/no/such.json", "--env-params /no/such.json: No such file or directory"),
        ("benchmark_params", '{"sample_id": []}', "--benchmark-params: benchmarks.fake.sample_id: unknown key"),
        ("benchmark_params", '{"k": 0}', "--benchmark-params: benchmarks.fake.k: expected at least 1, not 0"),
        ("harness_params", '{"step": 1}', "--harness-params: harnesses.fake.step: unknown key; did you mean 'steps'?"),
        ("model_params", '{"by_trun": 1}', "--model-params: model.params.by_trun: unknown key"),
        ("model_api_protocol", "openai", "--model-api-protocol: model.api_protocol: no model 'openai'; did you mean"),
        ("task_concurrency", 0, "--task-concurrency: run.task_concurrency: expected at least 1, not 0"),
        ("max_retries", 1.5, "--max-retries: run.max_retries: expected a whole number, not 1.5"),
        ("results_dir", "", "--results-dir: run.results_dir: names nothing; write '.' for the current folder"),
        ("data_dir", "", "--data-dir: run.data_dir: names nothing"),
        ("results_dir", "~nobody-here/x", "--results-dir: run.results_dir: ~nobody-here/x: no home folder is known"),
        ("data_dir", "~nobody-here", "--data-dir: run.data_dir: ~nobody-here: no home folder is known for '~nobody-h"),
        ("benchmark_params", "@", "--benchmark-params @: names no file (write @ and the file's path)"),
        ("environment_params", "@~nobody-here/x", "--env-params ~nobody-here/x: no home folder is known for '~nobody"),
        ("timeout_seconds", float("nan"), "--timeout-seconds: run.timeout_seconds: not a finite number"),
        ("environment_params", {"tags": [object()]}, "--env-params: environments.cloud-box.tags[0]: not a plain value"),
        ("environment_params", {"image": b"x"}, "--env-params: environments.cloud-box.image: not a plain value: bytes"),
        ("run_id", "../x", "--run-id: run.run_id: '../x' is not a name"),
    ],
)  # fmt: skip
def test_a_fault_in_a_flag_is_told_with_the_flag(flag: str, value: Any, message: str) -> None:
    used = Used("fake", "thinking" if flag.startswith("model") else "fake", "m", "cloud-box")

    assert refusal(used=used, **{flag: value}).startswith(message)


@pytest.mark.parametrize("given", ['{"temperature": 0}', {"by_turn": True}])
def test_model_params_that_no_harness_would_use_are_refused(given: Any) -> None:
    message = refusal(used=Used("fake", "fake", "m", "cloud-box"), model_params=given)

    assert message.startswith("--model-params: harness 'fake' asks no model through the runner")


def test_model_params_of_a_file_that_serves_several_runs_may_go_unused(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text("model: {api_protocol: replay, params: {delay_s: 1}}")

    assert settings(path, model_params={}).request().harness == "fake"


def test_a_file_that_is_not_there_is_told_with_its_flag(tmp_path: Path) -> None:
    assert refusal(tmp_path / "no.yaml") == f"--config {tmp_path}/no.yaml: No such file or directory"


def test_a_file_of_a_user_who_is_not_there_is_told_with_its_flag() -> None:
    message = refusal(Path("~nobody-here/my.yaml"))

    told = "no home folder is known for '~nobody-here' (set HOME, or give a whole path)"
    assert message == f"--config ~nobody-here/my.yaml: {told}"


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_bytes(b"run: \xff")

    assert refusal(path) == f"--config {path}: is not UTF-8 text (byte 5)"


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_bytes(b"\xef\xbb\xbfrun: {max_retries: 3}")

    assert settings(path).run.max_retries == 3


def test_a_plain_value_over_a_mapping_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text("environments: {cloud-box: {env_variables: {A: a}}}")

    message = refusal(path, environment_params='{"env_variables": null}')

    assert message.startswith("--env-params: environments.cloud-box.env_variables: expected a mapping")


def test_an_environment_without_a_name_is_not_the_default_one() -> None:
    assert refusal(used=Used("fake", "fake", "none", "")).startswith("no environment ''; ")


def test_a_number_in_place_of_a_text_may_be_a_secret_and_is_not_shown() -> None:
    assert refusal(environment_params='{"token_id": 12345}').endswith("token_id: expected text, not a whole number")


def test_several_faults_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text("run: {a_a: 1, b_b: 2, c_c: 3}")

    assert refusal(path).endswith("(and 2 more)")


def test_two_variables_for_one_key_are_refused() -> None:
    environ = {"AGENTCOMPASS_RUN__MAX_RETRIES": "1", "agentcompass_run__max_retries": "2"}

    assert refusal(environ=environ).endswith(": AGENTCOMPASS_RUN__MAX_RETRIES sets the same")


@pytest.mark.parametrize("environ", [
    {"AGENTCOMPASS_MODEL__PARAMS": "{}", "AGENTCOMPASS_MODEL__PARAMS__BY_TURN": "true"},
    {"AGENTCOMPASS_MODEL__params__by_turn": "true", "AGENTCOMPASS_MODEL__params": "{}"},
])  # fmt: skip
def test_a_variable_for_a_mapping_and_one_inside_it_are_refused(environ: dict[str, str]) -> None:
    assert "sets the" in refusal(environ=environ)


def test_an_adapters_own_validator_is_heard(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text("environments:\n  cloud-box: {token_id: ak-1}")

    assert refusal(path) == f"{path}:2: environments.cloud-box: half a pair of credentials"


def test_a_validator_that_breaks_is_no_traceback() -> None:
    message = refusal(used=Used("fake", "fake", "none", "settings_fakes:BrokenValidator"))

    assert "its validation broke: RuntimeError: a bug of the adapter" in message


def test_sections_of_adapters_not_used_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text("environments: {fake: {no_such_key: 1}, no_sdk: {x: 1}}")

    assert settings(path).run.task_concurrency == 4
