"""The one retry policy: errors that say `retryable`, exponential jitter, bounded tries and time."""

import asyncio
import random
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


class WaitAsTold(wait_base):
    """As long as the error asks for (its `retry_after_s`, where it has one), or as `otherwise` says if that is longer.

    Never longer than `max_wait_s`. Up to a tenth is added, so that a crowd told the same does not come back as one.
    """

    def __init__(self, otherwise: wait_base, *, max_wait_s: float) -> None:
        self._otherwise = otherwise
        self._max_wait_s = max_wait_s

    def __call__(self, retry_state: RetryCallState) -> float:
        """Seconds to wait before the next try."""
        error = retry_state.outcome.exception() if retry_state.outcome else None
        told = getattr(error, "retry_after_s", None) or 0.0
        spread = told * random.uniform(1, 1.1)
        return min(max(spread, self._otherwise(retry_state)), self._max_wait_s)


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
