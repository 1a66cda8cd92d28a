"""Output is kept bounded, cut at characters, counted in full; end markers are found however chunks fall."""

import tracemalloc

from agentcompass.adapters.support.streams import EndMarker, HeadAndTail
from hypothesis import given
from hypothesis import strategies as st

NONCE = "0123456789abcdef0123456789abcdef"


def _fed(limit: int, *chunks: bytes) -> HeadAndTail:
    kept = HeadAndTail(limit)
    for chunk in chunks:
        kept.feed(chunk)
    return kept


def _chunks(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in zip(edges, edges[1:], strict=False)]


def test_short_output_is_kept_whole() -> None:
    kept = _fed(10, b"01234", b"56789")

    assert (kept.text(), kept.truncated, kept.total) == ("0123456789", False, 10)


def test_long_output_keeps_its_head_and_its_tail() -> None:
    kept = _fed(10, b"abcdefgh", b"-" * 1000, b"stuvwxyz")

    assert (kept.text(), kept.truncated, kept.total) == ("abcdevwxyz", True, 1016)


def test_a_limit_of_one_byte_keeps_the_first() -> None:
    assert _fed(1, b"xy").text() == "x"


def test_the_cut_never_splits_a_character() -> None:
    kept = _fed(10, "ééé€€€€€€ééé".encode())

    assert kept.text() == "ééé"[:2] + "éé"
    assert "\ufffd" not in kept.text()


def test_a_character_split_across_chunks_is_whole() -> None:
    euro = "€".encode()

    assert _fed(100, euro[:1], euro[1:2], euro[2:]).text() == "€"


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert _fed(100, b"a\xff\xfeb").text() == "a\ufffd\ufffdb"


def test_a_gigabyte_passes_in_bounded_memory() -> None:
    kept, chunk = HeadAndTail(1 << 20), bytes(1 << 20)
    tracemalloc.start()
    for _ in range(1024):
        kept.feed(chunk)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert kept.total == 1 << 30
    assert peak < 8 << 20


@given(st.binary(max_size=200), st.integers(1, 64), st.lists(st.integers(0, 200), max_size=6))
def test_what_is_kept_does_not_depend_on_the_chunks(data: bytes, limit: int, cuts: list[int]) -> None:
    whole, parts = _fed(limit, data), _fed(limit, *_chunks(data, cuts))

    assert (whole.text(), whole.truncated, whole.total) == (parts.text(), parts.truncated, parts.total)


@given(st.text(max_size=100), st.integers(1, 64))
def test_valid_text_stays_valid_and_within_the_limit(text: str, limit: int) -> None:
    kept = _fed(limit, text.encode())

    assert len(kept.text().encode()) <= limit
    assert set(kept.text()) <= set(text)


@given(
    st.lists(st.sampled_from([b"x", b"\n", NONCE.encode(), NONCE[:7].encode(), NONCE.encode() + b":no\n"]), max_size=8),
    st.integers(0, 255),
    st.lists(st.integers(0, 400), max_size=8),
)
def test_the_marker_is_found_and_hidden_however_chunks_fall(parts: list[bytes], status: int, cuts: list[int]) -> None:
    output = b"".join(parts)
    kept = HeadAndTail(10_000)
    scan = EndMarker(NONCE, kept)
    for chunk in _chunks(output + f"{NONCE}:{status}\n".encode() + b"of a daemon", cuts):
        scan.feed(chunk)
    scan.close()

    assert scan.status == status
    assert kept.text().encode() == output


@given(st.binary(max_size=60), st.lists(st.integers(0, 100), max_size=5))
def test_without_a_marker_every_byte_is_output(data: bytes, cuts: list[int]) -> None:
    kept = HeadAndTail(10_000)
    scan = EndMarker(NONCE, kept)
    for chunk in _chunks(data + NONCE[:20].encode(), cuts):
        scan.feed(chunk)
    scan.close()

    assert scan.status is None
    assert kept.total == len(data) + 20
