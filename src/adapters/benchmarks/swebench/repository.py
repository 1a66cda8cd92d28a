"""The repository that the agent works in: what it must not see is taken out, what it changes is collected as a diff."""

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

import structlog
from pydantic import Field

from ....domain.errors import BenchmarkBroken, SandboxFailed
from ....domain.ports import Sandbox
from ....domain.sandbox import Command, ExecResult
from ....domain.value import Value
from ..script_ends import NEEDS_ROOT, NOT_ROOT, last_line
from .repository_cleaning import CLEAN, OPEN, START
from .repository_snapshot import COLLECT, NO_LARGER_THAN, SNAPSHOT, STORE
from .rows import Row

log = structlog.get_logger()
SNAPSHOT_FOLDER = "/var/lib/agentcompass/repository"
SCRIPT_LIMIT_S = 3600.0
"""The stage's own budget, which the user may set, ends first."""


class RepositoryState(Value):
    """What was found, removed and recorded before the agent started. `model_dump()` is JSON."""

    head: str
    relation: str
    """Where HEAD is: the base commit (`head`), its child (`parent` is the base), or `absent`: made from an sdist."""
    base_tree: str
    """The id, in the snapshot, of the tree that /testbed had: what is tracked or not ignored, byte for byte."""
    snapshot: str = SNAPSHOT_FOLDER
    removed: dict[str, int] = Field(default_factory=dict)
    """How many `refs`, linked `worktrees`, `modules` (repositories of submodules) and `objects` are gone."""
    checked: dict[str, int] = Field(default_factory=dict)
    """How many `refs` and `objects` are left, all of them part of HEAD's history or of the index; and how many files
    are `staged` with a content that HEAD does not have."""
    nested: tuple[str, ...] = ()
    """Repositories inside of /testbed (200 at most, as the shell quotes them); they stay as they are, whatever they
    know."""


class Collected(Value):
    """What the agent changed, as a patch for `git apply`; empty when nothing changed."""

    patch: bytes
    left_out: dict[str, int] = Field(default_factory=dict)
    """The changes not in the patch, as they are too large: names, as the shell quotes them (200 at most), and the bytes
    of the file or of its part of the patch."""


class RecordGone(SandboxFailed):
    """The agent destroyed what /testbed is compared with: the sandbox is well, and a new try would go no better."""

    transient = False


async def prepare_repository(sandbox: Sandbox, row: Row) -> RepositoryState:
    """Leave in /testbed's repository nothing but HEAD's history, and record the tree that the agent starts from.

    Gone are all refs but HEAD's branch and the tags of its past, remotes, reflogs, the stash, notes, linked work trees,
    hooks, aliases, repositories of submodules that the index does not have, and every object that HEAD and the index do
    not need. Other repositories inside of /testbed are named in the state. The work tree and the index stay as they
    are.

    Raises:
        BenchmarkBroken: the image has no git, bash or /testbed, HEAD is not the row's base commit nor its child, or
            something beyond HEAD's history cannot be removed.
        SandboxLost, SandboxFailed: as they came, or a command failed.
    """
    script = START + OPEN + CLEAN + STORE + SNAPSHOT
    said = await _run(sandbox, "preparing /testbed", script, AC_STORE=SNAPSHOT_FOLDER, AC_BASE=row.base_commit)
    if reason := said["broken"]:
        raise BenchmarkBroken(f"image {row.image!r} cannot be used for {row.instance_id!r}: {reason[0]}")
    state = RepositoryState(
        head=_one(said, "head"),
        relation=_one(said, "relation"),
        base_tree=_one(said, "base_tree"),
        removed=_counts(said, "removed."),
        checked=_counts(said, "checked."),
        nested=tuple(said["nested"]),
    )
    log.info("repository.prepared", **state.model_dump())
    return state


async def collect_patch(sandbox: Sandbox, state: RepositoryState) -> Collected:
    """The difference of the recorded tree to what /testbed has now; where that is gone, all files are deleted.

    New, staged, committed, deleted, binary and mode-changed files and links are in it, ignored files are not, nor what
    was ignored before. The files of nested repositories and submodules are files as all others. The agent's own
    repository and its settings do not matter, nor whether it is still there. New or changed files larger than
    NO_LARGER_THAN are left out, and then the largest changes, until the patch is no larger either.

    Raises:
        RecordGone: the agent removed the record of the tree.
        SandboxLost, SandboxFailed: as they came, a command failed, or the bytes arrived changed.
    """
    script = START + STORE + COLLECT
    said = await _run(sandbox, "collecting from /testbed", script, AC_STORE=state.snapshot, AC_TREE=state.base_tree)
    if said["lost"]:
        raise RecordGone(f"what was recorded of /testbed in {state.snapshot!r} is gone")
    size, sha256, path = (_one(said, name) for name in ("size", "sha256", "patch"))
    patch = b"" if size == "0" else await _read(sandbox, PurePosixPath(path))
    if hashlib.sha256(patch).hexdigest() != sha256:
        raise SandboxFailed(f"the patch of {size} bytes arrived from the sandbox with other bytes")
    left_out = _sizes(said["left_out"])
    if left_out:
        log.warning("patch.reduced", left_out_bytes=left_out)
    return Collected(patch=patch, left_out=left_out)


async def _run(sandbox: Sandbox, what: str, script: str, **variables: str) -> defaultdict[str, list[str]]:
    """What the script prints as `name=value` lines."""
    result = await _exec(sandbox, NEEDS_ROOT + script, variables, None)
    if result.exit_code == NOT_ROOT:
        result = await _exec(sandbox, script, variables, "root")
    if result.timed_out:
        raise SandboxFailed(f"{what} took more than {SCRIPT_LIMIT_S:g} s")
    if not result.ok:
        raise SandboxFailed(f"{what} failed with status {result.exit_code}: {last_line(result.stderr) or 'no message'}")
    said: defaultdict[str, list[str]] = defaultdict(list)
    for line in result.stdout.splitlines():
        name, _, value = line.partition("=")
        said[name].append(value)
    return said


async def _exec(sandbox: Sandbox, script: str, variables: Mapping[str, str], user: str | None) -> ExecResult:
    # What an image or an agent has bash read at its start may print, and is none of our business.
    env = {"BASH_ENV": "", "AC_LARGEST": str(NO_LARGER_THAN), **variables}
    # The agent may have removed the folder that commands start in.
    cwd = PurePosixPath("/")
    return await sandbox.exec(Command(script=script, env=env, user=user, cwd=cwd, timeout_s=SCRIPT_LIMIT_S))


async def _read(sandbox: Sandbox, path: PurePosixPath) -> bytes:
    try:
        return await sandbox.read_bytes(path, NO_LARGER_THAN)
    except (FileNotFoundError, ValueError) as exc:
        raise SandboxFailed(f"the patch cannot be read from the sandbox: {exc}") from exc


def _one(said: Mapping[str, Sequence[str]], name: str) -> str:
    values = said[name]
    if len(values) != 1:
        raise SandboxFailed(f"the sandbox's shell does not tell the {name} of /testbed")
    return values[0]


def _counts(said: Mapping[str, Sequence[str]], prefix: str) -> dict[str, int]:
    return {name.removeprefix(prefix): int(values[0]) for name, values in said.items() if name.startswith(prefix)}


def _sizes(lines: Sequence[str]) -> dict[str, int]:
    """`lines` have bytes and a name."""
    named = [line.partition(" ") for line in lines]
    return {name: int(size) for size, _, name in named}
