"""Names made from ids: never two for one, nor one for two, and safe wherever they are used."""

import re

import pytest
from agentcompass.domain.naming import file_name, sandbox_name
from agentcompass.domain.sandbox import SandboxOwner
from hypothesis import assume, example, given
from hypothesis import strategies as st

plain = st.text(alphabet="abAB019._-~/ ", max_size=12)
surrogates = st.text(alphabet=st.characters(categories=["Cs", "Ll"]), max_size=4)
ids = st.text() | plain | surrogates | st.sampled_from(["con", "CON", "nul.txt", "", ".", "..", "x" * 500, "a\0b"])


@given(ids, ids)
@example("a", "A")
@example("ä", "Ä")
@example("ß", "ss")
@example("a.", "a")
@example("con", "con~")
@example("é", "e\u0301")
@example("x" * 120, "x" * 121)
def test_distinct_ids_have_distinct_file_names_also_where_case_is_ignored(one: str, other: str) -> None:
    assume(one != other)

    assert file_name(one).casefold() != file_name(other).casefold()


@given(ids, plain)
def test_no_id_takes_the_name_made_for_another(one: str, suffix: str) -> None:
    name = file_name(one)
    assume(name + suffix != one)

    assert file_name(name + suffix).casefold() != name.casefold()


@given(ids)
def test_a_file_name_is_short_and_safe_on_every_file_system(task_id: str) -> None:
    name = file_name(task_id)

    assert re.fullmatch(r"[A-Za-z0-9._~-]+", name)
    assert len(name) <= 120
    assert name[0] not in ".-"
    assert name[-1] != "."
    assert name.split(".")[0].lower() not in {"con", "prn", "aux", "nul", "com1", "lpt1"}


@given(ids)
def test_a_file_name_is_its_own(task_id: str) -> None:
    name = file_name(task_id)

    assert file_name(task_id) == name
    assert "~" in name or name == task_id


@pytest.mark.parametrize("task_id", ["django__django-11099", "hello-world", "a.b_c-1", "0", "x" * 120])
def test_a_plain_id_is_its_own_file_name(task_id: str) -> None:
    assert file_name(task_id) == task_id


@pytest.mark.parametrize("task_id", ["A", "a/b", "a b", "", ".", "..", "con", "aux.c", "com1", "中文", "a.", "x" * 121])
def test_any_other_id_ends_in_a_hash(task_id: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_-]*~[0-9a-f]{16}", file_name(task_id))


owners = st.builds(
    SandboxOwner,
    run_id=ids,
    task_id=ids,
    attempt=st.integers(1, 10_000),
    try_number=st.integers(1, 100),
    purpose=st.sampled_from(["agent", "grade"]),
    host=ids,
    process=ids,
)


@given(owners)
def test_a_sandbox_name_is_short_and_a_dns_label(owner: SandboxOwner) -> None:
    name = sandbox_name(owner)

    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name)
    assert len(name) <= 60


@given(owners, owners)
def test_distinct_owners_have_distinct_sandbox_names(one: SandboxOwner, other: SandboxOwner) -> None:
    assert (sandbox_name(one) == sandbox_name(other)) == (one == other)


OWNER = SandboxOwner(run_id="r", task_id="t", attempt=1, try_number=1, host="h", process="1-2")


@pytest.mark.parametrize(
    "change",
    [
        {"run_id": "s"},
        {"task_id": "T"},
        {"task_id": "t-1"},
        {"attempt": 2},
        {"try_number": 2},
        {"purpose": "grade"},
        {"host": "i"},
        {"process": "1-3"},
    ],
)
def test_every_part_of_the_owner_counts(change: dict[str, object]) -> None:
    assert sandbox_name(OWNER.model_copy(update=change)) != sandbox_name(OWNER)


def test_the_borders_between_the_parts_count() -> None:
    one = OWNER.model_copy(update={"host": "h\0i", "process": "1-2"})
    other = OWNER.model_copy(update={"host": "h", "process": "i\x001-2"})

    assert sandbox_name(one) != sandbox_name(other)
