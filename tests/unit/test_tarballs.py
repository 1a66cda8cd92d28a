"""Trees survive a tar archive; hostile archives reach nothing outside their target."""

import io
import os
import tarfile
from pathlib import Path, PurePosixPath

import pytest
from agentcompass.adapters.support.tarballs import pack, pack_bytes, unpack


def _archive(*members: tuple[tarfile.TarInfo, bytes]) -> io.BytesIO:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for info, data in members:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    buffer.seek(0)
    return buffer


def _file(name: str, data: bytes = b"x", mode: int = 0o644) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.mode = mode
    return info, data


def _link(name: str, leads_to: str, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, leads_to
    return info, b""


def _folder(name: str, mode: int = 0o755) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.mode = tarfile.DIRTYPE, mode
    return info, b""


def _everything_under(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_text("secret")
    return folder


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "target"


def test_a_tree_comes_back_with_modes_and_links(tmp_path: Path, target: Path) -> None:
    source = tmp_path / "source"
    (source / "bin").mkdir(parents=True)
    (source / "bin" / "run").write_bytes(b"\x00\xff")
    (source / "bin" / "run").chmod(0o755)
    (source / "link").symlink_to("bin/run")
    (source / "empty").mkdir(mode=0o750)
    packed = io.BytesIO()
    pack(source, PurePosixPath("/tree"), packed)
    packed.seek(0)
    left_out = unpack(packed, target)

    assert left_out == []
    assert (target / "bin" / "run").read_bytes() == b"\x00\xff"
    assert (target / "bin" / "run").stat().st_mode & 0o777 == 0o755
    assert os.readlink(target / "link") == "bin/run"
    assert (target / "empty").is_dir()


def test_an_archive_names_neither_the_target_nor_its_parents(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "file").write_text("x")
    packed = io.BytesIO()
    pack(tmp_path / "source", PurePosixPath("/a/b"), packed)
    packed.seek(0)

    with tarfile.open(fileobj=packed) as tar:
        assert tar.getnames() == ["a/b/file"]


def test_all_that_is_packed_belongs_to_root(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    packed = io.BytesIO()
    pack(tmp_path / "file", PurePosixPath("/file"), packed)
    packed.seek(0)

    with tarfile.open(fileobj=packed) as tar:
        assert [(info.uid, info.gid) for info in tar] == [(0, 0)]


def test_hard_links_are_packed_as_files_of_their_own(tmp_path: Path, target: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a").write_text("same")
    os.link(source / "a", source / "b")
    packed = io.BytesIO()
    pack(source, PurePosixPath("/t"), packed)
    packed.seek(0)
    unpack(packed, target)

    assert [(target / name).read_text() for name in "ab"] == ["same", "same"]


def test_pipes_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    os.mkfifo(tmp_path / "source" / "pipe")
    packed = io.BytesIO()
    count = pack(tmp_path / "source", PurePosixPath("/t"), packed)

    assert count == 0


def test_packing_nothing_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        pack(tmp_path / "missing", PurePosixPath("/t"), io.BytesIO())


def test_one_file_becomes_the_target_itself(target: Path) -> None:
    archive = io.BytesIO(pack_bytes({PurePosixPath("/name"): (b"content", 0o640)}))
    unpack(archive, target)

    assert target.read_bytes() == b"content"
    assert target.stat().st_mode & 0o777 == 0o640


def test_a_file_replaces_a_link_and_not_what_it_leads_to(target: Path, outside: Path) -> None:
    target.symlink_to(outside / "secret")
    unpack(_archive(_file("name", b"new")), target)

    assert (outside / "secret").read_text() == "secret"
    assert target.read_bytes() == b"new"


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_a_folder_that_is_the_target_is_never_replaced(target: Path, kind: bytes) -> None:
    target.mkdir()
    (target / "mine").write_text("mine")
    left_out = unpack(_archive(_file("t/first"), _link("t", "t/first", kind)), target)

    assert left_out == ["t"]
    assert _everything_under(target) == {"mine", "first"}


@pytest.mark.parametrize("name", ["../evil", "top/../../evil", "/evil", "top/../../../tmp/evil"])
def test_names_that_climb_out_are_left_out(target: Path, name: str) -> None:
    left_out = unpack(_archive(_folder("top"), _file(name), _file("top/good")), target)

    assert left_out == [name]
    assert _everything_under(target) == {"good"}


def test_links_that_lead_outside_are_left_out(target: Path, outside: Path) -> None:
    archive = _archive(_folder("t"), _link("t/absolute", str(outside)), _link("t/up", "../outside/secret"))
    left_out = unpack(archive, target)

    assert sorted(left_out) == ["t/absolute", "t/up"]
    assert _everything_under(target) == set()


def test_a_link_bent_by_another_link_is_left_out(target: Path, outside: Path) -> None:
    archive = _archive(_folder("t"), _folder("t/s"), _link("t/bent", "dot/../outside/secret"), _link("t/dot", "."))
    left_out = unpack(archive, target)

    assert left_out == ["t/bent"]
    assert os.readlink(target / "dot") == "."


def test_nothing_is_written_through_a_link_of_the_archive(target: Path, outside: Path) -> None:
    unpack(_archive(_folder("t"), _link("t/door", str(outside)), _file("t/door/evil")), target)

    assert _everything_under(outside) == {"secret"}


def test_no_link_is_made_through_a_link_of_the_archive(target: Path, outside: Path) -> None:
    archive = _archive(
        _folder("t"), _link("t/a", "b/../outside"), _link("t/b", "."), _link("t/a/evil", "x"), _file("t/c")
    )
    unpack(archive, target)

    assert _everything_under(outside) == {"secret"}
    assert (target / "c").exists()


def test_nothing_is_written_through_a_link_that_was_there(target: Path, outside: Path) -> None:
    target.mkdir()
    (target / "door").symlink_to(outside)
    left_out = unpack(_archive(_folder("t"), _file("t/door/evil")), target)

    assert left_out == ["t/door/evil"]
    assert _everything_under(outside) == {"secret"}


def test_a_hard_link_to_outside_is_left_out(target: Path, outside: Path) -> None:
    left_out = unpack(_archive(_folder("t"), _link("t/hard", "../outside/secret", tarfile.LNKTYPE)), target)

    assert left_out == ["t/hard"]


def test_a_hard_link_inside_is_a_copy(target: Path) -> None:
    unpack(_archive(_folder("t"), _file("t/a", b"same"), _link("t/b", "t/a", tarfile.LNKTYPE)), target)

    assert (target / "b").read_bytes() == b"same"


def test_devices_are_left_out(target: Path) -> None:
    left_out = unpack(_archive(_folder("t"), _link("t/null", "", tarfile.CHRTYPE)), target)

    assert left_out == ["t/null"]


def test_what_was_unreadable_can_be_read_and_removed_by_its_owner(target: Path) -> None:
    unpack(_archive(_folder("t", 0), _folder("t/closed", 0), _file("t/closed/file", b"x", 0o4000)), target)

    assert (target / "closed").stat().st_mode & 0o700 == 0o700
    assert (target / "closed" / "file").stat().st_mode & 0o7777 == 0o600


def test_a_torn_archive_is_an_error(target: Path) -> None:
    whole = _archive(_file("t", b"x" * 5000)).getvalue()
    with pytest.raises(tarfile.TarError):
        unpack(io.BytesIO(whole[:2000]), target)
