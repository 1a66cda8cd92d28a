"""What every result store promises: nothing is lost, nothing is mixed."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ..domain.attempt import (
    AssistantContent,
    AttemptKey,
    AttemptRecord,
    EarlierTry,
    ExitReason,
    Failure,
    SandboxRecord,
    Stage,
    Status,
    Step,
)
from ..domain.errors import ConfigError
from ..domain.model import ToolCall, Usage
from ..domain.ports import ResultStore
from ..domain.run import GRADED, RunInfo, RunSummary
from ..domain.scoring import Tally

STARTED, ENDED = "2026-01-01T00:00:00.000+00:00", "2026-01-01T00:01:00.000+00:00"
KEY = AttemptKey(task_id="task", attempt=1)
AWKWARD_IDS = (
    "a/b",
    "a-b",
    "a b",
    "A",
    "a",
    "Ä",
    "ä",
    "",
    ".",
    "..",
    "con",
    "x" * 300,
    "中文",
    "lone\udc80",
    "a.1",
    "~",
)
UNGRADED = sorted(set(Status) - GRADED)


def run_info(**fields: Any) -> RunInfo:
    """A run to be opened."""
    defaults: dict[str, Any] = {
        "run_name": "name",
        "run_id": "id",
        "identity": {"model": "m", "harness_params.step_limit": 5, "dataset": {"revision": "r1"}},
        "request": {"model": {"name": "m"}, "task_concurrency": 4},
        "host": "host",
        "started_at": STARTED,
    }
    return RunInfo.model_validate(defaults | fields)


def graded(*, correct: bool = True, **fields: Any) -> AttemptRecord:
    """A record with every field set."""
    failure = Failure(stage=Stage.START, kind="SandboxBusy", elapsed_s=1.5, transient=True)
    defaults: dict[str, Any] = {
        "status": Status.COMPLETED,
        "correct": correct,
        "score": float(correct),
        "exit_reason": ExitReason.SUBMITTED,
        "final_answer": "done ✓\n",
        "submission_sha256": "0" * 64,
        "usage": Usage(input_tokens=10, output_tokens=2, cost_usd=None),
        "timings": {"agent": 1.25, "total": 2.5},
        "started_at": STARTED,
        "ended_at": ENDED,
        "sandboxes": (SandboxRecord(environment="docker", id="c0ffee", image="python:3.13-slim"),),
        "tries": (EarlierTry(error="busy", failure=failure, ended_at=STARTED, usage=Usage(input_tokens=1)),),
        "trajectory": "trajectories/task.1.jsonl",
        "artifacts": ("logs/task.1/patch.diff",),
        "extra": {"verify_log": {"reward": 1.0, "test_return_code": 0}},
    }
    return AttemptRecord.model_validate(defaults | fields)


def ungraded(status: Status = Status.RUN_ERROR, **fields: Any) -> AttemptRecord:
    """A record without a score."""
    failure = Failure(stage=Stage.AGENT, kind="SandboxLost", elapsed_s=3, transient=True)
    defaults: dict[str, Any] = {"status": status, "error": "agent: it died", "failure": failure}
    return AttemptRecord.model_validate(defaults | {"started_at": STARTED, "ended_at": ENDED} | fields)


def step(number: int, text: str = "") -> Step:
    """A step with something in every part."""
    call = ToolCall(id="1", name="bash", arguments='{"command": "ls"}')
    content = AssistantContent(content=text or f"step {number}", reasoning_content="why", tool_calls=(call,))
    return Step(step_id=number, user_content="go", assistant_content=content, observation=text, timestamp=STARTED)


def summary(tally: Tally) -> RunSummary:
    """The summary of a small run."""
    return tally.summary(
        run_name="name",
        run_id="id",
        benchmark="b",
        harness="h",
        model="m",
        environment="e",
        started_at=STARTED,
        ended_at=ENDED,
    )


class ResultStoreContract:
    """Subclass it and define `store`, `abandon` and `steps_of`; pytest runs the promises over them."""

    pytestmark = pytest.mark.asyncio

    def store(self) -> ResultStore:
        """A store over this test's storage, which is empty when the test begins: like that of a new process."""
        raise NotImplementedError

    def abandon(self, store: ResultStore) -> None:
        """Leave an open store as a killed process does: nothing more is written, the system frees its locks."""
        raise NotImplementedError

    def steps_of(self, store: ResultStore, key: AttemptKey) -> list[Step]:
        """The steps stored of the attempt's present try."""
        raise NotImplementedError

    @asynccontextmanager
    async def opened(self, info: RunInfo | None = None) -> AsyncIterator[ResultStore]:
        """An open store whose records were taken up."""
        store = self.store()
        list(await store.open(info or run_info()))
        try:
            yield store
        finally:
            await store.close()

    async def stored(self) -> dict[AttemptKey, AttemptRecord]:
        """What a new start of the run finds; each attempt once."""
        store = self.store()
        try:
            found = list(await store.open(run_info()))
        finally:
            await store.close()

        assert len(dict(found)) == len(found)
        return dict(found)

    async def test_a_new_run_holds_nothing(self) -> None:
        """As the iterator says."""
        assert await self.stored() == {}

    async def test_a_saved_attempt_is_found_again_as_it_was(self) -> None:
        """Field by field."""
        async with self.opened() as store:
            await store.save_attempt(KEY, "easy", graded())

        assert await self.stored() == {KEY: graded()}

    async def test_a_saved_attempt_outlives_a_kill(self) -> None:
        """Durable when the call returns, not when the run ends."""
        store = self.store()
        list(await store.open(run_info()))
        await store.save_attempt(KEY, "", graded())
        self.abandon(store)

        assert await self.stored() == {KEY: graded()}

    async def test_errors_are_stored_and_found_too(self) -> None:
        """With what is known of them."""
        keys = [AttemptKey(task_id=f"task-{status}", attempt=1) for status in UNGRADED]
        records = {key: ungraded(status) for key, status in zip(keys, UNGRADED, strict=True)}
        async with self.opened() as store:
            for key, record in records.items():
                await store.save_attempt(key, "", record)
        found = await self.stored()

        assert {key: (record.status, record.error, record.failure) for key, record in found.items()} == {
            key: (record.status, record.error, record.failure) for key, record in records.items()
        }

    @pytest.mark.parametrize("status", UNGRADED)
    async def test_a_graded_attempt_is_never_replaced_by_one_without_a_score(self, status: Status) -> None:
        """Also not by a later start."""
        async with self.opened() as store:
            await store.save_attempt(KEY, "", graded())
            await store.save_attempt(KEY, "", ungraded(status))
        async with self.opened() as store:
            await store.save_attempt(KEY, "", ungraded(status))

        assert await self.stored() == {KEY: graded()}

    @pytest.mark.parametrize("status", UNGRADED)
    async def test_a_graded_attempt_replaces_one_without_a_score(self, status: Status) -> None:
        """That is what a resume is for."""
        async with self.opened() as store:
            await store.save_attempt(KEY, "", ungraded(status))
        async with self.opened() as store:
            await store.save_attempt(KEY, "", graded())

        assert await self.stored() == {KEY: graded()}

    async def test_attempts_of_one_task_saved_side_by_side_are_all_there(self) -> None:
        """None overwrites another."""
        keys = [AttemptKey(task_id="task", attempt=number) for number in range(1, 21)]
        async with self.opened() as store:
            await asyncio.gather(*(store.save_attempt(key, "", graded(score=key.attempt / 20)) for key in keys))
        found = await self.stored()

        assert {key: record.score for key, record in found.items()} == {key: key.attempt / 20 for key in keys}

    async def test_awkward_task_ids_are_kept_apart(self) -> None:
        """Whatever the file system thinks of them."""
        keys = [AttemptKey(task_id=task_id, attempt=1) for task_id in AWKWARD_IDS]
        async with self.opened() as store:
            for number, key in enumerate(keys):
                store.begin_attempt(key)
                await store.append_step(key, step(1))
                await store.save_attempt(key, "", graded(score=float(number)))
        found = await self.stored()

        assert {key: record.score for key, record in found.items()} == {key: float(n) for n, key in enumerate(keys)}

    @pytest.mark.parametrize(
        "value",
        [math.nan, math.inf, Path("a/b"), {1, 2}, b"\xff", object(), {2: 3}, "lone \udc80", 10**5000],
        ids=["nan", "inf", "path", "set", "bytes", "object", "int-keys", "surrogate", "huge-int"],
    )
    async def test_odd_values_neither_raise_nor_lose_the_score(self, value: object) -> None:
        """They are stored in some readable form."""
        async with self.opened() as store:
            await store.save_attempt(KEY, "", graded().model_copy(update={"extra": {"odd": value}}))
        found = await self.stored()

        assert found[KEY].score == 1.0
        assert "odd" in found[KEY].extra

    async def test_a_live_run_is_refused_to_others_until_it_is_closed(self) -> None:
        """Two writers would mix their results."""
        async with self.opened():
            other = self.store()
            with pytest.raises(ConfigError):
                await other.open(run_info())

        assert await self.stored() == {}

    async def test_closing_twice_or_unopened_does_no_harm(self) -> None:
        """It is called on every path."""
        store = self.store()
        await store.close()
        list(await store.open(run_info()))
        await store.close()
        await store.close()

        assert await self.stored() == {}

    async def test_another_identity_is_refused_naming_what_differs(self) -> None:
        """And the stored results stay."""
        async with self.opened() as store:
            await store.save_attempt(KEY, "", graded())
        other = self.store()
        with pytest.raises(ConfigError, match="model") as refused:
            await other.open(run_info(identity=run_info().identity | {"model": "other"}))
        await other.close()

        assert "step_limit" not in str(refused.value)
        assert await self.stored() == {KEY: graded()}

    async def test_the_same_identity_is_taken_up_whatever_else_differs(self) -> None:
        """Another host, another concurrency, later."""
        async with self.opened() as store:
            await store.save_attempt(KEY, "", graded())
        again = self.store()
        found = list(await again.open(run_info(host="other", request={"task_concurrency": 9}, started_at=ENDED)))
        await again.close()

        assert dict(found) == {KEY: graded()}

    async def test_steps_are_there_as_they_happen_and_after_a_kill(self) -> None:
        """In order, and as they were."""
        store = self.store()
        list(await store.open(run_info()))
        store.begin_attempt(KEY)
        steps = [step(1), step(2, "lines\nand\u2028breaks"), step(3, "lone \udc80 ✓")]
        for each in steps:
            await store.append_step(KEY, each)
        self.abandon(store)

        assert self.steps_of(store, KEY) == steps

    async def test_steps_of_attempts_side_by_side_do_not_mix(self) -> None:
        """Each goes to its own."""
        keys = [AttemptKey(task_id=f"task-{n}", attempt=1 + n % 2) for n in range(20)]

        async def work(store: ResultStore, key: AttemptKey) -> None:
            store.begin_attempt(key)
            for number in range(1, 6):
                await store.append_step(key, step(number, key.task_id))

        async with self.opened() as store:
            await asyncio.gather(*(work(store, key) for key in keys))
            found = {key: self.steps_of(store, key) for key in keys}

        assert found == {key: [step(number, key.task_id) for number in range(1, 6)] for key in keys}

    async def test_a_new_try_begins_without_the_steps_of_the_last(self) -> None:
        """They are another try's."""
        async with self.opened() as store:
            store.begin_attempt(KEY)
            await store.append_step(KEY, step(1, "first try"))
            logs = store.begin_attempt(KEY)
            await store.append_step(KEY, step(1, "second try"))
            found = self.steps_of(store, KEY)

            assert logs.is_dir()
            assert found == [step(1, "second try")]

    async def test_the_summary_names_its_three_paths(self) -> None:
        """As the SDK hands them out."""
        async with self.opened() as store:
            paths = await store.save_summary(summary(Tally(1, 1)))

        assert {"run_info", "summary", "details"} <= paths.keys()
