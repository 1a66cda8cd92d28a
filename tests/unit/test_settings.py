"""The layers of the settings, their order, and where each value comes from."""

from pathlib import Path

import pytest
from agentcompass.app.settings import Used, cache_dir
from agentcompass.app.settings.provenance import LayerKind
from agentcompass.domain.errors import ConfigError
from settings_fakes import settings

VARIABLE = "AGENTCOMPASS_ENVIRONMENTS__CLOUD_BOX__TIMEOUT"


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A private file."""
    path = tmp_path / "my.yaml"
    path.write_text("run:\n  task_concurrency: 7\nenvironments:\n  cloud-box:\n    timeout: 10\n    memory: 512\n")
    return path


def test_the_defaults_hold_where_nothing_is_set() -> None:
    assert settings().run.task_concurrency == 4


def test_a_private_file_is_over_the_defaults(private: Path) -> None:
    assert settings(private).run.task_concurrency == 7


def test_a_later_private_file_is_over_an_earlier_one(private: Path, tmp_path: Path) -> None:
    second = tmp_path / "second.yaml"
    second.write_text("environments: {cloud-box: {timeout: 11}}")

    explicit = settings(private, second).request().environment_params

    assert explicit == {"timeout": 11, "memory": 512}


def test_a_variable_is_over_a_private_file(private: Path) -> None:
    assert settings(private, environ={VARIABLE: "20"}).request().environment_params["timeout"] == 20


def test_a_flag_is_over_a_variable(private: Path) -> None:
    chosen = settings(private, environ={VARIABLE: "20"}, environment_params='{"timeout": 30}')

    assert chosen.request().environment_params == {"timeout": 30, "memory": 512}


def test_a_flag_not_given_overwrites_nothing(private: Path) -> None:
    assert settings(private, task_concurrency=None).run.task_concurrency == 7


def test_each_value_knows_the_place_it_comes_from(private: Path) -> None:
    chosen = settings(private, environ={VARIABLE: "20"}, environment_params='{"image": "x"}').sections["environment"]

    places = {key: chosen.origin(key) for key in ("memory", "timeout", "image", "debug")}

    assert {key: origin and (origin.layer, origin.where) for key, origin in places.items()} == {
        "memory": (LayerKind.FILE, f"{private}:6"),
        "timeout": (LayerKind.VARIABLE, VARIABLE),
        "image": (LayerKind.FLAG, "--env-params"),
        "debug": None,
    }


def test_a_default_knows_its_line_of_defaults_yaml() -> None:
    origin = settings().sections["run"].origin("task_concurrency")

    assert origin is not None
    assert origin.where.startswith("config/defaults.yaml:")


def test_a_params_flag_may_name_a_yaml_file_and_its_lines_are_told(tmp_path: Path) -> None:
    path = tmp_path / "box.yaml"
    path.write_text("image: x\nmemory: 5\n")

    chosen = settings(environment_params=f"@{path}").sections["environment"]

    origin = chosen.origin("memory")
    assert chosen.explicit == {"image": "x", "memory": 5}
    assert origin is not None
    assert origin.where == f"--env-params @{path}:2"


def test_a_params_flag_may_name_a_json_file(tmp_path: Path) -> None:
    path = tmp_path / "box.json"
    path.write_text('{"memory":\t5}')

    assert settings(environment_params=f"@{path}").sections["environment"].explicit == {"memory": 5}


def test_the_environments_two_halves_stay_apart() -> None:
    used = Used("fake", "fake", "none", "host_process")

    request = settings(used=used, environment_params='{"timeout": 5}').request()

    assert request.environment_params == {"timeout": 5}
    assert "timeout" in request.environment_defaults
    assert request.environment_defaults["timeout"] is None


def test_the_environment_may_be_a_setting() -> None:
    used = Used("fake", "fake", "none")

    assert settings(used=used, environ={"AGENTCOMPASS_RUN__ENVIRONMENT": "fake"}).request().environment == "fake"


def test_mappings_merge_key_by_key_and_lists_replace(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text("environments: {cloud-box: {env_variables: {A: a, B: b}, tags: [x, y]}}")

    chosen = settings(path, environment_params='{"env_variables": {"B": "c"}, "tags": ["z"]}').request()

    assert chosen.environment_params == {"env_variables": {"A": "a", "B": "c"}, "tags": ["z"]}


def test_the_keys_that_benchmarks_share_are_not_the_benchmarks_own() -> None:
    request = settings(benchmark_params='{"sample_ids": ["task-1"], "limit": 1, "k": 3, "tasks": 2}').request()

    assert request.selection.sample_ids == ("task-1",)
    assert request.selection.limit == 1
    assert request.k == 3
    assert request.benchmark_params == {"tasks": 2}


def test_a_run_has_a_name_made_of_what_it_runs_that_can_name_a_folder() -> None:
    request = settings(used=Used("fake", "fake", "org/model:free", "fake")).request()

    assert request.run_name == "fake-fake-org-model-free"


def test_two_runs_without_an_id_have_different_ones() -> None:
    assert settings().request().run_id != settings().request().run_id


def test_enabled_recipes_are_names_with_commas_or_none_at_all() -> None:
    assert settings().request().enabled_recipes is None
    assert settings(enabled_recipes="plain, task_directory").request().enabled_recipes == ("plain", "task_directory")
    assert settings(enabled_recipes="").request().enabled_recipes == ()


def test_a_harness_without_a_model_needs_no_protocol() -> None:
    assert settings().request().model_params == {}


def test_a_harness_that_needs_a_model_refuses_none() -> None:
    with pytest.raises(ConfigError, match="harness 'thinking' needs a model"):
        settings(used=Used("fake", "thinking", "none", "fake"))


def test_the_model_section_makes_the_endpoint() -> None:
    chosen = settings(
        used=Used("fake", "thinking", "m", "fake"),
        environ={"AGENTCOMPASS_MODEL__API_KEY": "12345"},
        model_base_url="http://localhost:8000/v1",
        model_params='{"by_turn": true}',
    ).request()

    assert chosen.model.base_url == "http://localhost:8000/v1"
    assert chosen.model.api_key is not None
    assert chosen.model.api_key.get_secret_value() == "12345"
    assert chosen.model_params == {"by_turn": True}


def test_data_is_cached_in_the_users_cache_folder() -> None:
    assert cache_dir({"XDG_CACHE_HOME": "/cache"}) == Path("/cache/agentcompass")
    assert cache_dir({"XDG_CACHE_HOME": "relative"}) == Path("~/.cache/agentcompass")
    assert settings().data_dir == Path.home() / ".cache/agentcompass"


def test_a_data_dir_of_ones_own_wins(tmp_path: Path) -> None:
    assert settings(data_dir=tmp_path, environ={"XDG_CACHE_HOME": "/cache"}).data_dir == tmp_path


def test_a_section_without_content_is_an_empty_one(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text("run:\nenvironments:\n  cloud-box:\n")

    assert settings(path).run.task_concurrency == 4
