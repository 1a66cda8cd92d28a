"""A sandbox's tags tell whose it is, whatever its ids are made of."""

import re
from datetime import UTC, datetime

from agentcompass.adapters.environments.modal.tags import MARK, owner_tags, read_tags, run_tag
from agentcompass.domain.sandbox import SandboxOwner
from hypothesis import given
from hypothesis import strategies as st

WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SAFE = re.compile(r"[A-Za-z0-9._-]{0,63}")
owners = st.builds(
    SandboxOwner,
    run_id=st.text(min_size=1),
    task_id=st.text(min_size=1, max_size=300),
    attempt=st.integers(1, 99),
    host=st.text(min_size=1),
    process=st.text(min_size=1),
)


@given(owners)
def test_what_is_written_is_read(owner: SandboxOwner) -> None:
    label = read_tags(owner_tags(owner, WHEN))

    assert label is not None
    assert (label.run_id, label.task_id, label.host) == (owner.run_id, owner.task_id, owner.host)
    assert (label.process, label.expires) == (owner.process, WHEN)


@given(owners)
def test_every_tag_is_one_that_modal_takes(owner: SandboxOwner) -> None:
    tags = owner_tags(owner, WHEN)

    assert [text for pair in tags.items() for text in pair if not SAFE.fullmatch(text)] == []


@given(owners)
def test_a_run_is_found_by_its_tag(owner: SandboxOwner) -> None:
    assert (MARK | run_tag(owner.run_id)).items() <= owner_tags(owner, WHEN).items()


@given(st.dictionaries(st.text(), st.text()))
def test_tags_of_others_are_not_ours(tags: dict[str, str]) -> None:
    assert read_tags(tags) is None


@given(st.dictionaries(st.sampled_from(["agentcompass-run", "agentcompass-task", "agentcompass-expires"]), st.text()))
def test_torn_tags_are_left_alone(tags: dict[str, str]) -> None:
    assert read_tags(MARK | tags) is None
