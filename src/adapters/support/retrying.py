"""The one retry policy: errors that say `retryable`, exponential jitter, bounded tries and time."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, stop_after_delay
from tenacity.wait import wait_base, wait_random_exponential

from ...domain.errors import AgentCompassError

log = structlog.get_logger()
Sleep = Callable[[float], Awaitable[None]]


def is_retryable(error: BaseException) -> bool:
    """Whether the call that raised `error` may be made again."""
    return isinstance(error, AgentCompassError) and error.retryable


def retrying(
    call: str,
    *,
    tries: int,
    total_s: float,
    wait: wait_base | None = None,
    max_wait_s: float = 30,
    sleep: Sleep = asyncio.sleep,
) -> AsyncRetrying:
    """Retry an idempotent call: `await retrying("docker.create", tries=4, total_s=60)(function, *args)`.

    The last error is raised as it is. Each retry is one `call.retried` event.
    """

    def report(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        wait_s = round(state.next_action.sleep, 3) if state.next_action else 0
        log.info("call.retried", call=call, tries=state.attempt_number, wait_s=wait_s, error=str(error))

    return AsyncRetrying(
        retry=retry_if_exception(is_retryable),
        stop=stop_after_attempt(tries) | stop_after_delay(total_s),
        wait=wait or wait_random_exponential(multiplier=0.5, max=max_wait_s),
        before_sleep=report,
        sleep=sleep,
        reraise=True,
    )
