"""What a sandbox can be asked for, whichever layer of the settings asks."""

import pytest
from agentcompass.adapters.environments.docker.environment import DockerParameters
from agentcompass.adapters.environments.host_process.environment import HostProcessParameters
from agentcompass.adapters.environments.modal.parameters import ModalParameters
from agentcompass.domain.errors import ConfigError
from agentcompass.domain.resolving import resolve_spec
from agentcompass.domain.sandbox import ImageBuild, SandboxSpec
from agentcompass.domain.value import first_fault
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

MODELS = [SandboxSpec, DockerParameters, HostProcessParameters, ModalParameters]
settable_names = st.text(st.characters(exclude_characters="=\0", exclude_categories=("Cs",)), min_size=1)
settable_values = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"A=B": "x"}, "'A=B' is no name of an environment variable"),
        ({"": "x"}, "'' is no name of an environment variable"),
        ({"A\0": "x"}, r"is no name of an environment variable"),
        ({"A": "x\0y"}, "the value of 'A' has a NUL byte"),
    ],
)
def test_variables_that_no_process_can_have_are_refused(
    model: type[BaseModel], variables: dict[str, str], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        model(env_variables=variables)


@pytest.mark.parametrize("model", MODELS)
def test_a_workspace_that_is_no_absolute_path_is_refused_by_its_setting(model: type[BaseModel]) -> None:
    with pytest.raises(ValidationError) as caught:
        model(workspace_root="app")

    assert first_fault(caught.value) == "workspace_root: 'app' is not an absolute path"


@given(st.dictionaries(settable_names, settable_values))
def test_all_others_are_taken_as_they_are(variables: dict[str, str]) -> None:
    assert SandboxSpec(env_variables=variables).env_variables == variables


def test_what_a_recipe_sets_is_refused_in_one_line_too() -> None:
    with pytest.raises(ConfigError, match="'A=B' is no name") as caught:
        resolve_spec({}, {"env_variables": {"A=B": "x"}}, {}, 60)

    assert str(caught.value).isprintable()


@pytest.mark.parametrize(("given_gpu", "gpu"), [(1, "1"), ("2", "2"), ("all", "all"), (None, None)])
def test_a_count_of_gpus_is_a_number_or_text(given_gpu: int | str | None, gpu: str | None) -> None:
    assert DockerParameters(gpu=given_gpu).gpu == gpu  # type: ignore[arg-type]  # as a settings file gives it
    assert SandboxSpec(gpu=given_gpu).gpu == gpu  # type: ignore[arg-type]  # as a settings file gives it


@pytest.mark.parametrize("gpu", ["A100", "0", 0, -1, "", "1.5", "²", True, 1.5, ["1"]])
def test_docker_refuses_what_is_no_count_of_gpus(gpu: object) -> None:
    with pytest.raises(ValidationError):
        DockerParameters(gpu=gpu)  # type: ignore[arg-type]  # as a settings file gives it


@pytest.mark.parametrize("seconds", [1e300, float("inf"), float("nan"), 0, -1])
@pytest.mark.parametrize("field", ["timeout", "pull_timeout_s", "start_timeout_s", "call_timeout_s"])
def test_limits_that_no_clock_can_keep_are_refused(field: str, seconds: float) -> None:
    with pytest.raises(ValidationError):
        DockerParameters(**{field: seconds})  # type: ignore[arg-type]  # each is a number


@pytest.mark.parametrize("seconds", [1e300, float("inf"), float("nan"), 0])
def test_the_limit_of_a_build_is_one_that_a_clock_can_keep(seconds: float) -> None:
    with pytest.raises(ValidationError):
        DockerParameters(build=ImageBuild(context="x", timeout_s=seconds))  # type: ignore[arg-type]  # a path's text
