"""A run may have as many files open as its commands need."""

import resource
from collections.abc import Iterator

import pytest
from agentcompass.app import running
from agentcompass.app.open_files import allow_many_open_files


@pytest.fixture(autouse=True)
def hard() -> Iterator[int]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_limit_is_raised_as_far_as_is_allowed_and_sensible(hard: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    allow_many_open_files()
    sensible = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)

    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (sensible, hard)


def test_a_limit_that_is_higher_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (100_000, 200_000))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: told.append(limits))
    allow_many_open_files()
    monkeypatch.undo()

    assert told == [(100_000, 200_000)]


def test_a_limit_that_cannot_be_raised_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    allow_many_open_files()
    monkeypatch.undo()


def test_a_run_begins_with_it(monkeypatch: pytest.MonkeyPatch, hard: int) -> None:
    class Begun(Exception):
        pass

    class Asked:
        def request(self) -> None:
            raise Begun

    monkeypatch.setattr(running, "collect_as_usual", lambda: None)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    with pytest.raises(Begun):
        running.run_to_end(Asked())  # type: ignore[arg-type]  # as much of the settings as is used

    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 512
