"""What a user may write for the home folder."""

from pathlib import Path

import pytest
from agentcompass.domain.local_path import LocalPath, local_path
from agentcompass.domain.value import Parameters
from pydantic import ValidationError


def test_the_home_folder_is_put_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")

    assert local_path("~/x") == Path("/home/me/x")


def test_of_a_user_who_is_not_there_it_stays_as_it_was_written() -> None:
    assert local_path("~no-such-user/x") == Path("~no-such-user/x")


def test_other_paths_stay() -> None:
    assert local_path(Path("a/~b")) == Path("a/~b")


class Folders(Parameters):
    upload: LocalPath | None = None


def test_an_empty_text_is_no_path() -> None:
    with pytest.raises(ValidationError, match="names nothing"):
        Folders.model_validate({"upload": ""})


def test_a_path_and_null_are_taken() -> None:
    assert (Folders.model_validate({"upload": "."}).upload, Folders().upload) == (Path(), None)
