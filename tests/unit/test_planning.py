"""What is left to do: every selected attempt without a score, once, first attempts first."""

from agentcompass.domain.attempt import AttemptKey
from agentcompass.domain.planning import planned
from agentcompass.domain.task import Task
from hypothesis import given
from hypothesis import strategies as st

IDS = ("a", "b", "c", "d")
tasks = st.lists(st.sampled_from(IDS), unique=True).map(lambda ids: [Task(id=each, instruction="") for each in ids])
keys = st.builds(AttemptKey, task_id=st.sampled_from((*IDS, "not selected")), attempt=st.integers(1, 6))
graded_keys = st.frozensets(keys)


@given(tasks, st.integers(1, 5), graded_keys)
def test_what_is_planned_and_what_is_graded_is_the_selection(
    selected: list[Task], k: int, graded: frozenset[AttemptKey]
) -> None:
    plan = [key for _, key in planned(selected, k, graded.__contains__)]
    selection = {AttemptKey(task_id=task.id, attempt=number) for task in selected for number in range(1, k + 1)}

    assert len(set(plan)) == len(plan)
    assert set(plan) == selection - graded


@given(tasks, st.integers(1, 5), graded_keys)
def test_earlier_attempts_of_all_tasks_come_before_later_ones_of_any(
    selected: list[Task], k: int, graded: frozenset[AttemptKey]
) -> None:
    order = [task.id for task in selected]
    plan = [(key.attempt, order.index(key.task_id)) for _, key in planned(selected, k, graded.__contains__)]

    assert plan == sorted(plan)


@given(tasks, st.integers(1, 5), graded_keys)
def test_each_key_comes_with_its_own_task(selected: list[Task], k: int, graded: frozenset[AttemptKey]) -> None:
    assert all(task.id == key.task_id for task, key in planned(selected, k, graded.__contains__))


def test_a_plan_is_made_as_it_is_used() -> None:
    plan = planned([Task(id="a", instruction="")], 10**12, frozenset[AttemptKey]().__contains__)

    assert next(plan)[1] == AttemptKey(task_id="a", attempt=1)
