"""No known secret survives redaction, in any form it is written in."""

import base64
import json
from urllib.parse import quote, quote_plus

import pytest
from agentcompass.domain.redaction import MASK, PLACEHOLDERS, Redactor, secrets_of, url_secrets, variable_secrets
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr

KEY = 'sk-"live"/äö+12 34\\x'
secrets = st.text(min_size=4, max_size=30).filter(
    lambda s: len(s.strip()) >= 4 and s.strip().lower().replace("_", "-") not in PLACEHOLDERS
)
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


@pytest.mark.parametrize(
    "value", ["", "abc", "   ", "EMPTY", "none", "test", "Secret", "your_api_key", "lm-studio", "sk-no-key-required"]
)
def test_short_values_and_placeholders_are_no_secrets(value: str) -> None:
    text = f"An {value} EMPTY line, none of abc: def {value}_one(): ..."

    assert Redactor([value]).text(text) == text


@pytest.mark.parametrize(
    ("value", "is_word"), [("django", True), (" django\n", True), ("test", False), ("django1", False), ("abc", False)]
)
def test_a_secret_that_is_a_plain_word_is_known_as_such(value: str, is_word: bool) -> None:
    assert Redactor(["sk-0123456789", value]).knows_a_plain_word == is_word


def test_a_secret_read_with_its_line_end_is_masked_without_it() -> None:
    assert Redactor(["s3cret-value\n"]).text("a s3cret-value b") == "a *** b"


def test_the_longer_of_two_secrets_is_masked_whole() -> None:
    assert Redactor(["ghp-one", "ghp-one-extended"]).text("ghp-one-extended ghp-one") == "*** ***"


def test_keys_that_become_equal_are_all_kept() -> None:
    redacted = Redactor(["first-secret", "other-secret"]).value({"first-secret": 1, "other-secret": 2})

    assert redacted == {"***": 1, "***#2": 2}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("https://user:pass%2Fword@host/v1", ["pass%2Fword", "pass/word"]),
        ("https://host/v1?api-version=2024-06-01&api-key=abc%2Bdef&sig=s1", ["abc%2Bdef", "abc+def", "s1"]),
        ("https://host/v1?page=3", []),
        ("https://host/v1?keyword=tree&author=me&token_type=jwt&tokens=9&sign=a&codec=x&keys=7", []),
        ("https://host/v1?auth=true&token=", []),
        (
            "https://host/v1?accessToken=t1&apikey=k2&X-Amz-Signature=s3&client_secret=c4&code=d5",
            ["t1", "k2", "s3", "c4", "d5"],
        ),
        (
            "git clone 'https://me:word1@host/x?private_token=word2' (or http://host/?token=word3).",
            ["word1", "word2", "word3"],
        ),
        ("Which key=value? One of these: token=5", []),
        ("http://[broken", []),
        ("see http://[broken and http://a:word1@host", ["word1"]),
        ("", []),
    ],
)
def test_the_secrets_of_urls_are_passwords_and_what_a_query_calls_so(text: str, found: list[str]) -> None:
    assert list(url_secrets(text)) == found


class Inner(BaseModel):
    """Parameters within parameters."""

    key: SecretStr
    urls: tuple[str, ...]


def test_the_secrets_of_a_value_are_found_however_deep_they_are() -> None:
    inner = Inner(key=SecretStr("one"), urls=("https://host/x?sig=two", "plain"))
    value = {"inner": [inner, {"env": {"MY_TOKEN": "three", "DATA": "http://u:four@host"}}], "limit": 5}

    assert list(secrets_of(value)) == ["one", "two", "three", "four"]
