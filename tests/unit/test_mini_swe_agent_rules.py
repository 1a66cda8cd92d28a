"""The harness's pure rules: what is a submission, and that the model is shown what the package would show it."""

import importlib
from typing import Any

import pytest
from agentcompass.adapters.harnesses.mini_swe_agent.config import MiniSweAgentParameters, resolve_settings
from agentcompass.adapters.harnesses.mini_swe_agent.package import load_package
from agentcompass.adapters.harnesses.mini_swe_agent.submission import MARKER, NOISE_LINES, handed_in
from hypothesis import given
from hypothesis import strategies as st

blank = st.text(" \t\r", max_size=3)
noise = st.lists(
    st.binary(min_size=1, max_size=20).filter(lambda line: b"\n" not in line and line.strip()), max_size=12
)
OUTPUT = {"output": "", "returncode": 0, "exception_info": ""}


@given(st.binary(), st.lists(blank, max_size=4), blank, blank)
def test_everything_after_the_markers_line_is_handed_in(
    answer: bytes, before: list[str], left: str, right: str
) -> None:
    output = "".join(f"{line}\n" for line in before) + f"{left}{MARKER}{right}\n"

    assert handed_in(output.encode() + answer, 0) == answer


@given(noise, st.binary())
def test_only_so_many_lines_may_come_before_the_marker(lines: list[bytes], answer: bytes) -> None:
    output = b"".join(line + b"\n" for line in lines) + MARKER.encode() + b"\n" + answer

    assert handed_in(output, NOISE_LINES) == (answer if len(lines) <= NOISE_LINES else None)
    assert handed_in(output, 0) == (None if lines else answer)


@given(st.binary().filter(lambda output: MARKER.encode() not in output))
def test_output_without_the_marker_is_no_submission(output: bytes) -> None:
    assert handed_in(output, NOISE_LINES) is None


def test_a_marker_without_a_newline_hands_in_nothing_but_submits() -> None:
    assert handed_in(MARKER.encode(), 0) == b""


@pytest.mark.parametrize("config", ["mini", "swebench", "default", "swebench_backticks", "swebench_xml"])
@pytest.mark.parametrize(
    "output",
    [OUTPUT | {"output": 'a "quoted" <line>\n'}, OUTPUT | {"output": "x" * 20_000, "exception_info": "killed"}],
    ids=["short", "long"],
)
def test_observations_read_as_the_packages_own(config: str, output: dict[str, Any]) -> None:
    template = resolve_settings(MiniSweAgentParameters(config=config), None).observation_template
    ours = load_package().template(template).render(output=output)
    text = importlib.import_module("minisweagent.models.utils.actions_text")

    assert ours == text.format_observation_messages([output], observation_template=template)[0]["content"]
