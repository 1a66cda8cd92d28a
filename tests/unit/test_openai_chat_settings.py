"""What the openai-chat model accepts as endpoint and parameters; nothing is contacted."""

import pytest
from agentcompass.adapters.models.openai_address import NO_KEY, read_address, read_key
from agentcompass.adapters.models.openai_chat import OpenAIChatModel, OpenAIChatParameters
from agentcompass.domain.errors import ConfigError
from agentcompass.domain.model import ModelEndpoint
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr, ValidationError


def test_a_key_and_a_user_in_the_address_are_refused_unseen() -> None:
    endpoint = ModelEndpoint(name="m", base_url="https://me:word@h/v1", api_key=SecretStr("sk-secret"))

    with pytest.raises(ConfigError, match="leave one out") as refused:
        read_key(endpoint)
    assert "word" not in str(refused.value)
    assert "sk-secret" not in str(refused.value)


async def test_it_is_built_from_nothing_but_an_address_and_keeps_its_name() -> None:
    model = OpenAIChatModel(OpenAIChatParameters(), ModelEndpoint(name="org/m:tag", base_url="http://localhost:1/v1"))
    await model.close()

    assert model.name == "org/m:tag"
    assert model.price is None


@pytest.mark.parametrize(
    ("given_url", "url", "shown"),
    [
        (None, "https://api.openai.com/v1", "https://api.openai.com/v1"),
        (" http://h:8000/v1/ ", "http://h:8000/v1", "http://h:8000/v1"),
        ("http://h", "http://h", "http://h"),
        ("http://[::1]:8000/a/b//", "http://[::1]:8000/a/b", "http://[::1]:8000/a/b"),
        ("https://me:word@h/v1?key=abc#x", "https://me:word@h/v1", "https://h/v1"),
        ("http://h/v1/chat/completions/", "http://h/v1", "http://h/v1"),
    ],
)
def test_an_address_is_read_and_shown_without_secrets(given_url: str | None, url: str, shown: str) -> None:
    address = read_address(given_url)

    assert address.url == url
    assert address.shown == shown


def test_what_an_address_hides_counts_as_secret() -> None:
    address = read_address("https://me:w%40rd@h/v1?key=abcdef")

    assert set(address.secrets) == {"w%40rd", "w@rd", "abcdef"}
    assert address.query == {"key": "abcdef"}


@pytest.mark.parametrize("url", ["", "localhost:8000/v1", "h/v1", "ftp://h", "http://", "http://h:port", "http://[::1"])
def test_an_address_that_is_none_is_refused_with_the_mend(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_address(url)

    assert "http://" in caught.value.hint


def test_a_refused_address_does_not_show_its_password() -> None:
    with pytest.raises(ConfigError) as caught:
        read_address("me:password@host/v1")

    assert "password" not in str(caught.value)


@given(st.text())
def test_an_address_is_read_or_refused_and_nothing_else(text: str) -> None:
    try:
        address = read_address(text)
    except ConfigError:
        return

    assert address.url.startswith(("http://", "https://"))
    assert not address.url.endswith("/")


def test_openais_own_endpoint_needs_a_key() -> None:
    with pytest.raises(ConfigError, match="no API key") as caught:
        read_key(ModelEndpoint(name="gpt"))

    assert "--model-api-key" in caught.value.hint


def test_a_server_of_ones_own_needs_none() -> None:
    assert read_key(ModelEndpoint(name="m", base_url="http://h", api_key=SecretStr(""))) == NO_KEY


def test_space_round_a_key_is_no_part_of_it() -> None:
    assert read_key(ModelEndpoint(name="m", api_key=SecretStr(" sk-abc\n"))) == "sk-abc"


@pytest.mark.parametrize("key", ["Bearer sk-abc", "sk-a\nbc", "sk-\u00e4", "sk-\u201cabc\u201d"])
def test_a_key_that_no_header_can_carry_is_refused_unseen(key: str) -> None:
    with pytest.raises(ConfigError, match="the API key has spaces") as caught:
        read_key(ModelEndpoint(name="m", api_key=SecretStr(key)))

    assert key not in str(caught.value)


@pytest.mark.parametrize("headers", [{"a b": "x"}, {"": "x"}, {"X": "line\nbreak"}, {"X": "\u4e2d"}, {"X:": "x"}])
def test_headers_that_cannot_be_sent_are_refused_unseen(headers: dict[str, str]) -> None:
    with pytest.raises(ValidationError) as caught:
        OpenAIChatParameters.model_validate({"extra_headers": headers})

    assert "line\nbreak" not in str(caught.value)


@pytest.mark.parametrize("name", ["messages", "tools", "stream"])
def test_extra_body_cannot_replace_the_protocol(name: str) -> None:
    with pytest.raises(ValidationError, match="extra_body"):
        OpenAIChatParameters.model_validate({"extra_body": {name: True}})


@pytest.mark.parametrize(
    "wrong", [{"temperatur": 1}, {"temperature": "hot"}, {"max_tries": 0}, {"timeout_s": 0}, {"price": {"input": -1}}]
)
def test_wrong_parameters_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        OpenAIChatParameters.model_validate(wrong)


def test_only_what_cannot_move_a_score_is_left_out_of_the_identity() -> None:
    extras = {name: field.json_schema_extra for name, field in OpenAIChatParameters.model_fields.items()}
    free = {name for name, extra in extras.items() if extra == {"identity": False}}

    assert free == {"extra_headers", "timeout_s", "connect_timeout_s", "max_tries", "max_wait_s", "total_retry_s"}


def test_header_values_are_masked_in_every_dump() -> None:
    parameters = OpenAIChatParameters.model_validate({"extra_headers": {"X-Key": "very-secret"}})

    assert "very-secret" not in repr(parameters)
    assert "very-secret" not in parameters.model_dump_json()
