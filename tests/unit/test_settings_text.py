"""YAML and JSON text to plain values."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from agentcompass.app.settings.text import parse_json, parse_yaml
from agentcompass.domain.errors import ConfigError
from hypothesis import assume, given
from hypothesis import strategies as st

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=5), below, max_size=3),
    max_leaves=8,
)


@given(PLAIN)
def test_json_comes_back_as_it_was(value: Any) -> None:
    assert parse_json(json.dumps(value), "--flag") == value


@given(PLAIN)
def test_yaml_in_json_form_comes_back_as_it_was(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False)
    assume(text.isprintable())

    assert parse_yaml(text, "f").value == value


def told(parse: Callable[[str, str], Any], text: str) -> str:
    """The refusal, or "" for a value; any other error is the test's failure."""
    try:
        parse(text, "f")
    except ConfigError as exc:
        return str(exc)
    return ""


@given(st.text())
@pytest.mark.parametrize("parse", [parse_yaml, parse_json])
def test_junk_is_a_value_or_a_refusal_on_one_line(parse: Callable[[str, str], Any], text: str) -> None:
    message = told(parse, text)

    assert message.isprintable()
    assert message == "" or message.startswith("f")


@given(st.text(alphabet="{}[]:,&*!-?|>'\"%@#ab1. \n\t<~", max_size=40))
def test_broken_yaml_is_a_value_or_a_refusal_on_one_line(text: str) -> None:
    message = told(parse_yaml, text)

    assert message.isprintable()
    assert not message.endswith(("found", "got", ",", ":"))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("1e3", 1000.0),
        ("0x10", 16),
        ("0o17", 15),
        ("007", 7),
        ("1:30", "1:30"),
        ("2026-01-01", "2026-01-01"),
        ("1_000", "1_000"),
        ("True", True),
        ("~", None),
        ("", None),
        ("!!str 5", "5"),
        ("{1: a, null: b, no: c}", {"1": "a", "null": "b", "no": "c"}),
        ("[&a {b: 1}, *a]", [{"b": 1}, {"b": 1}]),
    ],
)
def test_yaml_is_read_by_the_core_schema(text: str, value: Any) -> None:
    assert parse_yaml(text, "f").value == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", "f:3: a: the same key again; first in line 1"),
        ("x:\n  a: 1\n  a: 1", "f:3: x.a: the same key again; first in line 2"),
        ("a: .inf", "f:1: a: not a finite number"),
        ("a: -.INF", "f:1: a: not a finite number"),
        ("a: .nan", "f:1: a: not a finite number"),
        ("a: 1e999", "f:1: a: not a finite number"),
        (f"a: {'9' * 5000}", "f:1: a: not a number, or too long a one"),
        (
            "a: !!python/object:os.system x",
            "f:1: a: the tag !!python/object:os.system is not supported",
        ),
        ("a: !!binary aGk=", "f:1: a: the tag !!binary is not supported"),
        ("? [1]\n: 2", "f:1: a key must be plain text"),
        ("\n\na: [", "f:3: broken YAML: "),
        ("a: {b: 1", "f:1: broken YAML: expected ',' or '}', but got the end"),
        ("a:\n\tb: 1", "f:2: broken YAML: a tab where text begins; indent with spaces"),
        ("a: b: c", "f:1: broken YAML: a ':' too many; "),
        ("a:\n  - b\n c: 1", "f:3: broken YAML: a line that does not fit those above it; "),
        ("a: *b", "f:1: broken YAML: text that begins with '*' must be quoted"),
        ('a: "b', "f:1: broken YAML: a quoted text has no end"),
        ("a: 1\n--- \nb: 2", "f:2: broken YAML: more than one document in it"),
        ("a: 1\nb: \x00", "f:2: broken YAML: a control character"),
        ("[" * 5000, "f: nested too deeply"),
        ("a: &x [*x]", "nested too deeply"),
    ],
)
def test_what_yaml_refuses_names_the_line_and_the_key(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_yaml(text, "f")

    assert message in str(raised.value)


@pytest.mark.parametrize(
    "text", ["key: *sk-hush", "key: !sk-hush x", "key: !sk-hush", "%sk-hush", "key: !sk-hush!x y", "key: [*sk-hush"]
)
def test_text_that_yaml_takes_for_syntax_is_not_shown(text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_yaml(text, "f")

    assert "hush" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_a_document_that_grows_by_aliases_is_refused() -> None:
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12))

    with pytest.raises(ConfigError, match="too large"):
        parse_yaml(bomb, "f")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "a": 2}', "--p: a: the same key again"),
        ('{"a": {"b": 1, "b": 2}}', "--p: b: the same key again"),
        ("{a: 1}", "--p: not JSON: "),
        ("", "--p: not JSON: "),
        ("[NaN]", "--p: NaN is not a finite number"),
        ("[-Infinity]", "--p: -Infinity is not a finite number"),
        ("[1e999]", "--p: 1e999 is not a finite number"),
        ("9" * 5000, "--p: not JSON: a number is too long"),
        ("[" * 100_000, "--p: nested too deeply"),
        ("[" * 100 + "]" * 100, "--p: nested too deeply"),
    ],
)
def test_what_json_refuses_names_the_flag(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_json(text, "--p")

    assert str(raised.value).startswith(message)


def test_each_key_and_item_knows_its_line() -> None:
    lines = parse_yaml("a:\n  b: 1\n  c:\n    - x\n    - y\n", "f").lines

    assert lines["a", "b"] == 2
    assert lines["a", "c"] == 3
    assert lines["a", "c", 1] == 5
