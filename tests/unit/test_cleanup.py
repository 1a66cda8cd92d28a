"""Clean-ups, which go on through cancellations and hide none."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from agentcompass.adapters.support.cleanup import cleaned_up
from cancelling import cancelled
from structlog.testing import capture_logs


async def _too_long() -> None:
    raise TimeoutError("not finished within 9 s")


@pytest.mark.parametrize("late", [_too_long, asyncio.Event().wait], ids=["its own limit", "ours"])
async def test_a_clean_up_that_takes_too_long_is_an_event_and_hides_no_cancellation(
    late: Callable[[], Awaitable[object]],
) -> None:
    async def is_cancelled() -> None:
        try:
            raise asyncio.CancelledError
        finally:
            await cleaned_up(late(), 0.01, "a kill")

    with capture_logs() as events, pytest.raises(asyncio.CancelledError):
        await is_cancelled()

    assert [(event["event"], event["what"], event["log_level"]) for event in events] == [
        ("cleanup.abandoned", "a kill", "error")
    ]


async def test_a_clean_up_that_fails_tells_so() -> None:
    async def fails() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await cleaned_up(fails(), 1, "a kill")


async def _broken() -> None:
    await asyncio.sleep(0)
    raise OSError("no descriptors")


async def _late_and_broken() -> None:
    await asyncio.sleep(0.02)
    raise OSError("no descriptors")


async def test_a_clean_up_that_fails_hides_nothing_that_brought_it_about() -> None:
    async def failed() -> None:
        try:
            raise ZeroDivisionError
        finally:
            await cleaned_up(_broken(), 1, "a kill")

    with capture_logs() as events, pytest.raises(ZeroDivisionError):
        await failed()

    assert [(event["event"], event["error"]) for event in events] == [("cleanup.abandoned", "no descriptors")]


@pytest.mark.parametrize(
    ("work", "error"), [(asyncio.Event().wait, "not finished within 0.1 s"), (_late_and_broken, "no descriptors")]
)
async def test_a_clean_up_that_was_cancelled_tells_too_how_it_failed(
    work: Callable[[], Awaitable[object]], error: str
) -> None:
    cleaning = asyncio.create_task(cleaned_up(work(), 0.1, "a kill"))
    await asyncio.sleep(0.01)
    with capture_logs() as events:
        ended = await cancelled(cleaning)

    assert ended
    assert [(event["event"], event["error"]) for event in events] == [("cleanup.abandoned", error)]


async def test_a_clean_up_that_went_well_though_it_was_cancelled_is_no_event() -> None:
    cleaning = asyncio.create_task(cleaned_up(asyncio.sleep(0.02), 1, "a kill"))
    await asyncio.sleep(0.01)
    with capture_logs() as events:
        ended = await cancelled(cleaning)

    assert ended
    assert events == []
