"""`import agentcompass`: the request from Python."""

from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

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


def carried_out(request: RunRequest, **given: Any) -> tuple[Path, str]:
    """The run's folder, and what it showed on stderr."""
    stderr = StringIO()
    with redirect_stderr(stderr):
        outcome = agentcompass.run_evaluation_request(request, **given)
    return Path(outcome["paths"]["summary"]).parent, stderr.getvalue()


FAKES = "agentcompass.testing.fakes"
FAKE_RUN = {
    "benchmark": f"{FAKES}:FakeBenchmark",
    "harness": f"{FAKES}:FakeHarness",
    "model": "none",
    "environment": f"{FAKES}:FakeEnvironment",
    "run_name": "mine",
    "run_id": "one",
}


def test_what_the_settings_say_of_carrying_a_run_out_holds_where_the_call_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text(f"run: {{results_dir: {tmp_path}/set, progress: plain, timeout_seconds: 60}}")
    request = agentcompass.build_run_request(**FAKE_RUN, config=[path])
    folder, shown = carried_out(request)
    other, nothing = carried_out(request, results_dir=tmp_path / "given", progress="none")

    assert folder == tmp_path / "set" / "mine" / "one"
    assert "mine" in shown
    assert (other, nothing) == (tmp_path / "given" / "mine" / "one", "")


def test_a_limit_of_the_whole_run_may_be_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTCOMPASS_RUN__TIMEOUT_SECONDS", "0.000001")
    request = agentcompass.build_run_request(**FAKE_RUN)
    outcome = agentcompass.run_evaluation_request(request, results_dir=tmp_path)

    assert outcome["exit_code"] == 1


def test_nothing_is_shown_and_results_is_the_folder_where_nobody_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    built = agentcompass.build_run_request(**FAKE_RUN)
    by_hand = RunRequest(**built.model_dump() | {"run_id": "two"})

    assert carried_out(built) == (Path("results/mine/one"), "")
    assert carried_out(by_hand) == (Path("results/mine/two"), "")


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
