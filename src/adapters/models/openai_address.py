"""Where an OpenAI-compatible endpoint is and how it knows us, checked before anything is sent."""

import re
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit, urlunsplit

from pydantic import SecretStr

from ...domain.errors import ConfigError
from ...domain.model import ModelEndpoint

OPENAI_URL = "https://api.openai.com/v1"
NO_KEY = "EMPTY"
"""Sent where no key is given: servers of one's own need none, the SDK does."""
_CALL_PATH = "/chat/completions"
_HEADER_TEXT = re.compile(r"[\x21-\x7e]+")


class Address(NamedTuple):
    """An endpoint's base URL, without its query; `shown` has no secrets; `secrets` are those that the URL held."""

    url: str
    query: dict[str, str]
    shown: str
    secrets: tuple[str, ...]


def read_address(base_url: str | None) -> Address:
    """The address in `base_url`: path and query kept, closing slashes and the call's own path dropped.

    Raises:
        ConfigError: it is no http or https URL.
    """
    given = OPENAI_URL if base_url is None else base_url.strip()
    parts, host = _split(given)
    path = parts.path.rstrip("/").removesuffix(_CALL_PATH).rstrip("/")
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    secrets = (*query.values(), *_userinfo(parts))
    url = urlunsplit((parts.scheme, parts.netloc, path, "", ""))
    return Address(url, query, f"{parts.scheme}://{host}{path}", tuple(filter(None, secrets)))


def _split(given: str) -> tuple[SplitResult, str]:
    try:
        parts = urlsplit(given)
        _ = parts.port  # read to be checked
    except ValueError as exc:
        raise ConfigError(f"model base URL cannot be read: {exc}", hint="give http://host:port/v1") from exc
    if parts.scheme not in ("http", "https") or not parts.hostname:
        host = given.rpartition("@")[2]
        raise ConfigError(f"model base URL {host!r} is no http or https URL", hint="as in http://localhost:8000/v1")
    return parts, parts.netloc.rpartition("@")[2]


def _userinfo(parts: SplitResult) -> Iterator[str]:
    if parts.password:
        yield parts.password
        yield unquote(parts.password)


def read_key(endpoint: ModelEndpoint) -> str:
    """The key to send.

    Raises:
        ConfigError: none is given for OpenAI's own endpoint, it holds what no header can, or the URL names a user, whom
            the HTTP client would send in the key's place.
    """
    key = endpoint.api_key.get_secret_value().strip() if endpoint.api_key else ""
    if not key and endpoint.base_url is None:
        raise ConfigError(
            f"model {endpoint.name!r}: no API key",
            hint="give --model-api-key or model.api_key in a private file, or --model-base-url of a server of your own",
        )
    if key and not is_header_text(key):
        raise ConfigError(
            f"model {endpoint.name!r}: the API key has spaces or other characters that no header can carry",
            hint="give the bare key",
        )
    if key and "@" in urlsplit(endpoint.base_url or "").netloc:
        raise ConfigError(
            f"model {endpoint.name!r}: both an API key and a user in the base URL, and only one can be sent",
            hint="leave one out",
        )
    return key or NO_KEY


def is_header_text(value: str) -> bool:
    """Whether `value` is visible ASCII without spaces."""
    return bool(_HEADER_TEXT.fullmatch(value))


def checked_headers(headers: dict[str, SecretStr]) -> dict[str, SecretStr]:
    """`headers`, each of which can be sent.

    Raises:
        ValueError: a name or a value cannot; the value is not repeated.
    """
    for name, value in headers.items():
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
            raise ValueError(f"{name!r} is not a header's name")
        if not all(is_header_text(word) for word in value.get_secret_value().split(" ") if word):
            raise ValueError(f"the value of header {name!r} has characters that no header can carry")
    return headers
