"""Tasks from a git repository: pinned, cached, and silent about credentials."""

import asyncio
import errno
import os
import shutil
import socket
import subprocess
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from agentcompass.adapters.benchmarks.task_directory import git_source
from agentcompass.adapters.benchmarks.task_directory.benchmark import TaskDirectoryBenchmark, TaskDirectoryParameters
from agentcompass.adapters.benchmarks.task_directory.git_source import shown_url
from agentcompass.adapters.benchmarks.terminal_bench_2 import (
    UPSTREAM_COMMIT,
    UPSTREAM_URL,
    TerminalBench2Benchmark,
)
from agentcompass.domain.errors import ConfigError
from agentcompass.domain.task import TaskSelection
from agentcompass.testing.task_folders import write_task
from structlog.testing import capture_logs

checkout = partial(git_source.checkout, limit_s=60)


def git(*arguments: str, cwd: Path) -> str:
    identity = {"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org"}
    identity |= {"GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.org", "GIT_CONFIG_GLOBAL": "/dev/null"}
    done = subprocess.run(
        ["git", *arguments], cwd=cwd, env={**os.environ, **identity}, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture(scope="module")
def repositories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    work = folder / "work"
    write_task(work, "one")
    git("init", "-q", "-b", "main", cwd=work)
    git("add", ".", cwd=work)
    git("commit", "-q", "-m", "one", cwd=work)
    git("tag", "-a", "v1", "-m", "v1", cwd=work)
    write_task(work, "two", files={"tests/crlf.txt": b"a\r\nb\r\n"})
    git("add", ".", cwd=work)
    git("commit", "-q", "-m", "two", cwd=work)
    git("clone", "-q", "--bare", ".", str(folder / "tasks.git"), cwd=work)
    return folder


@pytest.fixture
def repository(repositories: Path, tmp_path: Path) -> Path:
    """A bare repository with two commits, made in `work`; the first has the tag `v1` and one task, the second two."""
    shutil.copytree(repositories, tmp_path, dirs_exist_ok=True)
    return tmp_path / "tasks.git"


def commit(repository: Path, revision: str) -> str:
    return git("rev-parse", f"{revision}^{{commit}}", cwd=repository)


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


@pytest.mark.parametrize(
    ("revision", "same_as", "tasks"),
    [("HEAD", "main", ["one", "two"]), ("main", "main", ["one", "two"]), ("v1", "v1", ["one"])],
)
async def test_a_branch_or_tag_is_fetched_and_its_commit_told(
    repository: Path, tmp_path: Path, revision: str, same_as: str, tasks: list[str]
) -> None:
    found = await checkout(str(repository), revision, tmp_path / "cache")

    assert found.commit == commit(repository, same_as)
    assert names(found.path) == tasks


@pytest.mark.parametrize("length", [40, 10])
async def test_a_commit_that_no_branch_points_to_is_fetched(repository: Path, tmp_path: Path, length: int) -> None:
    first = commit(repository, "v1")
    git("tag", "-d", "v1", cwd=repository)
    found = await checkout(f"file://{repository}", first[:length], tmp_path / "cache")

    assert found.commit == first
    assert names(found.path) == ["one"]


async def test_bytes_are_those_of_the_repository(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gitconfig").write_text("[core]\nautocrlf = input\neol = crlf\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    (tmp_path / "gitconfig").rename(tmp_path / ".gitconfig")
    found = await checkout(str(repository), "main", tmp_path / "cache")

    assert (found.path / "two" / "tests" / "crlf.txt").read_bytes() == b"a\r\nb\r\n"


async def test_what_leads_git_elsewhere_is_not_inherited(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DIR", "WORK_TREE", "INDEX_FILE", "OBJECT_DIRECTORY", "COMMON_DIR", "TEMPLATE_DIR", "NAMESPACE"):
        monkeypatch.setenv(f"GIT_{name}", str(tmp_path / "elsewhere" / "deep"))
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", "'core.autocrlf'='true' 'core.bare'='true'")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "2")
    for number, name in enumerate(["core.worktree", "core.bare"]):
        monkeypatch.setenv(f"GIT_CONFIG_KEY_{number}", name)
        monkeypatch.setenv(f"GIT_CONFIG_VALUE_{number}", "true")
    found = await checkout(str(repository), "main", tmp_path / "cache")

    assert names(found.path) == ["one", "two"]
    assert not (tmp_path / "elsewhere").exists()


async def test_what_the_user_s_network_needs_is_inherited(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "settings").write_text(f'[url "{repository.parent}/"]\ninsteadOf = https://mirror.invalid/\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "settings"))
    found = await checkout("https://mirror.invalid/tasks.git", "main", tmp_path / "cache")

    assert names(found.path) == ["one", "two"]


async def test_a_pointer_in_the_place_of_a_file_is_refused_with_the_way_out(repository: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "two" / "tests" / "data.bin").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    git("add", ".", cwd=work)
    git("commit", "-q", "-m", "pointer", cwd=work)
    with pytest.raises(ConfigError, match=r"^'two/tests/data\.bin' of .* is a Git LFS pointer.*install git-lfs"):
        await checkout(str(work), "main", tmp_path / "cache")

    assert [names(folder) for folder in (tmp_path / "cache").iterdir()] == [[]]


async def test_a_submodule_is_refused_with_the_way_out(repository: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    git("update-index", "--add", "--cacheinfo", f"160000,{commit(repository, 'v1')},two/tests/lib", cwd=work)
    git("commit", "-q", "-m", "submodule", cwd=work)
    with pytest.raises(ConfigError, match=r"^'two/tests/lib' of .* is a submodule.*--recurse-submodules.*`path`"):
        await checkout(str(work), "main", tmp_path / "cache")


async def test_a_submodule_that_may_be_a_task_itself_is_refused(repository: Path, tmp_path: Path) -> None:
    work = tmp_path / "more"
    write_task(work / "tasks", "one")
    git("init", "-q", "-b", "main", cwd=work)
    git("add", ".", cwd=work)
    git("update-index", "--add", "--cacheinfo", f"160000,{commit(repository, 'v1')},tasks/two", cwd=work)
    git("commit", "-q", "-m", "one and a submodule", cwd=work)
    with pytest.raises(ConfigError, match=r"^'tasks/two' of .* is a submodule"):
        await checkout(str(work), "main", tmp_path / "cache")


async def test_files_that_git_lfs_keeps_are_fetched_although_the_user_has_it_skip_them(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    (work / ".gitattributes").write_text("*.bin filter=lfs\n")
    (work / "two" / "tests" / "data.bin").write_text("content\n")
    git("add", ".", cwd=work)
    git("commit", "-q", "-m", "data", cwd=work)
    (tmp_path / "settings").write_text('[filter "lfs"]\nsmudge = printenv GIT_LFS_SKIP_SMUDGE || cat\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "settings"))
    monkeypatch.setenv("GIT_LFS_SKIP_SMUDGE", "1")
    found = await checkout(str(work), "main", tmp_path / "cache")

    assert (found.path / "two" / "tests" / "data.bin").read_text() == "content\n"


async def test_what_is_missing_outside_of_the_tasks_is_told_and_no_matter(repository: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "picture.png").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    git("add", ".", cwd=work)
    git("update-index", "--add", "--cacheinfo", f"160000,{commit(repository, 'v1')},tools", cwd=work)
    git("commit", "-q", "-m", "beside the tasks", cwd=work)
    with capture_logs() as events:
        found = await checkout(str(work), "main", tmp_path / "cache")

    assert (found.path / "two" / "task.toml").is_file()
    assert [(event["event"], event["paths"]) for event in events] == [("submodules.not_fetched", ["tools"])]


async def test_a_copy_is_for_all_who_may_use_the_cache(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "usual").mkdir()
    found = await checkout(str(repository), "main", tmp_path / "cache")

    assert found.path.stat().st_mode == (tmp_path / "usual").stat().st_mode


async def test_a_cache_that_cannot_be_written_to_is_told(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    with pytest.raises(ConfigError, match=r"tasks cannot be kept in .*--data-dir"):
        await checkout(str(repository), "main", tmp_path / "cache")


async def test_a_cache_that_may_not_be_searched_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path) -> bool:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "is_dir", refused)
    with pytest.raises(ConfigError, match=r"tasks cannot be kept in .*: Permission denied .*--data-dir"):
        await checkout("https://example.org/tasks.git", "0" * 40, tmp_path / "cache")


async def test_a_disk_that_is_full_has_its_own_hint(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "git").write_text("#!/bin/sh\necho 'fatal: write error: No space left on device' >&2\nexit 128\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"No space left on device \(give a folder .* --data-dir"):
        await checkout(str(repository), "main", tmp_path / "cache")


async def test_a_relative_path_is_one_from_the_working_directory(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = await checkout("./tasks.git", "main", tmp_path / "cache")

    assert (found.url, found.commit) == (str(repository), commit(repository, "main"))


async def test_the_folder_of_a_user_who_is_not_there_is_one_of_that_name(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.to_thread(repository.rename, tmp_path / "~no-such-user")
    monkeypatch.chdir(tmp_path)
    found = await checkout("~no-such-user", "main", tmp_path / "cache")

    assert names(found.path) == ["one", "two"]


@pytest.mark.parametrize(
    "url",
    ["https://me:s3cret@[x/y.git", "https://me:s3cret@h\u2100/y.git", "https://example.org/\0.git", "a\0", "\ud800"],
)
async def test_what_git_cannot_be_given_is_refused_and_not_shown(tmp_path: Path, url: str) -> None:
    with pytest.raises(ConfigError, match=r"^git_url is neither a URL nor a path \(give one as in "):
        await checkout(url, "main", tmp_path / "cache")

    assert not (tmp_path / "cache").exists()


async def test_a_commit_that_is_cached_needs_no_repository(repository: Path, tmp_path: Path) -> None:
    first = await checkout(str(repository), "main", tmp_path / "cache")
    await asyncio.to_thread(repository.rename, tmp_path / "gone.git")
    again = await checkout(str(repository), first.commit, tmp_path / "cache")

    assert again == first


async def test_many_at_once_share_one_copy(repository: Path, tmp_path: Path) -> None:
    found = await asyncio.gather(*(checkout(str(repository), "main", tmp_path / "cache") for _ in range(4)))

    assert len(set(found)) == 1
    assert names(found[0].path.parent) == [found[0].commit]


@pytest.mark.parametrize("revision", ["no-such-branch", "0" * 40])
async def test_a_missing_revision_is_refused_and_leaves_nothing(
    repository: Path, tmp_path: Path, revision: str
) -> None:
    with pytest.raises(ConfigError, match=f"no revision '{revision}' in "):
        await checkout(str(repository), revision, tmp_path / "cache")

    assert [names(folder) for folder in (tmp_path / "cache").iterdir()] == [[]]


@pytest.mark.parametrize("revision", ["--upload-pack=x", "-x", "a b", "", "a:b", "^main"])
async def test_what_is_no_revision_is_refused(repository: Path, tmp_path: Path, revision: str) -> None:
    with pytest.raises(ConfigError, match="is not a revision"):
        await checkout(str(repository), revision, tmp_path / "cache")


async def test_a_repository_out_of_reach_is_refused_with_the_way_round(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        await checkout("http://user:s3cret@127.0.0.1:9/tasks.git?token=t0ken", "main", tmp_path / "cache")

    assert "git cannot get 'http://127.0.0.1:9/tasks.git': fatal: unable to access 'http" in str(caught.value)
    assert "give the folder as the benchmark parameter `path`" in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert "t0ken" not in str(caught.value)


async def test_a_machine_without_git_is_told_so(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"git is not installed \(install git"):
        await checkout(str(repository), "main", tmp_path / "cache")


async def test_a_git_that_cannot_be_started_is_told_as_such(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "git").write_text("not a program\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="^git cannot be started: Permission denied$"):
        await checkout(str(repository), "main", tmp_path / "cache")


async def test_a_fetch_that_hangs_ends_at_its_limit(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/x.git"
        with pytest.raises(ConfigError, match=r"took more than 0\.5 s"):
            await checkout(url, "main", tmp_path / "cache", limit_s=0.5)

    assert [names(folder) for folder in (tmp_path / "cache").iterdir()] == [[]]


async def test_git_that_does_not_die_in_time_does_not_hide_why_it_was_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_source, "_KILL_LIMIT_S", 0.01)
    monkeypatch.setattr(os, "killpg", lambda *_: None)
    with capture_logs() as events:
        await git_source._killed(SimpleNamespace(pid=1, wait=asyncio.Event().wait))

    assert [event["event"] for event in events] == ["cleanup.abandoned"]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://user:token@example.org/a.git?x=1#y", "https://example.org/a.git"),
        ("https://token@example.org:8443/a.git", "https://example.org:8443/a.git"),
        ("git@example.org:a/b.git", "git@example.org:a/b.git"),
        ("/some/where.git", "/some/where.git"),
    ],
)
def test_a_url_is_shown_without_credentials(url: str, shown: str) -> None:
    assert shown_url(url) == shown


async def test_tasks_of_a_repository_tell_its_commit(repository: Path, tmp_path: Path) -> None:
    parameters = TaskDirectoryParameters(git_url=str(repository), revision="v1")
    benchmark = TaskDirectoryBenchmark(parameters, tmp_path / "data")
    tasks = await benchmark.load_tasks(TaskSelection())

    assert [task.id for task in tasks] == ["one"]
    assert benchmark.dataset() == {"git_url": str(repository), "revision": commit(repository, "v1")}


async def test_terminal_bench_2_is_upstream_at_its_published_commit(tmp_path: Path) -> None:
    asked: list[tuple[str, str]] = []

    class Offline(TerminalBench2Benchmark):
        async def _checkout(self, url: str, revision: str) -> Path:
            asked.append((url, revision))
            raise ConfigError("offline")

    with pytest.raises(ConfigError, match="offline"):
        await Offline(TaskDirectoryParameters(), tmp_path).load_tasks(TaskSelection())

    assert asked == [(UPSTREAM_URL, UPSTREAM_COMMIT)]


async def test_terminal_bench_2_can_be_a_local_copy(tmp_path: Path) -> None:
    write_task(tmp_path, "one")
    benchmark = TerminalBench2Benchmark(TaskDirectoryParameters(path=tmp_path), tmp_path / "data")
    tasks = await benchmark.load_tasks(TaskSelection())

    assert [task.id for task in tasks] == ["one"]


async def test_no_source_is_refused_with_the_parameters_that_give_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="set the benchmark parameter path or git_url"):
        await TaskDirectoryBenchmark(TaskDirectoryParameters(), tmp_path).load_tasks(TaskSelection())


@pytest.mark.parametrize("parameters", [{"path": "/a", "git_url": "b"}, {"path": "/a", "revision": "b"}])
def test_two_sources_are_refused(parameters: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="path"):
        TaskDirectoryParameters.model_validate(parameters)
