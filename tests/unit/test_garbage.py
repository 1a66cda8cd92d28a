"""How often Python looks for garbage while the program starts, and afterwards."""

import gc
from collections.abc import Iterator

import pytest
from agentcompass.app.garbage import collect_as_usual, collect_rarely


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def test_the_start_is_collected_rarely_but_collected() -> None:
    collect_rarely()

    assert gc.isenabled()
    assert 700 < gc.get_threshold()[0] < 1_000_000


def test_a_run_is_collected_as_usual_without_what_the_start_made() -> None:
    collect_rarely()
    collect_as_usual()

    assert gc.get_threshold() == (700, 10, 10)
    assert gc.get_freeze_count() > 0
