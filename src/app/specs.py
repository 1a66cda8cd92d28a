"""Which sandbox a task gets: recipes and the user's parameters, resolved."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import structlog

from ..domain.errors import ConfigError
from ..domain.merging import merged
from ..domain.ports import Benchmark, Environment, Recipe
from ..domain.resolving import lifetime_s, refuse_unsupported, resolve_spec
from ..domain.sandbox import SandboxSpec
from ..domain.task import GradingMode, Task

log = structlog.get_logger()


class SpecResolver:
    """(task, purpose) -> SandboxSpec, for one benchmark in one environment."""

    def __init__(
        self,
        benchmark: Benchmark,
        environment: Environment,
        recipes: Sequence[Recipe],
        defaults: Mapping[str, Any],
        explicit: Mapping[str, Any],
    ) -> None:
        self._benchmark, self._environment = benchmark, environment
        self._recipes = [recipe for recipe in recipes if _applies(recipe, benchmark.name, environment.name)]
        self._defaults = {key: value for key, value in defaults.items() if value is not None}
        self._explicit = explicit
        self._warned_of_timeout = False

    def __call__(self, task: Task, purpose: str = "agent") -> SandboxSpec:
        """The spec for `purpose` (`agent` or `grade`).

        Raises:
            ConfigError: the task cannot run in this environment.
        """
        recipe: dict[str, Any] = {}
        for each in self._recipes:
            recipe = merged(recipe, each(task, self._environment.capabilities))
        needed_s = lifetime_s(task.budgets, self._benchmark.grading, purpose)
        spec = resolve_spec(self._defaults, recipe, self._explicit, needed_s)
        refuse_unsupported(self._environment.name, spec, self._environment.capabilities)
        self._warn_of_timeout(task, spec, needed_s)
        return spec

    def check_all(self, tasks: Sequence[Task]) -> None:
        """Raise ConfigError for the first task that cannot run here, before anything starts."""
        purposes = ("agent", "grade") if self._benchmark.grading is GradingMode.FRESH else ("agent",)
        for task, purpose in product(tasks, purposes):
            try:
                self(task, purpose)
            except ConfigError as exc:
                raise ConfigError(f"task {task.id!r}: {exc.message}", hint=exc.hint) from exc

    def _warn_of_timeout(self, task: Task, spec: SandboxSpec, needed_s: float) -> None:
        if spec.timeout < needed_s and not self._warned_of_timeout:
            self._warned_of_timeout = True
            log.warning(
                "timeout.shorter_than_budgets",
                setting=f"environments.{self._environment.name}.timeout",
                timeout_s=spec.timeout,
                needed_s=needed_s,
                task_id=task.id,
            )


def _applies(recipe: Recipe, benchmark: str, environment: str) -> bool:
    return benchmark in recipe.benchmarks and (recipe.environments is None or environment in recipe.environments)
