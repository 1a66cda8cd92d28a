"""What a user may write for the home folder."""

from pathlib import Path

import pytest
from agentcompass.domain.local_path import local_path


def test_the_home_folder_is_put_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")

    assert local_path("~/x") == Path("/home/me/x")


def test_of_a_user_who_is_not_there_it_stays_as_it_was_written() -> None:
    assert local_path("~no-such-user/x") == Path("~no-such-user/x")


def test_other_paths_stay() -> None:
    assert local_path(Path("a/~b")) == Path("a/~b")
