"""The agent's changes come back as a patch that makes, of the tree it was given, the very tree that it left."""

import hashlib
import os
from pathlib import Path, PurePosixPath
from random import Random
from typing import cast

import pytest
from agentcompass.adapters.benchmarks.script_ends import NOT_ROOT
from agentcompass.adapters.benchmarks.swebench.repository import RecordGone, RepositoryState, collect_patch
from agentcompass.domain.errors import SandboxFailed
from agentcompass.domain.ports import Sandbox
from agentcompass.domain.sandbox import Command, ExecResult
from swebench_repositories import AGENT, AS_AGENT, RAW_ONLY, SET_UP, applied, handed_in, prepared, run, tree, worked

pytest_plugins = ("host_process_fixtures",)

ODD_BYTES = b"ab \t\r\x0b\"'\\$`*?[]{}()<>|&;:!#%~=+,.-_@^\x01\x7f\x80\xc3\xa9\xff"


@pytest.mark.parametrize("what", AGENT)
async def test_the_patch_makes_the_tree_that_the_agent_left(sandbox: Sandbox, what: str) -> None:
    state = await prepared(sandbox, SET_UP)
    patch = await worked(sandbox, state, AGENT[what])

    assert patch
    assert await applied(sandbox, patch, raw=what in RAW_ONLY) == await tree(sandbox)


async def test_nothing_changed_is_an_empty_patch(sandbox: Sandbox) -> None:
    state = await prepared(sandbox, SET_UP)

    assert await worked(sandbox, state, "git status > /dev/null; touch lines.txt; git commit -qam 'set-up only'") == b""


async def test_what_the_set_up_left_is_not_the_agents(sandbox: Sandbox) -> None:
    state = await prepared(sandbox, SET_UP)
    patch = await worked(sandbox, state, "echo 1 > new; git add -A -f; git commit -qm all")

    assert names(patch) == [b"new"]


async def test_what_was_ignored_is_left_out_though_the_rules_are_gone(sandbox: Sandbox) -> None:
    odd = r"""cd "$R/testbed"; mkdir 'build/[a]' 'o dd'; touch 'build/[a]/x' 'a*b.pyc' 'end .pyc' 'back\slash.pyc'
        touch '#c.pyc' '!d.pyc' 'sp ' o\ dd/f; printf 'sp\\ \n/o dd\n' >> .gitignore"""
    state = await prepared(sandbox, SET_UP, odd)
    patch = await worked(sandbox, state, "rm .gitignore; echo 1 > ab.pyc; echo 2 > back.pyc; mkdir a; echo 3 > a/x")

    assert names(patch) == [b".gitignore", b"a/x", b"ab.pyc", b"back.pyc"]


async def test_new_files_that_are_ignored_are_left_out_unless_added(sandbox: Sandbox) -> None:
    state = await prepared(sandbox, SET_UP)
    patch = await worked(sandbox, state, "echo 1 > a.pyc; echo 2 > b.pyc; echo 3 > build/new; git add -f b.pyc")

    assert names(patch) == [b"b.pyc"]


async def test_files_that_are_tracked_are_collected_though_ignored(sandbox: Sandbox) -> None:
    state = await prepared(sandbox, SET_UP)
    patch = await worked(sandbox, state, "rm -rf .git; echo 1 > build/tracked.txt; echo '*' > .gitignore; echo 2 > new")

    assert names(patch) == [b".gitignore", b"build/tracked.txt"]


@pytest.mark.parametrize("where", [".git/info/exclude", "../home/.config/git/ignore", "../home/excludes"])
async def test_all_rules_of_what_is_ignored_count(sandbox: Sandbox, where: str) -> None:
    rule = f"""cd "$R/testbed"; mkdir -p ../home/.config/git; printf '*.log' >> {where}; unset GIT_CONFIG_GLOBAL
        [ {where} != ../home/excludes ] || git config --global core.excludesFile '~/excludes'"""
    state = await prepared(sandbox, rule)

    assert await worked(sandbox, state, "echo 1 > a.log; echo 2 > b.txt; rm -rf .git ~/.config ~/.gitconfig") != b""
    assert names((await collect_patch(sandbox, state)).patch) == [b"b.txt"]


async def test_a_submodule_of_the_image_is_collected_file_by_file(sandbox: Sandbox) -> None:
    submodule = """git init -q "$R/sub"; cd "$R/sub"; echo 1 > file; echo 2 > gone; git add -A; git commit -qm sub
        cd "$R/testbed"; git -c protocol.file.allow=always submodule --quiet add "$R/sub" sub
        git -c protocol.file.allow=always submodule --quiet add "$R/sub" unfilled
        git commit -qm submodules; git submodule --quiet deinit unfilled"""
    state = await prepared(sandbox, submodule)
    work = "cd sub; echo 2 >> file; rm gone; git commit -qam work; echo 3 > new; echo 4 > ../unfilled/file"
    patch = await worked(sandbox, state, work)

    assert names(patch) == [b"sub/file", b"sub/gone", b"sub/new", b"unfilled/file"]
    assert await applied(sandbox, patch, raw=False) == await tree(sandbox)


async def test_hostile_settings_run_nothing(sandbox: Sandbox, tmp_path: Path) -> None:
    state = await prepared(sandbox, SET_UP)
    await run(sandbox, AS_AGENT + AGENT["hostile settings"])
    await run(sandbox, 'rm -f "$R/ran"')
    await collect_patch(sandbox, state)

    assert list(tmp_path.rglob("evil"))
    assert not list(tmp_path.rglob("ran"))


async def test_many_odd_names_and_contents_come_back(sandbox: Sandbox, tmp_path: Path) -> None:
    state = await prepared(sandbox, SET_UP)
    (testbed,) = tmp_path.rglob("testbed")
    random = Random(4)
    for number in range(300):
        name = bytes(random.choice(ODD_BYTES) for _ in range(random.randint(1, 12)))
        lines = [bytes(random.choice(ODD_BYTES) for _ in range(random.randint(0, 9))) for _ in range(9)]
        (testbed / os.fsdecode(b"%d" % number + name)).write_bytes(b"\n".join(lines))
    patch = (await collect_patch(sandbox, state)).patch

    assert len(names(patch)) == 300
    assert await applied(sandbox, patch, raw=False) == await tree(sandbox)


async def test_files_too_large_are_left_out_and_named_and_the_rest_is_handed_in(sandbox: Sandbox) -> None:
    state = await prepared(sandbox, SET_UP)
    work = """git init -q nested; truncate -s 40M 'core [1]*' nested/core; truncate -s 50M lines.txt
        truncate -s 60M x.pyc; echo '!core*' >> .gitignore; echo 1 > nested/file; echo mend >> crlf.txt"""
    found = await handed_in(sandbox, state, work)

    assert found.left_out == {"lines.txt": 50 << 20, "core\\ \\[1\\]\\*": 40 << 20, "nested/core": 40 << 20}
    assert names(found.patch) == [b".gitignore", b"crlf.txt", b"nested/file"]
    await applied(sandbox, found.patch, raw=False)


async def test_a_file_too_large_may_have_any_name(sandbox: Sandbox) -> None:
    state = await prepared(sandbox, SET_UP)
    work = (
        "mkdir ' d'; for f in $'a\\nb' ':(top)c' '-x' ' d/ ' $'\\377'; do truncate -s 40M \"./$f\"; done; echo 1 > mend"
    )
    found = await handed_in(sandbox, state, work)

    assert set(found.left_out) == {"$'a\\nb'", ":\\(top\\)c", "-x", "\\ d/\\ ", "$'\\377'"}
    assert names(found.patch) == [b"mend"]


async def test_a_folder_that_became_a_file_too_large_is_gone(sandbox: Sandbox) -> None:
    state = await prepared(sandbox, SET_UP)
    work = "rm -r package lines.txt; truncate -s 40M package; mkdir lines.txt; truncate -s 40M lines.txt/core"
    found = await handed_in(sandbox, state, work)

    assert found.left_out == {"package": 40 << 20, "lines.txt/core": 40 << 20}
    assert names(found.patch) == [b"lines.txt", b"package/module.py"]


async def test_large_files_of_the_image_do_not_matter(sandbox: Sandbox) -> None:
    large = 'cd "$R/testbed"; truncate -s 40M data.bin; truncate -s 40M large.pyc'
    state = await prepared(sandbox, large)
    patch = await worked(sandbox, state, "rm .gitignore; touch data.bin; echo 1 >> crlf.txt")

    assert names(patch) == [b".gitignore", b"crlf.txt"]


async def test_of_a_patch_too_large_the_largest_parts_are_left_out(sandbox: Sandbox) -> None:
    state = await prepared(sandbox, SET_UP)
    work = """rm crlf.txt; ln -s lines.txt crlf.txt; for i in 8 9 10 11; do head -c ${i}M /dev/urandom > "r $i"; done
        head -c 12M /dev/urandom > lines.txt"""
    found = await handed_in(sandbox, state, work)

    assert list(found.left_out) == ["lines.txt", "r\\ 11", "r\\ 10"]
    assert all(10 << 20 < size < 16 << 20 for size in found.left_out.values())
    assert set(names(found.patch)) == {b"crlf.txt", b"r 8", b"r 9"}


async def test_collecting_twice_gives_the_same(sandbox: Sandbox) -> None:
    state = await prepared(sandbox, SET_UP)
    patch = await worked(sandbox, state, AGENT["odd names"])

    assert (await collect_patch(sandbox, state)).patch == patch


async def test_a_missing_testbed_is_the_loss_of_all_files(sandbox: Sandbox) -> None:
    state = await prepared(sandbox, SET_UP)
    patch = await worked(sandbox, state, 'cd /; rm -rf "$R/testbed"')

    assert b"lines.txt" in names(patch)
    assert patch.count(b"deleted file mode") == len(names(patch))


@pytest.mark.parametrize("what", ["", "/lib/agentcompass/repository/git/objects/pack/*.pack"], ids=["all", "objects"])
async def test_a_record_that_is_gone_is_told_apart(sandbox: Sandbox, what: str) -> None:
    state = await prepared(sandbox)
    with pytest.raises(RecordGone, match="is gone"):
        await worked(sandbox, state, f'rm -rf "$R/var"{what}')


class Tampering:
    """Passes all on to a sandbox of host_process, but the bytes that are read."""

    def __init__(self, inner: Sandbox, read: bytes | Exception) -> None:
        self.id, self.image, self.image_digest = inner.id, inner.image, inner.image_digest
        self.exec, self.write_bytes, self.upload = inner.exec, inner.write_bytes, inner.upload
        self.download, self.kill_processes = inner.download, inner.kill_processes
        self._read = read

    async def read_bytes(self, path: PurePosixPath, max_bytes: int) -> bytes:
        if isinstance(self._read, Exception):
            raise self._read
        return self._read


@pytest.mark.parametrize("read", [b"other bytes", b"", FileNotFoundError("gone"), ValueError("larger")])
async def test_bytes_that_arrive_changed_are_an_error(sandbox: Sandbox, read: bytes | Exception) -> None:
    state = await prepared(sandbox)
    with pytest.raises(SandboxFailed, match="patch"):
        await worked(Tampering(sandbox, read), state, "echo 1 > new")


class Answering:
    """A sandbox whose user is not root, and that answers in root's place."""

    id, image, image_digest = "answering", None, None

    def __init__(self, answer: ExecResult) -> None:
        self.commands: list[Command] = []
        self._answer = answer

    async def exec(self, command: Command) -> ExecResult:
        self.commands.append(command)
        return ANSWER.model_copy(update={"exit_code": NOT_ROOT}) if command.user is None else self._answer


EMPTY = hashlib.sha256().hexdigest()
ANSWER = ExecResult(exit_code=0, stdout=f"size=0\nsha256={EMPTY}\npatch=/p\n", stderr="", duration_s=1)
STATE = RepositoryState(head="1", relation="head", base_tree="2")


async def test_root_does_it_where_the_sandboxs_user_is_another() -> None:
    sandbox = Answering(ANSWER)
    found = await collect_patch(cast(Sandbox, sandbox), STATE)

    assert (found.patch, found.left_out) == (b"", {})
    assert [command.user for command in sandbox.commands] == [None, "root"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"exit_code": None, "timed_out": True}, "collecting from /testbed took more than"),
        ({"exit_code": 1, "stderr": "fatal: disk full\n"}, "failed with status 1: fatal: disk full"),
        ({"exit_code": 137}, "failed with status 137: no message"),
        ({"stdout": ""}, "does not tell the size"),
    ],
)
async def test_a_command_that_fails_is_an_error(changes: dict[str, object], message: str) -> None:
    with pytest.raises(SandboxFailed, match=message):
        await collect_patch(cast(Sandbox, Answering(ANSWER.model_copy(update=changes))), STATE)


def names(patch: bytes) -> list[bytes]:
    """What files it changes, where their names are not odd."""
    return [line.rpartition(b" b/")[2].rstrip(b'"') or line for line in patch.split(b"\n") if line[:5] == b"diff "]
