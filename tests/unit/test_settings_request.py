"""`import agentcompass`: the request from Python."""

from pathlib import Path

import agentcompass
import pytest
from agentcompass.domain.run import RunRequest

NAMES = {"benchmark": "quickstart", "harness": "nop", "model": "none", "environment": "host_process"}


def test_the_request_has_what_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text("run: {task_concurrency: 9}")

    request = agentcompass.build_run_request(
        **NAMES,
        benchmark_params={"sample_ids": ("a", "b"), "k": 2},
        environment_params={"root_folder": tmp_path},
        max_retries=0,
        enabled_recipes=[],
        run_name="mine",
        run_id="one",
        reuse=False,
        config=[str(path)],
    )

    assert isinstance(request, RunRequest)
    assert request.selection.sample_ids == ("a", "b")
    assert request.k == 2
    assert request.environment_params == {"root_folder": str(tmp_path)}
    assert (request.task_concurrency, request.max_retries, request.enabled_recipes) == (9, 0, ())
    assert (request.run_name, request.run_id, request.reuse) == ("mine", "one", False)


def test_the_variables_are_a_layer_here_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTCOMPASS_RUN__TASK_CONCURRENCY", "11")

    assert agentcompass.build_run_request(**NAMES).task_concurrency == 11


def test_a_refusal_names_the_argument() -> None:
    with pytest.raises(
        agentcompass.ConfigError, match=r"^environment_params: environments.host_process.timout: unknown"
    ):
        agentcompass.build_run_request(**NAMES, environment_params={"timout": 5})


def test_the_public_names_are_there() -> None:
    assert all(hasattr(agentcompass, name) for name in agentcompass.__all__)
    assert set(agentcompass.__all__) <= set(dir(agentcompass))


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'no_such'"):
        _ = agentcompass.no_such
