"""How long each stage of a task may take: as its task.toml says, or as the user says instead."""

from pydantic import Field

from ....domain.sandbox import LONGEST_TIMEOUT_S
from ....domain.task import StageBudgets
from ....domain.value import Parameters
from .sandbox_logs import KEEP_LIMIT_S
from .task_toml import TaskProblems, TaskToml

DEFAULT_AGENT_S = 3600.0
GRADE_TRANSFERS_S = 180.0
"""For what surrounds a run of the tests: putting them in, fetching what the verdict needs."""
MOST_TEST_RUNS = 2
"""They run again where the first run was disturbed."""
_TRANSFERS_S = 300.0
"""Of a stage that has no limit in task.toml."""


class TaskLimits(Parameters):
    """What to change of the tasks' limits."""

    agent_timeout_s: float | None = Field(default=None, gt=0, le=LONGEST_TIMEOUT_S)
    """Instead of every task's agent.timeout_sec; 3600 where neither is given."""
    verifier_timeout_s: float | None = Field(default=None, gt=0, le=LONGEST_TIMEOUT_S)
    """Instead of every task's verifier.timeout_sec."""
    start_timeout_s: float | None = Field(
        default=None, gt=0, le=LONGEST_TIMEOUT_S, json_schema_extra={"identity": False}
    )
    """Pull or build, and start: instead of every task's environment.build_timeout_sec."""
    timeout_multiplier: float = Field(default=1, gt=0, le=1000, allow_inf_nan=False)
    """Multiplies the limits of all stages; in the grade that of the tests. Below 1 it shortens neither preparing
    nor collecting."""


def tests_limit(task: TaskToml, limits: TaskLimits) -> tuple[float, str]:
    """Seconds for one run of the tests, and what sets them.

    Raises:
        TaskProblems: more than the longest limit; as of all functions here.
    """
    upstream = task.verifier.timeout_sec
    return _scaled(limits.verifier_timeout_s, "verifier_timeout_s", upstream, "verifier.timeout_sec", limits)


def stage_budgets(task: TaskToml, limits: TaskLimits) -> StageBudgets:
    """The limits of all stages, by the names of what raises them."""
    check, hooks = task.environment.healthcheck, task.verifier.collect
    start_s, start = _start_limit(task, limits)
    prepare_s, prepare = _around(check.longest_s if check else 0, "environment.healthcheck", limits)
    agent_s, agent = _agent_limit(task, limits)
    collect_s, collect = _around(sum(hook.timeout_sec for hook in hooks), "verifier.collect", limits)
    tests_s, tests = tests_limit(task, limits)
    transfers_s = MOST_TEST_RUNS * GRADE_TRANSFERS_S + KEEP_LIMIT_S
    return StageBudgets(
        start_s=start_s,
        prepare_s=prepare_s,
        agent_s=agent_s,
        collect_s=collect_s,
        grade_s=MOST_TEST_RUNS * tests_s + transfers_s,
        names={
            "start": start,
            "prepare": prepare,
            "agent": agent,
            "collect": collect,
            "grade": f"{tests} x {MOST_TEST_RUNS} + {transfers_s:g} s for transfers",
        },
    )


def _start_limit(task: TaskToml, limits: TaskLimits) -> tuple[float, str]:
    name = "environment.build_timeout_sec (or start_timeout_s)"
    return _scaled(limits.start_timeout_s, "start_timeout_s", task.environment.build_timeout_sec, name, limits)


def _agent_limit(task: TaskToml, limits: TaskLimits) -> tuple[float, str]:
    own = "agent_timeout_s"
    if task.agent.timeout_sec is None:
        return _scaled(limits.agent_timeout_s, own, DEFAULT_AGENT_S, own, limits)
    return _scaled(limits.agent_timeout_s, own, task.agent.timeout_sec, "agent.timeout_sec", limits)


def _scaled(
    override_s: float | None, override: str, upstream_s: float, upstream: str, limits: TaskLimits
) -> tuple[float, str]:
    limit_s, name = (upstream_s, upstream) if override_s is None else (override_s, override)
    factor = limits.timeout_multiplier
    return _possible(limit_s * factor, name if factor == 1 else f"{name} x timeout_multiplier")


def _around(task_s: float, task: str, limits: TaskLimits) -> tuple[float, str]:
    """A fixed time, which no factor shortens, and what the task asks for."""
    name = f"({_TRANSFERS_S:g} s + {task})" if task_s else f"{_TRANSFERS_S:g} s"
    limit_s = (_TRANSFERS_S + task_s) * max(1, limits.timeout_multiplier)
    return _possible(limit_s, f"{name} x max(1, timeout_multiplier)")


def _possible(limit_s: float, name: str) -> tuple[float, str]:
    if limit_s > LONGEST_TIMEOUT_S:
        raise TaskProblems([f"{name}: {limit_s:g} s is more than the longest limit of {LONGEST_TIMEOUT_S} s"])
    return limit_s, name
