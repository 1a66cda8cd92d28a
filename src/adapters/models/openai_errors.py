"""What an endpoint's refusal means: busy, refused, too long, or out of money. The one table for all its dialects."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from ...domain.errors import AgentCompassError, BudgetSpent, ContextExceeded, ModelBusy, ModelRefused

MAX_TEXT = 500
"""Characters of an endpoint's own words that a message repeats."""
_LONGEST_READ = 20_000
"""Characters of a refusal that are looked at."""

_BUDGET_CODES = {
    "insufficient_quota",
    "billing_hard_limit_reached",
    "billing_not_active",
    "exceeded_current_quota_error",
    "insufficient_balance",
    "insufficient_credits",
    "budget_exceeded",
    "accountoverdueerror",
    "arrearage",
}
# Not "check your plan and billing details": Gemini says that of a limit per minute.
_BUDGET_WORDS = re.compile(
    r"insufficient (account )?(balance|credits?|funds)|credit balance is too low|used all available credits"
    r"|(billing|spending|spend) (hard )?limit|budget has been exceeded|out of credits|余额不足|欠费",
    re.IGNORECASE,
)
_CONTEXT_CODES = {
    "context_length_exceeded",
    "exceed_context_size_error",
    "context_window_exceeded",
    "string_above_max_length",
}
_CONTEXT_WORDS = re.compile(
    r"context[_ ]length[_ ]exceeded"
    r"|maximum (context|prompt|model|input) length|max_model_len|max_seq_len|longer than the (maximum )?model"
    r"|exceeds? the (available |model'?s? )?(maximum )?(context|allowed number of input)"
    r"|exceeds? (the )?(maximum )?(context|model)[ _](length|size|window|limit|token limit)"
    r"|exceeded model token limit|exceeds? the maximum number of tokens|exceeds? (the )?(maximum )?input (length|limit)"
    r"|context (window|length|size) (is |was |has been )?(full|exceeded|exceeds|too)|context (window )?overflow"
    r"|exceeds? context window|loaded with context length of|model's (maximum )?context length"
    r"|(prompt|input|conversation) is too long|prompt too long|too many tokens|too large for model with"
    r"|reduce the length of the (messages|prompt|input)|`?inputs`? tokens \+ `?max_new_tokens`? must be"
    r"|range of input length should be|(prompt|输入)\s*(超长|过长)|超出.{0,12}(上下文|最大长度)",
    re.IGNORECASE,
)
_WINDOW = re.compile(r"(?:context length|context window|model length)\D{0,40}(\d[\d,]*)", re.IGNORECASE)
_TOO_LARGE = re.compile(r"request too large", re.IGNORECASE)

_CONTEXT_STATUSES = frozenset({400, 413, 422, 500})
_TRANSIENT_STATUSES = frozenset({408, 425, 429})
_NOT_IMPLEMENTED = 501
_HINTS = {
    400: "look at --model-params and at what the endpoint supports",
    401: "check the key: --model-api-key or model.api_key",
    403: "the key is not allowed to use this model",
    404: "check the model's name, and the base URL (most end in /v1)",
    422: "look at --model-params and at what the endpoint supports",
}


class Busy(ModelBusy):
    """One failed try; `retry_after_s` is how long the endpoint asks to be left alone."""

    def __init__(self, message: str, *, hint: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class Told(NamedTuple):
    """An endpoint's refusal: its words and its code, lower case."""

    text: str
    codes: frozenset[str]


def read_refusal(body: str) -> Told:
    """The words and codes in an error body: JSON of any dialect, an HTML page, plain text."""
    body = body[:_LONGEST_READ]
    try:
        parsed: Any = json.loads(body)
    except (ValueError, RecursionError):
        return Told(one_line(_page_text(body)), frozenset())
    error = parsed[0] if isinstance(parsed, list) and parsed else parsed
    outer = error if isinstance(error, dict) else {}
    inner = outer.get("error", error)
    fields = inner if isinstance(inner, dict) else outer
    text = _words(inner if isinstance(inner, str) else fields) or body
    named = (fields.get(name) for name in ("code", "type", "status"))
    return Told(one_line(text), frozenset(str(code).lower() for code in named if code))


def _words(error: Any) -> str:
    if isinstance(error, str):
        return error
    if not isinstance(error, dict):
        return ""
    parts = [_plain(error.get(name)) for name in ("message", "detail", "msg")]
    metadata = error.get("metadata")
    if isinstance(metadata, dict):
        parts.append(_plain(metadata.get("raw")))  # a router's upstream, in its own words
    return " ".join(filter(None, parts))


def _plain(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _page_text(body: str) -> str:
    if "<" not in body:
        return body
    visible = re.sub(r"<(script|style)\b.*?</\1\s*>|<[^>]*>", " ", body, flags=re.IGNORECASE | re.DOTALL)
    return visible if visible.strip() else body


def one_line(text: str) -> str:
    """`text` without line breaks and control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def cut(text: str) -> str:
    """At most MAX_TEXT characters of `text`, saying so where it was more."""
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}... ({len(text)} characters)"


def refusal(
    message: str, status: int, told: Told, *, max_tokens: int | None = None, wait_s: float | None = None
) -> AgentCompassError:
    """The error that an answer of `status` stands for, under the message given.

    `max_tokens` is what the request asked for, `wait_s` how long the endpoint asks to be left alone.
    """
    if _spent(status, told):
        return BudgetSpent(message, hint="top up the account or use another key, and run again with the same --run-id")
    if _too_long(status, told):
        return _length_error(message, told.text, max_tokens)
    if status in (413, 429) and _TOO_LARGE.search(told.text):
        return ModelRefused(message, hint="one request is larger than the account's tokens per minute")
    if status in _TRANSIENT_STATUSES or (status >= 500 and status != _NOT_IMPLEMENTED):
        return Busy(message, retry_after_s=wait_s)
    return ModelRefused(message, hint=_HINTS.get(status, ""))


def _spent(status: int, told: Told) -> bool:
    if status == 402 or told.codes & _BUDGET_CODES:
        return True
    return 400 <= status < 500 and bool(_BUDGET_WORDS.search(told.text))


def _too_long(status: int, told: Told) -> bool:
    if told.codes & _CONTEXT_CODES:
        return True
    return status in _CONTEXT_STATUSES and bool(_CONTEXT_WORDS.search(told.text))


def _length_error(message: str, text: str, max_tokens: int | None) -> AgentCompassError:
    window = _WINDOW.search(text)
    if window and max_tokens is not None and max_tokens >= int(window[1].replace(",", "")):
        return ModelRefused(message, hint=f"max_tokens is {max_tokens}, which leaves no room for a prompt; lower it")
    return ContextExceeded(message)


def retry_after_s(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds that the endpoint asks to wait: `retry-after-ms`, or `retry-after` in seconds or as an HTTP date."""
    milliseconds = _seconds(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _seconds(value)
    return seconds if seconds is not None or value is None else _seconds_until(value, now or datetime.now(UTC))


def _seconds(value: str | None) -> float | None:
    return float(value) if value is not None and re.fullmatch(r"\s*\d{1,9}(\.\d*)?\s*", value, re.ASCII) else None


def _seconds_until(date: str, now: datetime) -> float | None:
    try:
        when = parsedate_to_datetime(date)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max((when - now).total_seconds(), 0.0)
