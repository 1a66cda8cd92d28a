"""Which rows of a data set to run."""

import hashlib
from collections.abc import Iterable, Sequence

from ....domain.errors import ConfigError
from ....domain.suggest import did_you_mean
from ....domain.task import TaskSelection
from .parameters import SweBenchParameters
from .rows import Row


def select_rows(rows: Sequence[Row], selection: TaskSelection, parameters: SweBenchParameters) -> list[Row]:
    """By `sample_ids`, `repo`, `difficulty`, `seed`, `offset` and `limit`, in this order.

    The order is that of `sample_ids`, else the data set's; with a seed it depends on the seed and the ids alone.

    Raises:
        ConfigError: an unknown id, repository or difficulty, with its nearest; or nothing is left.
    """
    by_id = {row.instance_id: row for row in rows}
    wanted = _known("instance", selection.sample_ids, by_id)
    chosen = [by_id[name] for name in wanted] if wanted else list(rows)
    repos = _known("repository", parameters.repo, [row.repo for row in rows])
    chosen = [row for row in chosen if not repos or row.repo in repos]
    difficulties = _known("difficulty", parameters.difficulty, [row.difficulty for row in rows])
    chosen = [row for row in chosen if not difficulties or row.difficulty in difficulties]
    if parameters.seed is not None:
        chosen.sort(key=lambda row: hashlib.sha256(f"{parameters.seed}:{row.instance_id}".encode()).digest())
    chosen = chosen[parameters.offset :][: selection.limit]
    if not chosen:
        raise ConfigError("no instance is left", hint="sample_ids, repo, difficulty and offset apply together")
    return chosen


def _known(what: str, names: str | tuple[str, ...], known: Iterable[str]) -> list[str]:
    wanted = list(dict.fromkeys([names] if isinstance(names, str) else names))
    there = dict.fromkeys(known)
    for name in wanted:
        if name not in there:
            hint = did_you_mean(name, there, count=3)
            raise ConfigError(f"the data set has no {what} {name!r}", hint=hint)
    return wanted
