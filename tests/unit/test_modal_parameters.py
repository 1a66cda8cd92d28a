"""What `environments.modal` takes, and how each wrong value is refused before anything starts."""

from pathlib import Path
from typing import Any

import pytest
from agentcompass.adapters.environments.modal.environment import ModalEnvironment, refuse_impossible
from agentcompass.adapters.environments.modal.parameters import ModalParameters, registry_variables
from agentcompass.app.container import parameters_for
from agentcompass.domain.errors import ConfigError
from agentcompass.domain.sandbox import ImageBuild, SandboxSpec

AWS = {"registry_aws_access_key_id": "a", "registry_aws_secret_access_key": "b", "registry_aws_region": "c"}
TAKEN: dict[str, dict[str, Any]] = {
    "the page's fields": {
        "app_name": "my-app",
        "environment_name": "dev",
        "image": "python:3.13-slim",
        "timeout": 86400,
        "idle_timeout": 600,
        "cpu": 0.5,
        "memory": 2048,
        "gpu": "A100:2",
        "region": "us-east,eu",
        "env_variables": {"PIP_INDEX_URL": "https://example.org/simple"},
    },
    "a named image": {"named_image": "dev/tools:v2"},
    "a token": {"token_id": "ak-1", "token_secret": "as-1"},
    "a GPU": {"gpu": "H100!"},
    "no network": {"block_network": True},
    "allow-lists": {"outbound_cidr_allowlist": ["10.0.0.0/8"], "outbound_domain_allowlist": ["*.example.org"]},
    "a registry": {"registry_username": "me", "registry_password": "pw"},
    "ECR by keys": AWS,
    "ECR by a role": {"registry_aws_role_arn": "arn:aws:iam::1:role/r", "registry_aws_region": "c"},
    "GCP": {"registry_service_account_json": "{}"},
    "a registry's Modal Secret": {"registry_secret": "my-registry"},
    "secrets and volumes": {"secrets": ["hf"], "volumes": {"/data": "datasets"}},
    "an image builder": {"image_builder_version": "2025.06"},
}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a lifetime over 24 h": ({"timeout": 86401}, "less than or equal to 86400"),
    "no lifetime": ({"timeout": 0}, "greater than 0"),
    "an idle time over 24 h": ({"idle_timeout": 90000}, "less than or equal to 86400"),
    "no cores": ({"cpu": 0}, "greater than 0"),
    "no memory": ({"memory": -1}, "greater than 0"),
    "two GPU types": ({"gpu": "A100,H100"}, "one, as in 'A100:2'"),
    "a list of GPUs": ({"gpu": ["A100", "H100"]}, "valid string"),
    "a GPU without a type": ({"gpu": "2"}, "give a type"),
    "nine GPUs": ({"gpu": "A100:9"}, "at most 8"),
    "two images": ({"image": "a", "named_image": "b"}, "image and named_image exclude each other"),
    "an image's id": ({"named_image": "im-123"}, "is no named image"),
    "half a token": ({"token_id": "ak"}, "token_secret is missing"),
    "the other half": ({"token_secret": "as"}, "token_id is missing"),
    "an empty half": ({"token_id": "ak", "token_secret": ""}, "token_secret is missing"),
    "an app's name": ({"app_name": "my app"}, "is no name at Modal"),
    "a long name": ({"app_name": "a" * 65}, "is no name at Modal"),
    "an environment's name": ({"environment_name": ""}, "is no name at Modal"),
    "an empty region": ({"region": "us,,eu"}, "empty region"),
    "blocked with an allow-list": ({"block_network": True, "outbound_cidr_allowlist": ["10.0.0.0/8"]}, "exclude"),
    "none with an allow-list": ({"network": "none", "outbound_domain_allowlist": ["example.org"]}, "exclude"),
    "open and none": ({"block_network": False, "network": "none"}, "exclude"),
    "a range that is none": ({"outbound_cidr_allowlist": ["10.0.0.1/8"]}, "'10.0.0.1/8' is no range"),
    "a domain that is an address": ({"outbound_domain_allowlist": ["https://example.org"]}, "is no domain"),
    "half a registry": ({"registry_username": "me"}, "registry_username + registry_password"),
    "two registries": ({"registry_secret": "s", "registry_service_account_json": "{}"}, "exclude"),
    "a part of AWS": ({"registry_aws_access_key_id": "a", "registry_aws_region": "c"}, "all of them"),
    "a relative mount": ({"volumes": {"data": "d"}}, "absolute path"),
    "one volume twice": ({"volumes": {"/a": "d", "/b": "d"}}, "one path only"),
    "a variable without a name": ({"env_variables": {"": "x"}}, "no name of an environment variable"),
    "a value that cannot be set": ({"env_variables": {"A": "x\0"}}, "has a NUL byte"),
    "an image builder": ({"image_builder_version": "latest"}, "as in '2025.06'"),
    "no rate": ({"create_rate": 0}, "greater than 0"),
    "an unknown key": ({"tokenid": "x"}, "not permitted"),
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_the_page_has_is_taken(name: str) -> None:
    assert parameters_for(ModalEnvironment, TAKEN[name], "environments.modal")


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_in_one_line(name: str) -> None:
    values, says = REFUSED[name]
    with pytest.raises(ConfigError) as raised:
        parameters_for(ModalEnvironment, values, "environments.modal")

    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_credentials_of_a_registry_are_named_as_the_sdk_expects_them() -> None:
    both = {"registry_username": "me", "registry_password": "pw"}

    assert registry_variables(ModalParameters()) == {}
    assert registry_variables(ModalParameters.model_validate(both)) == {
        "REGISTRY_USERNAME": "me",
        "REGISTRY_PASSWORD": "pw",
    }
    assert registry_variables(ModalParameters.model_validate(AWS)) == {
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_REGION": "c",
    }
    assert registry_variables(ModalParameters.model_validate({"registry_service_account_json": "{}"})) == {
        "SERVICE_ACCOUNT_JSON": "{}"
    }


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"platform": "linux/arm64"}, "linux/amd64 images only"),
        ({"timeout": 90000}, "86400 s at most"),
        ({"gpu": "1"}, "give a type"),
    ],
)
def test_a_task_that_asks_for_what_modal_has_not_got_is_refused(fields: dict[str, Any], says: str) -> None:
    spec = SandboxSpec.model_validate({"image": "debian:12", **fields})
    with pytest.raises(ConfigError, match=says):
        refuse_impossible(spec)


def test_amd64_images_and_builds_are_possible() -> None:
    refuse_impossible(SandboxSpec(build=ImageBuild(context=Path("x")), platform="linux/amd64", gpu="T4"))
