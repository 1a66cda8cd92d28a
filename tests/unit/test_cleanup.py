"""Clean-ups, which go on through cancellations and hide none."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from agentcompass.adapters.support.cleanup import cleaned_up
from structlog.testing import capture_logs


async def _too_long() -> None:
    raise TimeoutError("not finished within 9 s")


@pytest.mark.parametrize("late", [_too_long, asyncio.Event().wait], ids=["its own limit", "ours"])
async def test_a_clean_up_that_takes_too_long_is_an_event_and_hides_no_cancellation(
    late: Callable[[], Awaitable[object]],
) -> None:
    async def cancelled() -> None:
        try:
            raise asyncio.CancelledError
        finally:
            await cleaned_up(late(), 0.01, "a kill")

    with capture_logs() as events, pytest.raises(asyncio.CancelledError):
        await cancelled()

    assert [(event["event"], event["what"], event["log_level"]) for event in events] == [
        ("cleanup.abandoned", "a kill", "error")
    ]


async def test_a_clean_up_that_fails_tells_so() -> None:
    async def fails() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await cleaned_up(fails(), 1, "a kill")
