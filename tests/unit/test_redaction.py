"""No known secret survives redaction, in any form it is written in."""

import base64
import json
from urllib.parse import quote, quote_plus

import pytest
from agentcompass.domain.redaction import MASK, Redactor, url_secrets, variable_secrets
from hypothesis import given
from hypothesis import strategies as st

KEY = 'sk-"live"/äö+12 34\\x'
secrets = st.text(min_size=4, max_size=30).filter(lambda s: len(s.strip()) >= 4 and s.strip().lower() != "none")
starry = st.text(alphabet="*ab@:/", min_size=4, max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(st.lists(secrets | starry, min_size=1, max_size=4), st.data())
def test_no_secret_survives_in_a_text(known: list[str], data: st.DataObject) -> None:
    pieces = data.draw(st.lists(st.sampled_from(known) | st.text() | starry))
    redacted = Redactor(known).text("".join(pieces))

    assert not [secret for secret in known if secret in redacted]


@given(st.lists(secrets | starry, min_size=1, max_size=4), st.data())
def test_no_secret_survives_in_bytes(known: list[str], data: st.DataObject) -> None:
    raw = [secret.encode("utf-8", "surrogatepass") for secret in known]
    pieces = data.draw(st.lists(st.sampled_from(raw) | st.binary()))
    redacted = Redactor(known).data(b"".join(pieces))

    assert not [secret for secret in raw if secret in redacted]


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("OPENAI_API_KEY", True),
        ("KEY", True),
        ("GITHUB_TOKEN", True),
        ("API_KEY_2", True),
        ("DB_PASSWORD", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("CLIENT_SECRET_VALUE", True),
        ("TOKENIZERS_PARALLELISM", False),
        ("MAX_TOKENS", False),
        ("KEYBOARD", False),
        ("PATH", False),
        ("stop_token", False),
    ],
)
def test_a_variable_is_secret_by_its_name(name: str, is_secret: bool) -> None:
    assert list(variable_secrets({name: "value-1"})) == (["value-1"] if is_secret else [])


def test_a_switch_is_no_secret() -> None:
    assert list(variable_secrets({"USE_API_KEY": "true", "NO_TOKEN": "False", "KEY": 7, 1: "value"})) == []


@given(secrets, json_values)
def test_no_secret_survives_in_a_json_value(secret: str, rest: object) -> None:
    value = {"rest": rest, f"a {secret} key": [{"deep": f"x{secret}y"}, secret]}
    redacted = Redactor([secret]).value(value)  # type: ignore[arg-type]  # hypothesis knows no JsonValue

    assert secret not in texts(redacted)


def texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for key, item in value.items() for text in (key, *texts(item))]
    if isinstance(value, list):
        return [text for item in value for text in texts(item)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize(
    "written",
    [
        KEY,
        quote(KEY),
        quote(KEY, safe=""),
        quote_plus(KEY),
        quote(KEY, safe="").lower(),
        json.dumps(KEY)[1:-1],
        json.dumps(KEY, ensure_ascii=False)[1:-1],
        json.dumps(json.dumps(KEY))[3:-3],
        repr(KEY)[1:-1],
        base64.b64encode(KEY.encode()).decode(),
        base64.urlsafe_b64encode(KEY.encode()).decode().rstrip("="),
    ],
)
def test_a_secret_is_masked_in_every_form_it_is_written_in(written: str) -> None:
    redacted = Redactor([KEY.lower() if written == quote(KEY, safe="").lower() else KEY]).text(f"key={written};")

    assert redacted.startswith(f"key={MASK}")
    assert redacted.endswith(";")
    assert len(redacted.strip("=;")) <= len(f"key={MASK}==")


@pytest.mark.parametrize("user", ["", "u", "us", "user"])
def test_a_basic_authorization_header_does_not_give_the_password_away(user: str) -> None:
    password = "correct-horse-battery"
    header = base64.b64encode(f"{user}:{password}".encode()).decode()
    redacted = Redactor([password]).text(f"Authorization: Basic {header}")
    readable = base64.b64decode("".join(redacted.split()[-1].split(MASK)) + "===")

    assert MASK in redacted
    assert b"horse" not in readable


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://user:pass@host/path", "https://***@host/path"),
        ("clone of https://ghp_token@github.com/a/b.git failed", "clone of https://***@github.com/a/b.git failed"),
        ("http://u:p@ss@host:80", "http://***@host:80"),
        ("https://host/a@b", "https://host/a@b"),
        ("mail me@host, see https://host", "mail me@host, see https://host"),
        ("postgres://u:p@db https://host", "postgres://***@db https://host"),
    ],
)
def test_userinfo_leaves_urls_and_nothing_else_changes(text: str, expected: str) -> None:
    assert Redactor().text(text) == expected
    assert Redactor().data(text.encode()) == expected.encode()


def test_masking_the_secrets_of_bytes_leaves_urls_alone() -> None:
    redactor = Redactor(["s3cret"])

    assert redactor.secrets_masked(b"s3cret https://user:pass@host") == b"*** https://user:pass@host"


@given(st.text(alphabet="abc xyz", max_size=200))
def test_a_text_without_secrets_stays_as_it_is(text: str) -> None:
    assert Redactor(["0123456789"]).text(text) == text


@pytest.mark.parametrize("value", ["", "abc", "   ", "EMPTY", "none"])
def test_short_values_and_placeholders_are_no_secrets(value: str) -> None:
    text = f"An {value} EMPTY line, none of abc."

    assert Redactor([value]).text(text) == text


def test_a_secret_read_with_its_line_end_is_masked_without_it() -> None:
    assert Redactor(["s3cret-value\n"]).text("a s3cret-value b") == "a *** b"


def test_the_longer_of_two_secrets_is_masked_whole() -> None:
    assert Redactor(["token", "token-extended"]).text("token-extended token") == "*** ***"


def test_keys_that_become_equal_are_all_kept() -> None:
    redacted = Redactor(["first-secret", "other-secret"]).value({"first-secret": 1, "other-secret": 2})

    assert redacted == {"***": 1, "***#2": 2}


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("https://user:pass%2Fword@host/v1", ["pass%2Fword", "pass/word"]),
        ("https://host/v1?api-version=2024-06-01&api-key=abc%2Bdef&sig=s1", ["abc+def", "s1"]),
        ("https://host/v1?page=3", []),
        ("http://[broken", []),
        ("", []),
    ],
)
def test_the_secrets_of_an_address_are_its_password_and_what_its_query_calls_so(url: str, found: list[str]) -> None:
    assert list(url_secrets(url)) == found
