"""What is left to do: tasks x attempts, minus what is stored."""

from collections.abc import Callable, Iterable, Iterator

from .attempt import AttemptKey
from .task import Task


def planned(
    tasks: Iterable[Task], k: int, has_graded: Callable[[AttemptKey], bool]
) -> Iterator[tuple[Task, AttemptKey]]:
    """Every selected attempt that has no score yet, first attempts of all tasks first.

    Attempt 1 of every task comes before attempt 2 of any, so that an interrupted run has one score of many tasks
    rather than many scores of few.
    """
    tasks = list(tasks)
    for attempt in range(1, k + 1):
        for task in tasks:
            key = AttemptKey(task_id=task.id, attempt=attempt)
            if not has_graded(key):
                yield task, key
