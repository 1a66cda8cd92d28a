"""Tasks from a git repository: one revision, fetched once, kept by its commit."""

import asyncio
import hashlib
import os
import re
import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import structlog

from ....domain.errors import ConfigError
from ....domain.local_path import local_path
from ....domain.redaction import Redactor, url_secrets
from ...support.cleanup import cleaned_up
from ..data_folder import WRITABLE, beside, keeping, publish, tells_no_room
from .task_folder import first_lfs_pointer, may_be_of_a_task

log = structlog.get_logger()
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REVISION = re.compile(r"[A-Za-z0-9_][\w./+-]*", re.ASCII)
_OFFLINE = "clone it where there is a network, and give the folder as the benchmark parameter `path`"
_SUBMODULE = "160000 "
_BYTES_AS_STORED = (
    "core.autocrlf=false",
    "core.symlinks=true",
    "core.hooksPath=/dev/null",
    "advice.detachedHead=false",
)
_OF_ANOTHER_REPOSITORY = re.compile(
    r"GIT_(DIR|COMMON_DIR|WORK_TREE|IMPLICIT_WORK_TREE|INDEX_FILE|OBJECT_DIRECTORY|ALTERNATE_OBJECT_DIRECTORIES"
    r"|QUARANTINE_PATH|NAMESPACE|PREFIX|SHALLOW_FILE|GRAFT_FILE|REPLACE_REF_BASE|NO_REPLACE_OBJECTS|INTERNAL_.*"
    r"|TEMPLATE_DIR|DEFAULT_HASH|ATTR_SOURCE|CONFIG|CONFIG_(COUNT|PARAMETERS|KEY_\d+|VALUE_\d+)|LFS_.*)"
)
"""Variables that lead git to other files, or give it settings for one command; those of the user's network stay.
GIT_LFS_SKIP_SMUDGE, which many set for their own work, would leave pointers in the place of files."""
_MAX_MESSAGE = 300
_KILL_LIMIT_S = 5


@dataclass(frozen=True)
class Checkout:
    """A revision's files, its full commit id, and where they came from without credentials."""

    path: Path
    commit: str
    url: str


def shown_url(url: str) -> str:
    """`url` without user, password and query."""
    if "://" not in url:
        return url
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


async def checkout(url: str, revision: str, cache: Path, *, limit_s: float) -> Checkout:
    """The files of `revision` (a commit, tag or branch) below `cache`; a commit that is there needs no network.

    Safe beside other processes that fetch the same. The URL's credentials reach git through its environment only.
    A relative path is one from the working directory.

    Raises:
        ConfigError: no git, no such repository or revision, no network, or more than `limit_s` seconds; the revision
            has tasks with submodules or files that are Git LFS pointers; `cache` cannot be read or written to.
    """
    url = _located(url)
    shown = shown_url(url)
    if not _REVISION.fullmatch(revision) or url.startswith("-"):
        raise ConfigError(f"{revision!r} of {shown!r} is not a revision", hint="give a commit, a tag or a branch")
    home = cache / hashlib.sha256(shown.encode()).hexdigest()[:16]
    with keeping("tasks", home):
        is_kept = _COMMIT.fullmatch(revision) and (home / revision).is_dir()
        commit = revision if is_kept else await _published(url, revision, home, limit_s)
    return Checkout(home / commit, commit, shown)


def _located(url: str) -> str:
    """As git has it: what has a colon before its first slash is no path, but `host:path`."""
    if not _can_be_given(url):
        hint = "give one as in https://example.org/tasks.git, or a folder"
        raise ConfigError("git_url is neither a URL nor a path", hint=hint)  # it may hold a password
    is_path = not url.startswith("-") and ":" not in url.partition("/")[0]
    return str(local_path(url).absolute()) if is_path else url


def _can_be_given(url: str) -> bool:
    try:
        return b"\0" not in shown_url(url).encode() + url.encode()
    except ValueError:
        return False


async def _published(url: str, revision: str, home: Path, limit_s: float) -> str:
    with beside(home) as work:
        files = work / "files"
        files.mkdir()
        git = _Git(url, shown_url(url), files)
        try:
            async with asyncio.timeout(limit_s):
                commit = await _fetch(git, revision)
                await _refuse_half(git, files)
        except TimeoutError as exc:
            raise ConfigError(f"fetching {git.shown!r} took more than {limit_s:g} s", hint=_OFFLINE) from exc
        shutil.rmtree(files / ".git")
        publish(files, home / commit)
    return commit


async def _refuse_half(git: "_Git", files: Path) -> None:
    listed = (await git.run("ls-files", "--stage", "-z")).split("\0")
    submodules = [line.partition("\t")[2] for line in listed if line.startswith(_SUBMODULE)]
    submodule = next((name for name in submodules if may_be_of_a_task(name, files)), None)
    if submodule is not None:
        hint = "clone it with --recurse-submodules, and give the folder as the benchmark parameter `path`"
        raise ConfigError(f"{submodule!r} of {git.shown!r} is a submodule, which is not fetched", hint=hint)
    if submodules:
        log.warning("submodules.not_fetched", url=git.shown, paths=submodules)
    pointer = await asyncio.to_thread(first_lfs_pointer, files)
    if pointer is not None:
        what = f"{pointer!r} of {git.shown!r} is a Git LFS pointer, not the file"
        raise ConfigError(what, hint="install git-lfs, run `git lfs install`, and then this again")


async def _fetch(git: "_Git", revision: str) -> str:
    await git.run("init", "-q")
    if await git.try_run("fetch", "-q", "--depth=1", "origin", revision) is None:
        await git.run("checkout", "-q", "--detach", "FETCH_HEAD")
    else:
        await git.run("fetch", "-q", "origin", "+refs/*:refs/fetched/*", "+HEAD:refs/fetched/HEAD")
        await git.run("checkout", "-q", "--detach", await git.find(revision))
    return await git.run("rev-parse", "HEAD")


class _Git:
    def __init__(self, url: str, shown: str, work: Path) -> None:
        self._url, self.shown, self._work = url, shown, work

    async def run(self, *arguments: str) -> str:
        code, output, errors = await self._run(arguments)
        if code:
            hint = WRITABLE if tells_no_room(errors) else _OFFLINE
            raise ConfigError(f"git cannot get {self.shown!r}: {self._reason(errors)}", hint=hint)
        return output.strip()

    async def try_run(self, *arguments: str) -> str | None:
        code, _, errors = await self._run(arguments)
        return self._reason(errors) if code else None

    async def find(self, revision: str) -> str:
        for name in (f"refs/fetched/tags/{revision}", f"refs/fetched/heads/{revision}", f"refs/fetched/{revision}"):
            if await self.try_run("rev-parse", "-q", "--verify", f"{name}^{{commit}}") is None:
                return name
        if re.fullmatch(r"[0-9a-f]{7,64}", revision):
            code, commit, _ = await self._run(("rev-parse", "-q", "--verify", f"{revision}^{{commit}}"))
            if code == 0:
                return commit.strip()
        raise ConfigError(f"no revision {revision!r} in {self.shown!r}", hint="give a commit, a tag or a branch")

    async def _run(self, arguments: tuple[str, ...]) -> tuple[int, str, str]:
        settings = [part for setting in _BYTES_AS_STORED for part in ("-c", setting)]
        try:
            process = await asyncio.create_subprocess_exec(
                "git",
                *settings,
                *arguments,
                cwd=self._work,
                env=_environment(self._url),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except FileNotFoundError as exc:
            raise ConfigError("the program git is not installed", hint=f"install git, or {_OFFLINE}") from exc
        except OSError as exc:
            raise ConfigError(f"git cannot be started: {exc.strerror}") from exc
        try:
            output, errors = await process.communicate()
        except asyncio.CancelledError:
            await _killed(process)
            raise
        return process.returncode or 0, output.decode("utf-8", "replace"), errors.decode("utf-8", "replace")

    def _reason(self, errors: str) -> str:
        told = Redactor(url_secrets(self._url)).text(errors.replace(self._url, self.shown))
        lines = [line.strip() for line in told.splitlines() if line.strip()]
        fatal = next(
            (line for line in lines if line.startswith(("fatal:", "error:"))), lines[-1] if lines else "failed"
        )
        return fatal[:_MAX_MESSAGE]


async def _killed(process: asyncio.subprocess.Process) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    await cleaned_up(process.wait(), _KILL_LIMIT_S, "end of git")


def _environment(url: str) -> Mapping[str, str]:
    inherited = {key: value for key, value in os.environ.items() if not _OF_ANOTHER_REPOSITORY.fullmatch(key)}
    return {
        "GIT_SSH_COMMAND": "ssh -o BatchMode=yes",
        **inherited,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "true",
        "LC_ALL": "C",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "remote.origin.url",
        "GIT_CONFIG_VALUE_0": url,
    }
