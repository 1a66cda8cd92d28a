"""Two starts are the same run only where nothing that moves a score differs."""

from typing import Any

import pytest
from agentcompass.adapters.environments.docker.environment import DockerParameters
from agentcompass.app.identity import identity
from agentcompass.domain.model import ModelEndpoint
from agentcompass.domain.run import RunRequest
from agentcompass.testing.fakes import FakeBenchmark, FakeHarness


def identity_with(harness: FakeHarness | None = None, **environment_params: Any) -> dict[str, Any]:
    request = RunRequest(
        benchmark="fake",
        harness="fake",
        environment="docker",
        model=ModelEndpoint(name="fake"),
        environment_params=environment_params,
        run_name="name",
        run_id="id",
    )
    parameters = DockerParameters.model_validate(environment_params)
    return identity(request, harness or FakeHarness(), FakeBenchmark(), [], {"environment": parameters})


@pytest.mark.parametrize("given", [{"network": "public"}, {"workspace_root": None}, {"cpu": None}, {"memory": None}])
def test_what_the_user_says_over_a_recipe_counts_also_at_its_default(given: dict[str, Any]) -> None:
    (name, value), *_ = given.items()

    assert identity_with(**given)[f"environment_params.{name}"] == value
    assert f"environment_params.{name}" not in identity_with()


def test_what_no_recipe_sets_and_moves_no_score_stays_out_at_its_default() -> None:
    assert identity_with(start_tries=4, host=None) == identity_with()


def test_the_content_of_a_harnesss_files_counts_and_none_leave_no_trace() -> None:
    told = identity_with(FakeHarness(files={"config_sha256": "abc"}))

    assert told == identity_with() | {"harness_files.config_sha256": "abc"}
