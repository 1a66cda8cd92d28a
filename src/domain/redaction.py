"""Known secrets leave every text before it is written; so does the userinfo of URLs."""

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, AnyStr
from urllib.parse import quote, quote_plus, unquote, unquote_plus, urlsplit

from pydantic import BaseModel, JsonValue, SecretStr

MASK = "***"
MIN_LENGTH = 4
"""Shorter values are no secrets: masking them would only spoil texts. Longer than MASK, so that masking always ends."""
PLACEHOLDERS = frozenset(
    (
        "empty", "none", "null", "nil", "nothing", "undefined", "unused", "any", "anything", "default",
        "local", "localhost", "test", "testing", "fake", "dummy", "mock", "demo", "sample", "example", "placeholder",
        "changeme", "change-me", "key", "api-key", "apikey", "your-api-key", "token", "token-abc123", "secret",
        "password", "nokey", "no-key", "no-key-required", "sk-no-key-required", "not-needed", "not-required",
        "ollama", "vllm", "sglang", "lm-studio", "lmstudio", "llama-cpp", "llama.cpp", "litellm",
    )
)  # fmt: skip
"""What users of self-hosted endpoints give as a key: words of ordinary text. In lower case, `-` for `_` too."""
_PLAIN_WORD = re.compile(r"[a-z]{1,12}")
_MIN_FRAGMENT = 8
"""Characters of base64 that do not turn up by chance."""
_USERINFO = re.compile(r"(?<=://)[^\s/?#\"'<>\\]+@")
_USERINFO_BYTES = re.compile(rb"(?<=://)[^\s/?#\"'<>\\]+@")
_SECRET_WORDS = r"SECRET|PASSWORD|PASSWD|CREDENTIAL|(KEY|TOKEN)(_?\d+)?$"
_SECRET_VARIABLE = re.compile(_SECRET_WORDS)
_SECRET_PARAMETER = re.compile(rf"{_SECRET_WORDS}|(AUTH|AUTHORIZATION|SIGNATURE)$|^(SIG|CODE|PASS|PWD)$", re.IGNORECASE)
_ROUND_URLS = re.compile(r"[\s\"'<>`\\]+")
_AFTER_URL = ".,;:!)]}"
_SECRET_NAMES = frozenset(
    {"token", "access_token", "auth_token", "api_key", "apikey", "secret", "password", "authorization"}
)
"""Names that are secret wherever they stand, as in the body that a user adds to every request."""
_SWITCHES = frozenset({"true", "false", "True", "False"})


def secrets_of(value: object) -> Iterator[str]:
    """Every secret in a text, a mapping or a model, however deep: by its type, or by a name in variables and URLs."""
    if isinstance(value, SecretStr):
        yield value.get_secret_value()
    elif isinstance(value, str):
        yield from url_secrets(value)
    elif isinstance(value, BaseModel):
        yield from secrets_of(dict(value))
    elif isinstance(value, Mapping):
        yield from variable_secrets(value)
        for item in value.values():
            yield from secrets_of(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from secrets_of(item)


def variable_secrets(variables: Mapping[Any, object]) -> Iterator[str]:
    """The values of environment variables whose names tell that they are secret, as `OPENAI_API_KEY` or `DB_PASSWORD`.

    Names that are not all capitals are no environment variables but settings, which say by their type what is secret;
    but a plain `token` or `api_key` is one everywhere. A switch (`USE_API_KEY=true`) is none.
    """
    for name, value in variables.items():
        if isinstance(name, str) and isinstance(value, str) and value not in _SWITCHES and _tells_a_secret(name):
            yield value


def _tells_a_secret(name: str) -> bool:
    return name.lower() in _SECRET_NAMES or (name.isupper() and _SECRET_VARIABLE.search(name) is not None)


def url_secrets(text: str) -> Iterator[str]:
    """What the URLs in a text carry that is secret: passwords, and the values in a query whose names tell so."""
    for url in _urls(text):
        try:
            parts = urlsplit(url)
        except ValueError:
            continue
        if parts.password:
            yield from dict.fromkeys([parts.password, unquote(parts.password)])
        for pair in parts.query.split("&"):
            name, _, value = pair.partition("=")
            if value and value not in _SWITCHES and _SECRET_PARAMETER.search(unquote_plus(name)):
                yield from dict.fromkeys([value, unquote_plus(value)])


def _urls(text: str) -> Iterator[str]:
    if len(text.split()) <= 1:
        yield text.strip()
        return
    for piece in _ROUND_URLS.split(text):
        _, found, rest = piece.partition("://")
        if found:
            yield f"url://{rest.rstrip(_AFTER_URL)}"


class Redactor:
    """Replaces every known secret by `***`: as it is, URL-quoted, JSON-escaped, in base64 (also inside a longer text).

    Values shorter than MIN_LENGTH and placeholders such as `EMPTY` are not taken for secrets. Cheap where nothing
    matches: one substring search for each form.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = {secret for secret in secrets if _is_secret(secret)}
        self.knows_a_plain_word = any(_PLAIN_WORD.fullmatch(secret.strip()) for secret in known)
        """Masking it spoils each text that has the word."""
        forms = {form for secret in known for form in _forms(secret) if len(form) >= MIN_LENGTH}
        self._forms = sorted(forms, key=lambda form: (-len(form), form))
        self._byte_forms = [form.encode("utf-8", "surrogatepass") for form in self._forms]

    @property
    def longest(self) -> int:
        """Bytes of the longest form; a stream cut into chunks must overlap by one less."""
        return max(map(len, self._byte_forms), default=1)

    def text(self, text: str) -> str:
        """`text` without secrets, and with `https://***@host` for `https://user:password@host`."""
        if "://" in text and "@" in text:
            text = _USERINFO.sub(f"{MASK}@", text)
        return _masked(text, self._forms, MASK)

    def value(self, value: JsonValue) -> JsonValue:
        """A JSON value whose texts, keys included, are redacted; keys that become equal are numbered."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            result: dict[str, JsonValue] = {}
            for key, item in value.items():
                result[_unused(self.text(key), result)] = self.value(item)
            return result
        return value

    def data(self, data: bytes) -> bytes:
        """As `text`, for bytes of any content."""
        if b"://" in data and b"@" in data:
            data = _USERINFO_BYTES.sub(MASK.encode() + b"@", data)
        return self.secrets_masked(data)

    def secrets_masked(self, data: bytes) -> bytes:
        """`data` without secrets; URLs stay as they are (a patch, say, that must keep its bytes)."""
        return _masked(data, self._byte_forms, MASK.encode())


def _masked(text: AnyStr, forms: list[AnyStr], mask: AnyStr) -> AnyStr:
    # Again after each hit: a mask may complete another secret ("****" in "*****"). Each pass shortens the text.
    found = [form for form in forms if form in text]
    while found:
        for form in found:
            text = text.replace(form, mask)
        found = [form for form in forms if form in text]
    return text


def _is_secret(secret: str) -> bool:
    plain = secret.strip()
    return len(plain) >= MIN_LENGTH and plain.lower().replace("_", "-") not in PLACEHOLDERS


def _forms(secret: str) -> Iterator[str]:
    for plain in {secret, secret.strip()}:
        yield plain
        yield from _quoted(plain)
        yield from _escaped(plain)
        yield from _encoded(plain.encode("utf-8", "surrogatepass"))


def _quoted(secret: str) -> Iterator[str]:
    for safe in ("", "/"):
        for quoted in (
            quote(secret, safe=safe, errors="surrogatepass"),
            quote_plus(secret, safe=safe, errors="surrogatepass"),
        ):
            yield quoted
            yield re.sub(r"%[0-9A-F]{2}", lambda match: match[0].lower(), quoted)


def _escaped(secret: str) -> Iterator[str]:
    for ascii_only in (True, False):
        once = json.dumps(secret, ensure_ascii=ascii_only)[1:-1]
        yield once
        yield json.dumps(once, ensure_ascii=ascii_only)[1:-1]  # JSON text within JSON: a tool call's arguments
    yield repr(secret)[1:-1]


def _encoded(secret: bytes) -> Iterator[str]:
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(secret).decode().rstrip("=")
        for shift in range(3):
            # Only the characters that no neighbour's bits reach: as in the header `Basic base64(user:secret)`.
            text = encode(b"\0" * shift + secret).decode()
            fragment = text[-(-8 * shift // 6) : 8 * (shift + len(secret)) // 6]
            if len(fragment) >= _MIN_FRAGMENT:
                yield fragment


def _unused(key: str, taken: dict[str, JsonValue]) -> str:
    number, unused = 1, key
    while unused in taken:
        number += 1
        unused = f"{key}#{number}"
    return unused
