"""What a refusal's body and headers mean."""

import json
from datetime import UTC, datetime

import pytest
from agentcompass.adapters.models.openai_errors import Busy, cut, one_line, read_refusal, refusal, retry_after_s
from agentcompass.adapters.support.retrying import WaitAsTold
from agentcompass.domain.errors import AgentCompassError, BudgetSpent, ContextExceeded, ModelBusy, ModelRefused
from hypothesis import given
from hypothesis import strategies as st
from tenacity import Future, RetryCallState, Retrying
from tenacity.wait import wait_fixed

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "12"}, 12),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after": "0"}, 0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Fri, 02 Jan 2026 03:05:05 GMT"}, 60),
        ({"retry-after": "Fri, 02 Jan 2026 03:04:15"}, 10),
        ({"retry-after": "Thu, 01 Jan 2026 00:00:00 GMT"}, 0),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
    ],
)
def test_retry_after_is_read_in_every_form(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers, NOW) == seconds


@given(st.text())
def test_any_retry_after_is_a_time_to_come_or_none(value: str) -> None:
    seconds = retry_after_s({"retry-after": value}, NOW)

    assert seconds is None or 0 <= seconds < float("inf")


def _waited(error: BaseException, *, otherwise: float, max_wait_s: float) -> float:
    state = RetryCallState(Retrying(), None, (), {})
    state.outcome = Future.construct(1, error, has_exception=True)
    return WaitAsTold(wait_fixed(otherwise), max_wait_s=max_wait_s)(state)


@pytest.mark.parametrize(
    ("told", "otherwise", "least", "most"),
    [(None, 3, 3, 3), (10, 3, 10, 11), (1, 3, 3, 3), (500, 3, 60, 60), (0, 3, 3, 3), (None, 99, 60, 60)],
)
def test_a_wait_is_as_told_or_longer_and_bounded(
    told: float | None, otherwise: float, least: float, most: float
) -> None:
    waited = _waited(Busy("x", retry_after_s=told), otherwise=otherwise, max_wait_s=60)

    assert least <= waited <= most


def test_errors_that_tell_no_time_wait_as_otherwise() -> None:
    assert _waited(OSError("x"), otherwise=2, max_wait_s=60) == 2


@given(st.text() | st.binary().map(lambda data: data.decode("latin-1")))
def test_any_body_has_words_on_one_line(body: str) -> None:
    told = read_refusal(body)

    assert told.text.isprintable()


@given(
    st.integers(400, 599),
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["error", "message", "code", "detail"]), inner),
    ),
)
def test_any_error_body_is_one_of_our_errors(status: int, body: object) -> None:
    error = refusal("m", status, read_refusal(json.dumps(body)))

    assert isinstance(error, ModelBusy | ModelRefused | ContextExceeded | BudgetSpent)


@pytest.mark.parametrize(
    ("status", "text", "expected"),
    [
        (400, "Unsupported value: 'temperature' does not support 0.5 with this model.", ModelRefused),
        (400, "Invalid schema for function 'bash'", ModelRefused),
        (400, "max_tokens must be at least 1", ModelRefused),
        (404, "The model `context-window-9` does not exist", ModelRefused),
        (429, "Rate limit reached for tokens per min. Limit 30000, used 29999. Please try again in 2s.", Busy),
        (429, "Too many tokens per minute, please slow down", Busy),
        (500, "CUDA error: an illegal memory access was encountered", Busy),
        (503, "The server is overloaded: no credits left in the queue", Busy),
        (400, "Requested token count exceeds the model's maximum context length of 8192 tokens.", ContextExceeded),
        (400, "Please reduce the length of the messages or completion. Current length is 8193.", ContextExceeded),
        (400, "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000", ContextExceeded),
        (400, "The prompt is too long: 9000, model maximum context length: 8192", ContextExceeded),
        (400, "invalid params, context window exceeds limit (2013)", ContextExceeded),
        (400, "The prompt length (9000) exceeds the maximum input length (8192)", ContextExceeded),
        (403, "Your team has used all available credits", BudgetSpent),
    ],
)
def test_words_are_told_apart(status: int, text: str, expected: type[AgentCompassError]) -> None:
    error = refusal("m", status, read_refusal(text))

    assert type(error) is expected


def test_style_and_script_are_no_words_of_a_page() -> None:
    page = "<style>a {b: c}</style><script>var x = 1 < 2;</script><h1>504</h1>\n<p>Gateway &amp; time-out"

    assert read_refusal(page).text.startswith("504 Gateway")


def test_cutting_says_how_much_there_was() -> None:
    assert cut("short") == "short"
    assert cut("x" * 2000).endswith("... (2000 characters)")


@given(st.text())
def test_one_line_is_idempotent(text: str) -> None:
    assert one_line(one_line(text)) == one_line(text)
