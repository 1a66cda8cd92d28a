"""Whatever is in a file, a variable or a flag: settings, or a ConfigError of one line."""

import json
from pathlib import Path
from typing import Any

import pytest
from agentcompass.app.settings import Flags, Used, load_settings
from agentcompass.app.settings.layers import defaults_layer
from agentcompass.app.settings.shape import known_keys
from agentcompass.domain.errors import ConfigError
from hypothesis import HealthCheck, given
from hypothesis import settings as profile
from hypothesis import strategies as st
from settings_fakes import CloudParameters, real_and_fake

CATALOG = real_and_fake()
USED = Used("fake", "fake", "none", "cloud-box")
TEXTS = st.text(alphabet=st.characters(exclude_characters="\0"), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(TEXTS, below, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(known_keys(CloudParameters)) | TEXTS
SECTIONS = st.fixed_dictionaries({}, optional={"cloud-box": st.dictionaries(KEYS, VALUES, max_size=4) | VALUES})
FILES = st.fixed_dictionaries({}, optional={"environments": SECTIONS | VALUES, "run": VALUES, "model": VALUES})
NAMES = st.sampled_from(["RUN__MAX_RETRIES", "RUN__", "MODEL__PARAMS", "MODEL__PARAMS__X", "", "X"]) | st.builds(
    "ENVIRONMENTS__CLOUD_BOX__{}".format, KEYS
)


@pytest.fixture(autouse=True)
def _defaults_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = defaults_layer()
    monkeypatch.setattr("agentcompass.app.settings.loading.defaults_layer", lambda: layer)


def told(**given_layers: Any) -> str:
    """The refusal, or "" where the settings hold; any other error is the test's failure."""
    layers = {"environ": {}, **given_layers}
    try:
        load_settings(USED, catalog=CATALOG, **layers).request()
    except ConfigError as exc:
        return str(exc)
    return ""


each_example = profile(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@each_example
@given(FILES)
def test_a_file_of_junk_is_refused_in_one_line(tmp_path: Path, content: dict[str, Any]) -> None:
    path = tmp_path / "junk.yaml"
    path.write_text(json.dumps(content))

    assert told(config=[path]).isprintable()


@each_example
@given(st.binary(max_size=60))
def test_a_file_of_any_bytes_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "junk.yaml"
    path.write_bytes(content)

    assert told(config=[path]).isprintable()


@each_example
@given(st.dictionaries(NAMES.map("AGENTCOMPASS_{}".format), TEXTS | st.text(max_size=8), max_size=3))
def test_junk_in_variables_is_refused_in_one_line(environ: dict[str, str]) -> None:
    assert told(environ=environ).isprintable()


@each_example
@given(st.dictionaries(KEYS, VALUES, max_size=4), VALUES, TEXTS)
def test_junk_in_flags_is_refused_in_one_line(params: dict[str, Any], other: Any, name: str) -> None:
    flags = Flags(environment_params=params, model_base_url=other, run_name=name, as_options=False)

    assert told(flags=flags).isprintable()


@each_example
@given(TEXTS)
def test_junk_in_a_json_flag_is_refused_in_one_line(text: str) -> None:
    assert told(flags=Flags(environment_params=text)).isprintable()
