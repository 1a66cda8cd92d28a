"""Adapters, and a catalog of them, for the tests of settings, catalog and command line."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from agentcompass.app.catalog import Catalog, Kind
from agentcompass.app.settings import Flags, Settings, Used, load_settings
from agentcompass.domain.model import Price
from agentcompass.domain.task import Task
from agentcompass.domain.value import Parameters
from agentcompass.testing.fakes.environment import FakeEnvironment
from agentcompass.testing.fakes.harness import FakeHarness
from pydantic import Field, SecretStr, model_validator


class CloudParameters(Parameters):
    """One of every kind of setting."""

    token_id: SecretStr | None = None
    token_secret: SecretStr | None = None
    headers: dict[str, SecretStr] = {}
    image: str | None = None
    memory: int | None = Field(default=None, gt=0)
    timeout: float = 60
    debug: bool = False
    price: Price | None = None
    tags: tuple[str, ...] = ()
    env_variables: dict[str, str] = {}

    @model_validator(mode="after")
    def _whole_pair(self) -> "CloudParameters":
        if (self.token_id is None) != (self.token_secret is None):
            raise ValueError("half a pair of credentials")
        return self


class CloudEnvironment(FakeEnvironment):
    """An environment with secrets.

    More about it.
    """

    name = "cloud"
    Parameters: ClassVar[type[Parameters]] = CloudParameters


class ThinkingHarness(FakeHarness):
    """A harness that needs a model."""

    needs_model = True


class BrokenValidator(FakeEnvironment):
    """An environment whose parameters break on validation."""

    class Parameters(Parameters):
        """Breaks."""

        size: int = 0

        @model_validator(mode="after")
        def _break(self) -> "BrokenValidator.Parameters":
            raise RuntimeError("a bug of the adapter")


class PlainRecipe:
    """A recipe."""

    benchmarks: ClassVar[frozenset[str]] = frozenset({"fake"})
    environments: ClassVar[frozenset[str] | None] = None

    def __call__(self, task: Task, environment: str) -> Mapping[str, Any]:
        """Nothing."""
        return {}


FAKES = "agentcompass.testing.fakes"
BUILT_INS: Mapping[Kind, Mapping[str, str]] = {
    Kind.ENVIRONMENTS: {
        "fake": f"{FAKES}.environment:FakeEnvironment",
        "cloud-box": "settings_fakes:CloudEnvironment",
        "no_sdk": "adapter_without_sdk:Adapter",
    },
    Kind.HARNESSES: {"fake": f"{FAKES}.harness:FakeHarness", "thinking": "settings_fakes:ThinkingHarness"},
    Kind.MODELS: {"openai-chat": f"{FAKES}.model:FakeModel"},
    Kind.BENCHMARKS: {"fake": f"{FAKES}.benchmark:FakeBenchmark"},
    Kind.RECIPES: {"plain": "settings_fakes:PlainRecipe"},
}


def fake_catalog() -> Catalog:
    """The catalog of these."""
    return Catalog(BUILT_INS, lambda group: [])


def settings(
    *files: Path,
    environ: Mapping[str, str] | None = None,
    used: Used | None = None,
    catalog: Catalog | None = None,
    **flags: Any,
) -> Settings:
    """Settings of a run of fakes in `cloud-box`."""
    return load_settings(
        used or Used("fake", "fake", "none", "cloud-box"),
        config=files,
        flags=Flags(**flags),
        environ=environ or {},
        catalog=catalog or real_and_fake(),
    )


def real_and_fake() -> Catalog:
    """The fakes beside the built-in ones, which defaults.yaml has sections of."""
    from agentcompass.app.catalog import BUILT_INS as REAL

    return Catalog({kind: {**REAL[kind], **BUILT_INS[kind]} for kind in Kind}, lambda group: [])
