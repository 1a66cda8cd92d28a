"""A command at Modal to its end, over a process that behaves as badly as the network lets it look."""

import io

import modal
import pytest
from agentcompass.adapters.environments.modal import exec as module
from agentcompass.adapters.environments.modal.exec import Kept, ModalProcess
from modal_fakes import LONG_S, Sandbox, answers, never


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"_LOOK_AFTER_S": 0.05, "_GRACE_S": 0.5, "_GRACE_OF_KILLED_S": 0.05}.items():
        monkeypatch.setattr(module, name, seconds)


def _process() -> tuple[ModalProcess, Kept, Kept]:
    return ModalProcess(["program"], {}, 30), Kept(1000), Kept(1000)


async def test_output_that_comes_late_is_read_though_the_command_has_ended() -> None:
    process, out, err = _process()
    await process.read(Sandbox(stdout=(b"a", 0.3, b"b", 0.3, b"c"), poll=answers(0), wait=answers(0)), out, err)

    assert bytes(out.data) == b"abc"
    assert process.code == 0


async def test_output_that_never_ends_is_an_error_and_no_success() -> None:
    process, out, err = _process()

    with pytest.raises(TimeoutError, match="has ended"):
        await process.read(Sandbox(stdout=(b"a", LONG_S), poll=answers(0)), out, err)


async def test_streams_that_a_killed_command_left_open_hold_nobody_up() -> None:
    process, out, err = _process()
    await process.read(Sandbox(stdout=(b"a", LONG_S), poll=answers(None, 137)), out, err)

    assert (bytes(out.data), process.code) == (b"a", 137)


async def test_a_worker_that_is_gone_is_seen_though_waiting_for_it_has_no_end() -> None:
    process, _, err = _process()
    gone = modal.exception.NotFoundError("gone")

    with pytest.raises(modal.exception.NotFoundError):
        await process.finish(Sandbox(stderr=(LONG_S,), poll=answers(gone)), err)


async def test_streams_of_a_command_that_did_well_are_not_opened() -> None:
    sandbox = Sandbox(wait=answers(0))
    process, _, err = _process()
    await process.finish(sandbox, err, io.BytesIO(b"input"))

    assert (sandbox.opened, sandbox.written, process.code) == ([], [b"input", None], 0)


async def test_a_failed_command_says_why_though_a_child_holds_its_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CALL_LIMIT_S", 0.1)
    process, _, err = _process()
    await process.finish(Sandbox(stderr=(b"disk full", LONG_S), wait=answers(2)), err)

    assert (process.code, err.line()) == (2, "disk full")


@pytest.mark.parametrize("ends", [True, False])
async def test_input_that_is_refused_is_an_error_unless_the_command_has_ended(ends: bool) -> None:
    refusal = modal.exception.ConflictError("no stdin")
    process, _, err = _process()
    wait = answers(1) if ends else never
    running = process.finish(Sandbox(stderr=(b"no room",), wait=wait, drain=answers(refusal)), err, io.BytesIO(b"x"))
    if not ends:
        with pytest.raises(modal.exception.ConflictError):
            await running
        return
    await running

    assert (process.code, err.line()) == (1, "no room")


async def test_input_in_pieces_ends_with_its_last_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STDIN_PIECE_BYTES", 2)
    sandbox = Sandbox(wait=answers(0))
    process, _, err = _process()
    await process.finish(sandbox, err, io.BytesIO(b"abcd"))

    assert sandbox.written == [b"ab", b"cd", None]
