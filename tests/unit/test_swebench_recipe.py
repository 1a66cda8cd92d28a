"""What the SWE-bench recipe asks of a sandbox."""

from pathlib import PurePosixPath
from typing import Any

import pytest
from agentcompass.adapters.recipes.swebench import SweBenchRecipe
from agentcompass.app.catalog import BUILT_INS, Kind
from agentcompass.domain.errors import ConfigError
from agentcompass.domain.resolving import resolve_spec
from agentcompass.domain.sandbox import Capabilities, Network, SandboxSpec
from agentcompass.domain.task import Task

IMAGE = "acme/sweb.eval.x86_64.acme_1776_adder-1:latest"
TASK = Task(id="acme__adder-1", instruction="Add.", metadata={"image": IMAGE})


def spec(*resources: str, **explicit: Any) -> SandboxSpec:
    capabilities = Capabilities(images=True, resources=frozenset(resources))
    return resolve_spec({}, SweBenchRecipe()(TASK, capabilities), explicit, 100)


def test_the_image_is_the_rows_and_the_work_is_in_testbed() -> None:
    asked = spec()

    assert (asked.image, asked.workspace_root) == (IMAGE, PurePosixPath("/testbed"))
    assert (asked.cpu, asked.memory, asked.network, asked.timeout) == (None, None, Network.PUBLIC, 100)


def test_an_environment_that_can_choose_is_told_the_platform() -> None:
    assert [spec("platform").platform, spec("cpu").platform] == ["linux/amd64", None]


def test_an_environment_without_images_is_refused_in_one_line() -> None:
    with pytest.raises(ConfigError, match=r"^instance 'acme__adder-1' needs its image \(use --env docker or .*\)$"):
        SweBenchRecipe()(TASK, Capabilities())


def test_what_the_user_sets_outranks_the_recipe() -> None:
    assert spec("platform", image="mine:1", platform="linux/arm64", memory=8192) == spec("platform").model_copy(
        update={"image": "mine:1", "platform": "linux/arm64", "memory": 8192}
    )


def test_a_named_image_stands_in_for_the_rows() -> None:
    asked = spec(named_image="mine")

    assert (asked.image, asked.named_image) == (None, "mine")


def test_it_is_the_recipe_of_every_benchmark_of_the_kind() -> None:
    ours = {name for name, path in BUILT_INS[Kind.BENCHMARKS].items() if ".swebench." in path}

    assert SweBenchRecipe.benchmarks == ours
