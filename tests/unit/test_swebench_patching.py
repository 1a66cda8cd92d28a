"""Applying patches of every kind to real repositories."""

import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import pytest
from agentcompass.adapters.benchmarks.swebench.patch_paths import is_inside, patch_paths
from agentcompass.adapters.benchmarks.swebench.patching import (
    ALREADY_APPLIED,
    COMMANDS,
    apply_command,
    apply_patch,
    ended,
)
from agentcompass.adapters.environments.host_process.environment import HostProcessEnvironment, HostProcessParameters
from agentcompass.domain.errors import SandboxLost, VerifierFailed
from agentcompass.domain.ports import Sandbox
from agentcompass.domain.sandbox import Command, ExecResult, SandboxSpec
from agentcompass.testing.environment import an_owner
from agentcompass.testing.fakes import FakeEnvironment
from hypothesis import given
from hypothesis import strategies as st

ROOT = PurePosixPath("/testbed")
LINES = b"".join(b"line %d\n" % number for number in range(1, 31))
BINARY = bytes(range(256)) * 4
BASE: dict[str, bytes] = {
    "numbers.txt": LINES,
    "run.sh": b"#!/bin/sh\necho hello\n",
    "windows.txt": b"one\r\ntwo\r\nthree\r\n",
    "picture.bin": BINARY,
    "a folder/n\xc3\xa4me.txt".encode("latin-1").decode("utf-8", "surrogateescape"): b"first\nsecond\n",
    "no_newline.txt": b"first\nlast",
}
GIT, THREE_WAY, _REJECT, PATCH = COMMANDS


def changed(number: int, text: bytes = b"changed") -> bytes:
    """LINES with one of them changed."""
    lines = LINES.splitlines(keepends=True)
    lines[number - 1] = text + b"\n"
    return b"".join(lines)


@dataclass(frozen=True)
class Case:
    """A patch that turns BASE into `target`, then bent by `bend`, on a tree to which `tree` has been done."""

    target: dict[str, bytes | None]
    bend: tuple[tuple[bytes, bytes], ...] = ()
    tree: dict[str, bytes] = field(default_factory=dict)
    command: str | None = GIT
    """None: it does not apply."""
    result: dict[str, bytes | None] | None = None
    """Where it is not `target`."""


CASES = {
    "clean": Case({"numbers.txt": changed(3)}),
    "several files": Case({"numbers.txt": changed(3), "run.sh": None, "new/file.txt": b"new\n"}),
    "moved by ten lines": Case(
        {"numbers.txt": changed(20)},
        tree={"numbers.txt": b"more\n" * 10 + LINES},
        result={"numbers.txt": b"more\n" * 10 + changed(20)},
    ),
    "against another version, whose blob git has": Case(
        {"numbers.txt": changed(20)},
        tree={"numbers.txt": changed(18)},
        command=PATCH,
        result={"numbers.txt": changed(18).replace(b"line 20\n", b"changed\n")},
    ),
    "with a wrong context line": Case(
        {"numbers.txt": changed(20)},
        bend=((b" line 18\n", b" line eighteen\n"), (b"index ", b"index 0")),
        command=PATCH,
    ),
    "already applied": Case({"numbers.txt": changed(3)}, tree={"numbers.txt": changed(3)}, command=ALREADY_APPLIED),
    "a creation already applied": Case({"new.txt": b"new\n"}, tree={"new.txt": b"new\n"}, command=ALREADY_APPLIED),
    "applied in part": Case(
        {"numbers.txt": changed(3), "run.sh": b"#!/bin/sh\necho bye\n"},
        tree={"numbers.txt": changed(3)},
        bend=((b"index ", b"index 0"),),
        command=None,
    ),
    "not applicable in its second file": Case(
        {"numbers.txt": changed(3), "run.sh": b"#!/bin/sh\necho bye\n"},
        tree={"run.sh": b"quite\nanother\nprogram\n"},
        command=None,
    ),
    "for a file that is not there": Case(
        {"numbers.txt": changed(3)}, bend=((b"numbers.txt", b"elsewhere.txt"),), command=None
    ),
    "with CRLF files": Case({"windows.txt": b"one\r\n2\r\nthree\r\n"}),
    "turned to CRLF": Case({"numbers.txt": changed(3)}, bend=((b"\n", b"\r\n"),), command=PATCH),
    "fenced": Case({"numbers.txt": changed(3)}, bend=((b"diff --git", b"```diff\ndiff --git"), (b"$", b"```\n"))),
    "binary": Case({"picture.bin": BINARY[::-1], "numbers.txt": changed(3)}),
    "binary without its bytes": Case({"picture.bin": BINARY[::-1]}, bend=((b"GIT binary", b"Binary"),), command=None),
    "a file of no bytes": Case({"empty.txt": b""}),
    "a deletion": Case({"numbers.txt": None}),
    "a last line without its end": Case({"no_newline.txt": b"first\nend"}),
    "a name with blanks and umlauts": Case({list(BASE)[4]: b"first\nthird\n"}),
    "new names with blanks and odd bytes": Case({"b b/\udcff \u20ac'\"$x.txt": b"new\n"}),
    "garbage": Case({"numbers.txt": changed(3)}, bend=((b"@@ ", b"@ "),), command=None),
}


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    environment = HostProcessEnvironment(HostProcessParameters(root_folder=tmp_path / "sandboxes"))
    async with environment.open(SandboxSpec(workspace_root=ROOT), an_owner()) as sandbox:
        yield sandbox
    await environment.close()


def git(tree: Path, *words: str) -> bytes:
    options = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "core.autocrlf=false", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *options, *words], cwd=tree, check=True, capture_output=True).stdout


def write(tree: Path, files: dict[str, bytes | None]) -> None:
    for name, content in files.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink() if content is None else path.write_bytes(content)


def read(tree: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(tree)): path.read_bytes()
        for path in tree.rglob("*")
        if ".git" not in path.parts and path.is_file()
    }


def repository(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True)
    write(folder, dict(files))
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "base")
    return folder


def difference(folder: Path, target: dict[str, bytes | None]) -> bytes:
    """The patch from BASE to `target`."""
    write(repository(folder, BASE), target)
    git(folder, "add", "-A")
    return git(folder, "diff", "--cached", "--binary", "--full-index", "HEAD")


async def in_testbed(sandbox: Sandbox, tree: Path) -> None:
    await sandbox.upload(tree, ROOT)
    await sandbox.exec(Command(script="git update-index -q --refresh", cwd=ROOT, timeout_s=60))


async def tree_of(sandbox: Sandbox, target: Path) -> dict[str, bytes]:
    await sandbox.download(ROOT, target)
    return read(target)


@pytest.mark.parametrize("name", CASES)
async def test_a_patch_is_applied_by_the_first_command_that_takes_it_or_leaves_no_trace(
    name: str, sandbox: Sandbox, tmp_path: Path
):
    case = CASES[name]
    patch = difference(tmp_path / "difference", case.target)
    for old, new in case.bend:
        patch = patch + new if old == b"$" else patch.replace(old, new)
    start = BASE | case.tree
    await in_testbed(sandbox, repository(tmp_path / "start", start))

    outcome = await apply_patch(sandbox, patch, ROOT)

    expected = start if case.command is None else start | (case.target if case.result is None else case.result)
    assert await tree_of(sandbox, tmp_path / "end") == {k: v for k, v in expected.items() if v is not None}
    assert (outcome.applied, outcome.command) == (case.command is not None, case.command or "")
    assert set(outcome.changed) == {k for k in {*start, *expected} if start.get(k) != expected.get(k)}


async def test_a_reversed_patch_is_refused_and_never_taken_back(sandbox: Sandbox, tmp_path: Path):
    write(repository(tmp_path / "difference", BASE), {"numbers.txt": changed(3)})
    forward = git(tmp_path / "difference", "diff")
    backward = git(tmp_path / "difference", "diff", "-R")
    await in_testbed(sandbox, repository(tmp_path / "start", BASE | {"numbers.txt": changed(3)}))

    again = await apply_patch(sandbox, forward, ROOT)
    tree = await tree_of(sandbox, tmp_path / "end")
    back = await apply_patch(sandbox, backward, ROOT)

    assert tree["numbers.txt"] == changed(3)
    assert again.command == ALREADY_APPLIED
    assert back.command == GIT


async def test_a_lost_last_newline_is_mended_and_told(sandbox: Sandbox, tmp_path: Path):
    patch = difference(tmp_path / "difference", {"numbers.txt": LINES + b"one more\n"})
    await in_testbed(sandbox, repository(tmp_path / "start", BASE))

    outcome = await apply_patch(sandbox, patch[:-1], ROOT)

    assert outcome.newline_added
    assert outcome.command == GIT
    assert (await tree_of(sandbox, tmp_path / "end"))["numbers.txt"] == LINES + b"one more\n"


async def test_a_change_of_mode_and_a_rename_are_applied(sandbox: Sandbox, tmp_path: Path):
    tree = repository(tmp_path / "difference", BASE)
    (tree / "run.sh").chmod(0o755)
    (tree / "numbers.txt").rename(tree / "renamed.txt")
    git(tree, "add", "-A")
    patch = git(tree, "diff", "--cached", "-M", "HEAD")
    await in_testbed(sandbox, repository(tmp_path / "start", BASE))

    outcome = await apply_patch(sandbox, patch, ROOT)

    end = await tree_of(sandbox, tmp_path / "end")
    assert outcome.changed == ("numbers.txt", "renamed.txt", "run.sh")
    assert end["renamed.txt"] == LINES
    assert "numbers.txt" not in end
    assert (tmp_path / "end" / "run.sh").stat().st_mode & 0o111


async def test_a_symbolic_link_is_applied(sandbox: Sandbox, tmp_path: Path):
    tree = repository(tmp_path / "difference", BASE)
    (tree / "link").symlink_to("numbers.txt")
    git(tree, "add", "-A")
    await in_testbed(sandbox, repository(tmp_path / "start", BASE))

    outcome = await apply_patch(sandbox, git(tree, "diff", "--cached", "HEAD"), ROOT)

    assert outcome.changed == ("link",)
    assert (await sandbox.exec(Command(argv=("readlink", "link"), cwd=ROOT, timeout_s=60))).stdout == "numbers.txt\n"


async def test_a_link_in_the_place_of_a_folder_is_applied(sandbox: Sandbox, tmp_path: Path):
    start = BASE | {"folder/file.txt": b"inside\n"}
    tree = repository(tmp_path / "difference", start)
    (tree / "folder").rename(tree / "moved")
    (tree / "folder").symlink_to("moved")
    git(tree, "add", "-A")
    await in_testbed(sandbox, repository(tmp_path / "start", start))

    outcome = await apply_patch(sandbox, git(tree, "diff", "--cached", "--no-renames", "HEAD"), ROOT)

    assert outcome.changed == ("folder", "folder/file.txt", "moved/file.txt")
    assert (await sandbox.exec(Command(argv=("readlink", "folder"), cwd=ROOT, timeout_s=60))).stdout == "moved\n"


async def test_what_the_image_left_uncommitted_survives_every_try(sandbox: Sandbox, tmp_path: Path):
    patch = difference(tmp_path / "difference", {"numbers.txt": changed(3), "run.sh": b"#!/bin/sh\necho bye\n"})
    tree = repository(tmp_path / "start", BASE)
    own = {"windows.txt": b"set up\n", "build/left.txt": b"built\n", "run.sh": b"another\nprogram\nof\nthe image\n"}
    write(tree, dict(own))
    write(tree, {"staged.txt": b"staged\n"})
    git(tree, "add", "staged.txt")
    before = git(tree, "status", "--porcelain")
    await in_testbed(sandbox, tree)

    outcome = await apply_patch(sandbox, patch, ROOT)

    assert not outcome.applied
    assert await tree_of(sandbox, tmp_path / "end") == BASE | own | {"staged.txt": b"staged\n"}
    status = await sandbox.exec(Command(script="git status --porcelain", cwd=ROOT, timeout_s=60))
    assert status.stdout.encode() == before


async def test_fuzzy_patches_leave_no_copies_of_the_original_behind(sandbox: Sandbox, tmp_path: Path):
    patch = difference(tmp_path / "difference", {"numbers.txt": changed(20)}).replace(b" line 18\n", b" line 17\n")
    await in_testbed(sandbox, repository(tmp_path / "start", BASE | {"numbers.txt.orig": b"the image's own\n"}))

    outcome = await apply_patch(sandbox, patch, ROOT)

    assert outcome.changed == ("numbers.txt",)
    end = await tree_of(sandbox, tmp_path / "end")
    assert end == BASE | {"numbers.txt": changed(20), "numbers.txt.orig": b"the image's own\n"}


@pytest.mark.parametrize("name", [".git/hooks/pre-commit", ".git/config", "../outside.txt"])
async def test_nothing_outside_the_tree_or_in_git_s_own_folder_is_touched(name: str, sandbox: Sandbox, tmp_path: Path):
    patch = f"--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+evil\n".encode()
    tree = repository(tmp_path / "start", BASE)
    (tree / ".git" / "config").unlink()
    await in_testbed(sandbox, tree)

    outcome = await apply_patch(sandbox, patch, ROOT)

    found = await sandbox.exec(Command(script='grep -rl "^evil" .. | sort', cwd=ROOT, timeout_s=60))
    assert not outcome.applied
    assert found.stdout.strip() in ("", f"../testbed/{name}")


async def test_a_folder_without_a_repository_takes_patches_too(sandbox: Sandbox, tmp_path: Path):
    patch = difference(tmp_path / "difference", {"numbers.txt": changed(3)})
    write(tmp_path / "start", dict(BASE))
    await sandbox.upload(tmp_path / "start", ROOT)

    outcome = await apply_patch(sandbox, patch, ROOT)

    assert outcome.command == GIT
    assert (await tree_of(sandbox, tmp_path / "end"))["numbers.txt"] == changed(3)


async def test_the_command_alone_applies_a_patch(sandbox: Sandbox, tmp_path: Path):
    patch = difference(tmp_path / "difference", {"numbers.txt": changed(3)})
    await in_testbed(sandbox, repository(tmp_path / "start", BASE))

    result = await sandbox.exec(apply_command(patch, ROOT))

    assert result.ok
    assert (await tree_of(sandbox, tmp_path / "end"))["numbers.txt"] == changed(3)


async def test_a_missing_folder_is_no_failed_patch(sandbox: Sandbox):
    with pytest.raises(VerifierFailed, match="elsewhere"):
        await apply_patch(sandbox, b"diff", PurePosixPath("/elsewhere"))


async def test_a_time_out_is_no_failed_patch():
    slow = ExecResult(exit_code=None, stdout="", stderr="", timed_out=True, duration_s=1)
    async with FakeEnvironment(exec_script=lambda _sandbox, _command: slow).open(SandboxSpec(), an_owner()) as sandbox:
        with pytest.raises(VerifierFailed, match="300 s"):
            await apply_patch(sandbox, b"diff", ROOT)


async def test_a_lost_sandbox_is_no_failed_patch():
    async with FakeEnvironment().open(SandboxSpec(), an_owner()) as sandbox:
        sandbox.lose()
        with pytest.raises(SandboxLost):
            await apply_patch(sandbox, b"diff", ROOT)


@given(st.lists(st.sampled_from([b"diff --git ", b"--- ", b"+++ ", b"rename to ", b'"a/\\', b"\n", b" b/", b"../"])))
def test_paths_of_junk_stay_inside(words: list[bytes]):
    assert all(map(is_inside, patch_paths(b"".join(words))))


@given(st.binary(max_size=200))
def test_paths_of_any_bytes_stay_inside(junk: bytes):
    assert all(map(is_inside, patch_paths(b"+++ b/" + junk)))


@given(st.binary())
def test_only_a_last_newline_is_ever_added(patch: bytes):
    assert ended(patch) in (patch, patch + b"\n")
    assert not ended(patch) or ended(patch).endswith(b"\n")
