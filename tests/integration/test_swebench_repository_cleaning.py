"""Before the agent starts its repository knows the past only; and what cannot be made so is refused."""

import json

import pytest
from agentcompass.adapters.benchmarks.swebench.repository import RepositoryState, prepare_repository
from agentcompass.domain.errors import BenchmarkBroken
from agentcompass.domain.ports import Sandbox
from swebench_repositories import (
    FUTURE,
    FUTURE_PACKED,
    FUTURE_WORDS,
    IMAGE,
    SET_UP,
    STATE,
    found,
    prepared,
    row,
    run,
    tree,
    worked,
)

pytest_plugins = ("host_process_fixtures",)

DETACHED = 'cd "$R/testbed"; git checkout -q --detach'
ABSENT = "0" * 40


async def refused(sandbox: Sandbox, base: str, *scripts: str) -> str:
    """Why an image is refused."""
    for script in scripts:
        await run(sandbox, script)
    with pytest.raises(BenchmarkBroken) as refusal:
        await prepare_repository(sandbox, row(base))
    return refusal.value.message


@pytest.mark.parametrize("packed", [(), (FUTURE_PACKED,)], ids=["loose", "packed"])
@pytest.mark.parametrize("head", [(), (DETACHED,), (SET_UP,)], ids=["branch", "detached", "set-up"])
async def test_nothing_of_the_future_is_found(sandbox: Sandbox, packed: tuple[str, ...], head: tuple[str, ...]) -> None:
    base = (await run(sandbox, "\n".join((IMAGE, FUTURE, *packed, *head)))).split()[0]
    before, known_before = await run(sandbox, STATE), await found(sandbox)
    state = await prepare_repository(sandbox, row(base))

    assert known_before == set(FUTURE_WORDS)
    assert await found(sandbox) == set()
    assert await run(sandbox, STATE) == before
    assert state.relation == ("parent" if head == (SET_UP,) else "head")
    assert state.removed["refs"] >= 10
    assert state.removed["objects"] >= 10
    assert state.removed["worktrees"] == 1


async def test_tags_of_the_past_stay(sandbox: Sandbox) -> None:
    state = await prepared(sandbox, FUTURE)
    refs = await run(sandbox, 'cd "$R/testbed"; git for-each-ref --format="%(refname)"; git describe')

    assert refs.split() == ["refs/heads/main", "refs/tags/old-light", "refs/tags/v1", "v1"]
    assert state.checked["refs"] == 3


async def test_settings_of_remotes_and_aliases_go_and_others_stay(sandbox: Sandbox) -> None:
    odd = """cd "$R/testbed"; git config 'remote.with space.url' x; git config 'branch.a.b=c.remote' y
        git config remote.pushDefault z; git config alias.st status; git config http.proxy p"""
    await prepared(sandbox, FUTURE, odd)
    config = await run(sandbox, 'cd "$R/testbed"; git config --list --local --name-only')

    assert {name.partition(".")[0] for name in config.split()} == {"core", "user", "http"}


async def test_hooks_and_the_description_go(sandbox: Sandbox) -> None:
    await prepared(sandbox, 'cd "$R/testbed"; echo gold_line > .git/description; echo gold_line > .git/hooks/x')

    assert await found(sandbox) == set()


async def test_repositories_of_submodules_stay_where_the_index_has_them_and_others_go(sandbox: Sandbox) -> None:
    submodules = """git init -q "$R/sub"; cd "$R/sub"; echo 1 > file; git add -A; git commit -qm sub
        cd "$R/testbed"; for i in a 'b c/d' e/f; do
          git -c protocol.file.allow=always submodule --quiet add --name "its $i" "$R/sub" "$i"
        done
        git mv a moved; git commit -qm submodules; git rm -rq --cached e/f; git init -q vendor/x"""
    state = await prepared(sandbox, submodules)

    assert state.removed["modules"] == 1
    assert sorted(state.nested) == sorted(
        [
            ".git/modules/its\\ a",
            ".git/modules/its\\ b\\ c/d",
            "b\\ c/d/.git",
            "e/f/.git",
            "moved/.git",
            "vendor/x/.git",
        ]
    )
    assert "file" in await run(sandbox, 'cd "$R/testbed/moved"; git ls-files')


async def test_the_agent_can_work_with_the_repository(sandbox: Sandbox) -> None:
    await prepared(sandbox, FUTURE, FUTURE_PACKED, SET_UP)
    work = """cd "$R/testbed"; git fsck --strict; echo 1 > new; git add new; git commit -qm new; echo 2 > new
        git stash -q; git stash pop -q; git checkout -q -b other; git gc -q; git log --oneline | wc -l; git blame new"""
    said = await run(sandbox, work)

    assert said.splitlines()[0] == "3"


async def test_what_is_staged_and_ignored_and_changed_stays(sandbox: Sandbox) -> None:
    base = (await run(sandbox, IMAGE)).strip()
    await run(sandbox, SET_UP)
    everything = 'cd "$R/testbed"; find . -path ./.git -prune -o -type f -printf "%p %m %T@\\n" | sort'
    before, files = await run(sandbox, STATE), await run(sandbox, everything)
    state = await prepare_repository(sandbox, row(base))

    assert await run(sandbox, STATE) == before
    assert await run(sandbox, everything) == files
    assert state.removed == {"worktrees": 0, "refs": 0, "modules": 0, "objects": 0}
    assert state.checked["staged"] == 1


async def test_an_unfinished_merge_stays_as_it_is_in_the_index(sandbox: Sandbox) -> None:
    merge = """cd "$R/testbed"; git checkout -qb o; echo a > lines.txt; git commit -qam a; git checkout -q main
        git merge -q --no-commit --no-ff o; git rev-parse HEAD"""
    state = await prepared(sandbox, merge)
    names = await run(sandbox, 'cd "$R/testbed"; git diff --cached --name-only; ls .git')

    assert "lines.txt" in names.split()
    assert "MERGE_HEAD" not in names
    assert state.removed["objects"] == 1  # the commit; its tree is what the index has


async def test_what_a_conflict_once_had_is_not_remembered(sandbox: Sandbox) -> None:
    resolved = """cd "$R/testbed"; git checkout -qb o; echo gold_line > lines.txt; git commit -qam a
        git checkout -q main; echo b > lines.txt; git commit -qam b; git merge -q o > /dev/null || true
        echo b > lines.txt; git add lines.txt"""
    await prepared(sandbox, resolved)

    assert await found(sandbox) == set()


async def test_an_image_made_from_an_sdist_has_no_base_commit(sandbox: Sandbox) -> None:
    await run(sandbox, IMAGE)
    state = await prepare_repository(sandbox, row(ABSENT))

    assert state.relation == "absent"


async def test_objects_of_an_alternate_become_its_own(sandbox: Sandbox) -> None:
    borrowed = """git clone -q --bare "$R/testbed" "$R/other.git"; cd "$R/testbed"; rm -rf .git/objects/*
        mkdir .git/objects/info; echo "$R/other.git/objects" > .git/objects/info/alternates; git fsck"""
    await prepared(sandbox, borrowed)

    assert await run(sandbox, 'rm -rf "$R/other.git"; cd "$R/testbed"; git fsck; git log --format=%s') == "base\n"


async def test_an_alternate_that_knows_more_is_refused(sandbox: Sandbox) -> None:
    borrowed = 'cd "$R/testbed"; echo "$R/upstream/.git/objects" > .git/objects/info/alternates'
    base = (await run(sandbox, IMAGE)).strip()

    assert "objects beyond the history" in await refused(sandbox, base, FUTURE, borrowed)


async def test_a_head_that_is_not_the_base_commit_is_refused(sandbox: Sandbox) -> None:
    base = (await run(sandbox, IMAGE)).strip()
    two = 'cd "$R/testbed"; for i in 1 2; do git commit -q --allow-empty -m $i; done'

    assert f"neither the base commit {base} nor its child" in await refused(sandbox, base, two)


async def test_a_head_before_the_base_commit_is_refused(sandbox: Sandbox) -> None:
    await run(sandbox, IMAGE)
    later = (await run(sandbox, f"{FUTURE}git rev-parse v2")).strip()

    assert "neither the base commit" in await refused(sandbox, later)


async def test_a_history_without_the_base_commit_is_refused(sandbox: Sandbox) -> None:
    reason = await refused(sandbox, ABSENT, IMAGE, SET_UP)

    assert reason.startswith("image 'image:latest' cannot be used for 'owner__repo-1': ")
    assert f"{ABSENT}, the base commit, is not in the history" in reason


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("true", "it has no /testbed"),
        ('mkdir "$R/testbed"', "/testbed is no git repository"),
        ('git init -q "$R/testbed"', "/testbed has no commit"),
    ],
)
async def test_a_folder_that_is_no_repository_is_refused(sandbox: Sandbox, script: str, reason: str) -> None:
    assert (await refused(sandbox, ABSENT, script)).endswith(reason)


async def test_a_work_tree_of_another_repository_is_refused(sandbox: Sandbox) -> None:
    linked = 'mv "$R/testbed" "$R/main"; cd "$R/main"; git worktree add -q "$R/testbed" 2> /dev/null'
    base = (await run(sandbox, IMAGE)).strip()

    assert "linked work tree" in await refused(sandbox, base, linked)


async def test_a_repository_kept_elsewhere_is_prepared_too(sandbox: Sandbox) -> None:
    apart = 'mv "$R/testbed/.git" "$R/apart.git"; echo "gitdir: $R/apart.git" > "$R/testbed/.git"'
    state = await prepared(sandbox, apart)
    patch = await worked(sandbox, state, "echo 1 > new; git add -f new")

    assert b"+++ b/new\n" in patch


async def test_the_state_survives_json(sandbox: Sandbox) -> None:
    state = await prepared(sandbox, SET_UP)

    assert RepositoryState.model_validate(json.loads(json.dumps(state.model_dump()))) == state


async def test_preparing_twice_gives_the_same_tree(sandbox: Sandbox) -> None:
    base = (await run(sandbox, IMAGE)).strip()
    first = await prepare_repository(sandbox, row(base))
    files = await tree(sandbox)

    assert await prepare_repository(sandbox, row(base)) == first
    assert await tree(sandbox) == files
