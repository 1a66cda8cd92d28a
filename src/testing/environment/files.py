"""Files into a sandbox and out of it."""

import os
from pathlib import Path, PurePosixPath

import pytest

from ...domain.ports import Environment, Sandbox
from ...domain.sandbox import SandboxOwner, SandboxSpec
from .setting import ContractSetting, argv, held, root_of, rooted, sh

CONTENTS = {
    "empty": b"",
    "nul": b"\0",
    "lines": b"one\r\ntwo\n\nno newline at the end  ",
    "all-bytes": bytes(range(256)),
    "3MB": bytes(range(256)) * 12_000,
}
NAMES = ["plain", "with space", "漢字 é", "-rf", 'it\'s "odd" $HOME *;&', ".hidden", "deep/er/still"]


class FileContract(ContractSetting):
    """Promises about files that need no command."""

    async def test_bytes_come_back_as_they_were_written(self, sandbox: Sandbox, spec: SandboxSpec) -> None:
        folder = root_of(spec) / "new folder"
        for name, data in CONTENTS.items():
            await sandbox.write_bytes(folder / name, data)
        read = {name: await sandbox.read_bytes(folder / name, len(data)) for name, data in CONTENTS.items()}

        assert [name for name, data in CONTENTS.items() if read[name] != data] == []

    async def test_a_file_may_have_any_name(self, sandbox: Sandbox, spec: SandboxSpec) -> None:
        for name in NAMES:
            await sandbox.write_bytes(root_of(spec) / name, name.encode())
        read = [await sandbox.read_bytes(root_of(spec) / name, 1000) for name in NAMES]

        assert read == [name.encode() for name in NAMES]

    async def test_a_file_may_lie_outside_the_workspace(self, sandbox: Sandbox) -> None:
        path = PurePosixPath("/elsewhere/in the sandbox")
        await sandbox.write_bytes(path, b"far")

        assert await sandbox.read_bytes(path, 3) == b"far"

    async def test_a_relative_path_begins_at_the_workspace_root(
        self, sandbox: Sandbox, spec: SandboxSpec, tmp_path: Path
    ) -> None:
        await sandbox.write_bytes(PurePosixPath("written"), b"here")
        await sandbox.upload(_file(tmp_path / "source", b"here"), PurePosixPath("uploaded"))
        await sandbox.download(PurePosixPath("written"), tmp_path / "back")
        there = [await sandbox.read_bytes(root_of(spec) / name, 10) for name in ("written", "uploaded")]

        assert [*there, await sandbox.read_bytes(PurePosixPath("uploaded"), 10)] == [b"here"] * 3
        assert (tmp_path / "back").read_bytes() == b"here"

    async def test_writing_replaces_content_and_mode(self, sandbox: Sandbox, spec: SandboxSpec, tmp_path: Path) -> None:
        path = root_of(spec) / "file"
        await sandbox.write_bytes(path, b"a long first content", mode=0o755)
        await sandbox.write_bytes(path, b"second", mode=0o640)
        await sandbox.download(path, tmp_path / "file")

        assert (tmp_path / "file").read_bytes() == b"second"
        assert _mode(tmp_path / "file") == 0o640

    async def test_reading_a_missing_file_says_so(self, sandbox: Sandbox, spec: SandboxSpec) -> None:
        with pytest.raises(FileNotFoundError):
            await sandbox.read_bytes(root_of(spec) / "missing", 100)
        with pytest.raises(FileNotFoundError):
            await sandbox.read_bytes(root_of(spec) / "missing" / "too", 100)

    async def test_reading_more_than_allowed_is_refused(self, sandbox: Sandbox, spec: SandboxSpec) -> None:
        await sandbox.write_bytes(root_of(spec) / "file", b"12345")

        with pytest.raises(ValueError, match="file"):
            await sandbox.read_bytes(root_of(spec) / "file", 4)

    async def test_reading_a_directory_is_refused(self, sandbox: Sandbox, spec: SandboxSpec) -> None:
        await sandbox.write_bytes(root_of(spec) / "folder" / "file", b"x")

        with pytest.raises(ValueError, match="folder"):
            await sandbox.read_bytes(root_of(spec) / "folder", 1000)

    async def test_a_file_is_copied_in_and_out_with_its_mode(
        self, sandbox: Sandbox, spec: SandboxSpec, tmp_path: Path
    ) -> None:
        source = _file(tmp_path / "source", bytes(range(256)) * 20_000, 0o751)
        await sandbox.upload(source, root_of(spec) / "new folder" / "target name")
        await sandbox.download(root_of(spec) / "new folder" / "target name", tmp_path / "made" / "back")

        assert _tree(tmp_path / "made") == {"back": ("file", 0o751, source.read_bytes())}

    async def test_a_folder_is_copied_in_and_out_as_it_is(
        self, sandbox: Sandbox, spec: SandboxSpec, tmp_path: Path
    ) -> None:
        source = _sample(tmp_path / "source")
        await sandbox.upload(source, root_of(spec) / "copied tree")
        await sandbox.download(root_of(spec) / "copied tree", tmp_path / "back")

        assert _tree(tmp_path / "back") == _tree(source)

    async def test_an_empty_folder_is_copied_too(self, sandbox: Sandbox, spec: SandboxSpec, tmp_path: Path) -> None:
        (tmp_path / "source").mkdir()
        await sandbox.upload(tmp_path / "source", root_of(spec) / "empty tree")
        await sandbox.download(root_of(spec) / "empty tree", tmp_path / "back")

        assert _tree(tmp_path / "back") == {}

    async def test_a_folder_is_merged_into_what_is_there(
        self, sandbox: Sandbox, spec: SandboxSpec, tmp_path: Path
    ) -> None:
        _file(tmp_path / "first" / "sub" / "kept", b"kept")
        _file(tmp_path / "first" / "sub" / "replaced", b"old and long")
        _file(tmp_path / "second" / "sub" / "replaced", b"new")
        for name in ("first", "second"):
            await sandbox.upload(tmp_path / name, root_of(spec) / "merged")
        await sandbox.download(root_of(spec) / "merged", tmp_path / "back")

        assert (tmp_path / "back" / "sub" / "kept").read_bytes() == b"kept"
        assert (tmp_path / "back" / "sub" / "replaced").read_bytes() == b"new"

    async def test_uploading_what_is_not_there_says_so(
        self, sandbox: Sandbox, spec: SandboxSpec, tmp_path: Path
    ) -> None:
        with pytest.raises(FileNotFoundError):
            await sandbox.upload(tmp_path / "missing", root_of(spec) / "target")

    async def test_downloading_what_is_not_there_says_so(
        self, sandbox: Sandbox, spec: SandboxSpec, tmp_path: Path
    ) -> None:
        with pytest.raises(FileNotFoundError):
            await sandbox.download(root_of(spec) / "missing", tmp_path / "target")

        assert not (tmp_path / "target").exists()


class FileCommandContract(ContractSetting):
    """Promises about files as commands see and make them."""

    async def test_commands_see_what_was_uploaded(self, sandbox: Sandbox, spec: SandboxSpec, tmp_path: Path) -> None:
        await sandbox.upload(_sample(tmp_path / "source"), root_of(spec) / "tree")
        seen = await sandbox.exec(
            sh(
                """
                set -e
                test -d 'empty folder' && test -L link && test -L dangling && ! test -e dangling
                test -x 'run me' && ! test -x plain && cat link
                "./run me"
                """,
                cwd=root_of(spec) / "tree",
            )
        )

        assert (seen.exit_code, seen.stdout) == (0, "plainran")

    async def test_commands_find_absolute_paths_below_the_root_that_they_are_told(self, sandbox: Sandbox) -> None:
        await sandbox.write_bytes(PurePosixPath("/contract files/name"), b"seen")
        read = 'cat "${AGENTCOMPASS_ROOT:-}/contract files/name"'
        by_script, by_argv = await sandbox.exec(sh(read)), await sandbox.exec(argv("sh", "-c", read))

        assert (by_script.stdout, by_argv.stdout) == ("seen", "seen")

    async def test_what_is_copied_in_belongs_to_root_where_there_are_users(
        self, environment: Environment, sandbox: Sandbox, spec: SandboxSpec, tmp_path: Path
    ) -> None:
        await sandbox.upload(_file(tmp_path / "open", b"x"), root_of(spec) / "open")
        await sandbox.upload(_file(tmp_path / "closed", b"x", 0o600), root_of(spec) / "closed")
        await sandbox.write_bytes(root_of(spec) / "written", b"x")
        user = "65534" if environment.capabilities.users else None
        tried = await sandbox.exec(sh("for f in open closed written; do test -r $f; echo $?; done", user=user))
        changed = await sandbox.exec(sh("for f in open closed written; do test -w $f; echo $?; done", user=user))
        alone = user is None

        assert tried.stdout.split() == (["0", "0", "0"] if alone else ["0", "1", "0"])
        assert changed.stdout.split() == (["0", "0", "0"] if alone else ["1", "1", "1"])

    async def test_a_written_program_can_be_run_at_once(self, sandbox: Sandbox, spec: SandboxSpec) -> None:
        await sandbox.write_bytes(root_of(spec) / "tool", b"#!/bin/sh\nprintf ran\n", mode=0o755)
        result = await sandbox.exec(argv("./tool"))

        assert (result.exit_code, result.stdout) == (0, "ran")

    async def test_what_a_command_made_is_downloaded(self, sandbox: Sandbox, spec: SandboxSpec, tmp_path: Path) -> None:
        await sandbox.exec(
            sh("mkdir -p 'made here/empty' && cd 'made here' && printf x > run && chmod 700 run && ln -s run link")
        )
        await sandbox.download(root_of(spec) / "made here", tmp_path / "back")

        assert _tree(tmp_path / "back") == {
            "empty": ("folder",),
            "run": ("file", 0o700, b"x"),
            "link": ("link", "run"),
        }

    async def test_reading_follows_a_link(self, sandbox: Sandbox, spec: SandboxSpec) -> None:
        await sandbox.exec(sh("printf content > file && ln -s file link"))

        assert await sandbox.read_bytes(root_of(spec) / "link", 100) == b"content"

    @pytest.mark.parametrize("later", ["mkdir tree/link && printf x > tree/link/file", "printf x > tree/link"])
    async def test_a_download_never_writes_through_a_link_that_the_sandbox_made(
        self, sandbox: Sandbox, spec: SandboxSpec, tmp_path: Path, later: str
    ) -> None:
        outside = _file(tmp_path / "outside" / "file", b"mine").parent
        victim = outside if "mkdir" in later else outside / "file"
        await sandbox.exec(sh('mkdir tree && ln -s "$VICTIM" tree/link', env={"VICTIM": str(victim)}))
        await sandbox.download(root_of(spec) / "tree", tmp_path / "back")
        await sandbox.exec(sh(f"rm tree/link && {later}"))
        try:
            await sandbox.download(root_of(spec) / "tree", tmp_path / "back")
        finally:
            found = _tree(outside)

        assert found == {"file": ("file", 0o644, b"mine")}

    async def test_a_download_never_replaces_a_local_folder_by_a_file(
        self, sandbox: Sandbox, spec: SandboxSpec, tmp_path: Path
    ) -> None:
        mine = _file(tmp_path / "back" / "mine", b"mine")
        await sandbox.exec(sh("printf x > made"))
        await sandbox.download(root_of(spec) / "made", tmp_path / "back")

        assert mine.read_bytes() == b"mine"

    async def test_directories_of_the_spec_are_there_and_writable_by_all(
        self, environment: Environment, spec: SandboxSpec, owner: SandboxOwner
    ) -> None:
        folders = (PurePosixPath("/contract-logs/agent"), PurePosixPath("/contract logs/with space"))
        user = "65534" if environment.capabilities.users else None
        wanted = rooted(spec).model_copy(update={"directories": folders})
        async with held(environment, wanted, owner) as sandbox:
            results = [await sandbox.exec(sh("printf w > written", cwd=folder, user=user)) for folder in folders]
            written = [await sandbox.read_bytes(folder / "written", 10) for folder in folders]

        assert [result.exit_code for result in results] == [0, 0]
        assert written == [b"w", b"w"]


def _file(path: Path, data: bytes, mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    path.chmod(mode)
    return path


def _sample(folder: Path) -> Path:
    _file(folder / "plain", b"plain")
    _file(folder / "run me", b"#!/bin/sh\nprintf ran\n", 0o755)
    _file(folder / "private", b"", 0o600)
    for name in NAMES:
        _file(folder / "names" / name, name.encode())
    (folder / "empty folder").mkdir()
    (folder / "link").symlink_to("plain")
    (folder / "dangling").symlink_to("nowhere")
    (folder / "names" / "to folder").symlink_to("../empty folder")
    return folder


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def _tree(folder: Path) -> dict[str, tuple[object, ...]]:
    """Every entry below `folder`; of folders only that they are there, because archives may reset their modes."""
    found: dict[str, tuple[object, ...]] = {}
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            found[path.relative_to(folder).as_posix()] = _entry(path)
    return found


def _entry(path: Path) -> tuple[object, ...]:
    if path.is_symlink():
        return ("link", str(path.readlink()))
    if path.is_dir():
        return ("folder",)
    return ("file", _mode(path), path.read_bytes())
