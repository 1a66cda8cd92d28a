"""What is left to do: tasks x attempts, minus what is stored."""

from collections.abc import Iterable, Iterator, Set

from .attempt import AttemptKey
from .task import Task


def planned(tasks: Iterable[Task], k: int, graded: Set[AttemptKey]) -> Iterator[tuple[Task, AttemptKey]]:
    """Every selected attempt that has no score yet, first attempts of all tasks first.

    Attempt 1 of every task comes before attempt 2 of any, so that an interrupted run has one score of many tasks
    rather than many scores of few.
    """
    tasks = list(tasks)
    for attempt in range(1, k + 1):
        for task in tasks:
            key = AttemptKey(task_id=task.id, attempt=attempt)
            if key not in graded:
                yield task, key
