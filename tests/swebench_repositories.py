"""Repositories as a SWE-bench image may have them, and what agents do in them: bash for any sandbox, in /testbed."""

from collections.abc import Sequence
from pathlib import PurePosixPath

from agentcompass.adapters.benchmarks.swebench.repository import (
    Collected,
    RepositoryState,
    collect_patch,
    prepare_repository,
)
from agentcompass.adapters.benchmarks.swebench.rows import Row
from agentcompass.domain.ports import Sandbox
from agentcompass.domain.sandbox import Command

TESTBED = PurePosixPath("/testbed")
START = """set -eu -o pipefail
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 LC_ALL=C
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
export GIT_COMMITTER_DATE=2020-01-01T00:00:00Z GIT_AUTHOR_DATE=2020-01-01T00:00:00Z
R=${AGENTCOMPASS_ROOT:-}
"""
AS_AGENT = 'cd "$R/testbed"\nunset GIT_CONFIG_GLOBAL GIT_CONFIG_NOSYSTEM\n'
IMAGE = r"""
git init -q -b main "$R/testbed" && cd "$R/testbed"
seq 40 > lines.txt
printf 'one\r\ntwo\r\nthree\r\n' > crlf.txt
printf 'one\r\ntwo\nthree' > mixed.txt
printf 'no newline' > unfinished.txt
printf 'a\n\n \n\n\nb\n' > blanks.txt
printf '\000\001\002\377binary' > data.bin
printf '#!/bin/sh\n' > run.sh && chmod +x run.sh
ln -s lines.txt link
: > empty
mkdir package folder
echo 'x = 1' > package/module.py
echo 'a file' > folder/file
echo spaced > 'with  blanks .txt'
echo quoted > "quo\"te's\\.txt"
echo tabbed > $'tab\tname'
echo broken > $'new\nline'
echo umlaut > 'üñï.txt'
echo latin > $'latin-\351'
printf '*.auto text=auto\n*.crlf text eol=crlf\n*.lf text eol=lf\n*.id ident\n*.plain -diff\n*.py diff=python\n' \
  > .gitattributes
printf 'a\r\nb\r\n' > file.auto
printf 'a\r\nb\r\n' > file.crlf
printf 'a\nb\n' > file.lf
echo '$Id$' > file.id
echo text > file.plain
printf 'build/\n*.pyc\n' > .gitignore
mkdir build && echo tracked > build/tracked.txt
git -c core.safecrlf=false add -A 2> /dev/null && git add -f build/tracked.txt
git commit -qm base && git rev-parse HEAD
"""
"""Prints the commit."""
SET_UP = r"""
cd "$R/testbed"
git commit -q --allow-empty -m SWE-bench
echo set-up >> lines.txt
echo staged > staged.txt && git add staged.txt
echo untracked > untracked.cfg
rm folder/file
mkdir build/lib && echo object > build/lib/code.o && echo compiled > compiled.pyc
"""
"""What upstream's images have: a commit above the base, changes, new files, ignored files."""
FUTURE_WORDS = ("gold_line", "test_hidden", "later_message", "noted_later", "stashed_later", "dangling_later")
"""Only the future has them, as words or parts of names."""
FUTURE = r"""
cd "$R/testbed"
git tag -a -m old v1 && git tag old-light
export GIT_COMMITTER_DATE=2021-01-01T00:00:00Z
git tag -a -m later_message v1-announced
git init -q "$R/upstream" && git remote add origin "$R/upstream" && git config branch.main.remote origin
git config branch.main.merge refs/heads/main && git config user.name kept
git checkout -q -b future
echo 'fix = "gold_line"' >> package/module.py && echo 'def test_hidden(): pass' > package/test_hidden.py
git add package && git commit -q -m later_message
git tag v2 && git tag -a -m later_message v2-annotated && git update-ref refs/remotes/origin/main HEAD
git symbolic-ref refs/remotes/origin/HEAD refs/remotes/origin/main && git push -q origin future
git notes add -m noted_later HEAD~1 && git update-ref refs/pull/1/head HEAD && git update-ref refs/bisect/bad HEAD
echo stashed_later >> package/module.py && git stash -q
git bundle create -q .git/future.bundle HEAD && git worktree add -q "$R/worktree" v2 2> /dev/null
git fetch -q origin && git rev-parse HEAD > .git/ORIG_HEAD && echo later_message > .git/MERGE_MSG
git checkout -q main && git reset -q --hard future && git reset -q --hard v1
echo dangling_later | git hash-object -w --stdin > .git/BLOB
mkdir -p .git/lost-found/other .git/refs/heads/x && echo gold_line > .git/gold_line
cp .git/BLOB .git/lost-found/other/ && cp .git/BLOB .git/refs/heads/x/blob
git replace main:lines.txt v2:package/test_hidden.py
"""
"""All ways in which a repository may know what came after HEAD, its objects loose."""
FUTURE_PACKED = r"""
cd "$R/testbed"
rm -r .git/refs/heads/x
git repack -q -a -d --write-bitmap-index --keep-unreachable && git commit-graph write --reachable
git multi-pack-index write 2> /dev/null
for pack in .git/objects/pack/pack-*.pack; do touch "${pack%pack}keep"; cp "$pack" .git/objects/pack/tmp_pack_1; done
cp .git/objects/pack/tmp_pack_1 .git/objects/pack/pack-1234567890123456789012345678901234567890.pack
git rev-parse v2 | git pack-objects -q --revs .git/objects/pack/pack > /dev/null
echo dangling_later gold_line > .git/objects/tmp_obj_1
git pack-refs --all
"""
"""After FUTURE: the same in packs that are to be kept, and files that git left half-written."""
SEARCH = r"""
cd "$R/testbed"
{
  git log --all --reflog --stat -p; git reflog --all; git for-each-ref; git fsck --lost-found --no-progress 2>&1
  git stash list; git notes list; git worktree list; git bundle list-heads .git/*.bundle 2>&1
  for repository in "$R/testbed/.git" "$R/var/lib/agentcompass/repository/git"; do
    git --git-dir="$repository" cat-file --batch-all-objects --batch
    git init -q "$R/scratch"
    find "$repository" -type f -name '*pack*' | while read -r pack; do
      git -C "$R/scratch" unpack-objects -r -q < "$pack" || true
    done
    git -C "$R/scratch" cat-file --batch-all-objects --batch
    rm -rf "$R/scratch"
  done
  find "$R/testbed" "$R/var/lib/agentcompass" "$R/worktree"
  find "$R/testbed" "$R/var/lib/agentcompass" "$R/worktree" -type f -exec cat {} +
} > "$R/found" 2> /dev/null || true
rm -rf .git/lost-found
{ grep -aoE 'WORDS' "$R/found" || true; } | sort -u
rm "$R/found"
"""
STATE = r"""
cd "$R/testbed"
export GIT_NO_REPLACE_OBJECTS=1
git rev-parse HEAD; git symbolic-ref HEAD || true; git ls-files -s; git status --porcelain=v2 --ignored
git diff HEAD --stat; git diff --cached --stat; cat .git/info/exclude; git log --format='%H %s'
git config user.name || true
"""
"""Prints what an agent sees of the state."""

AGENT = {
    "edits": "sed -i 's/^7$/seven/' lines.txt; echo 'y = 2' >> package/module.py",
    "edits what the set-up had edited": "sed -i 's/set-up/agent/' lines.txt; echo more >> untracked.cfg",
    "no final newline": "printf 'a\\nb' > new.txt; printf more >> unfinished.txt; printf 'x\\n' >> mixed.txt",
    "takes the final newline": "printf 'a\\n\\n \\n\\n\\nb' > blanks.txt",
    "blank context": "printf 'a\\n\\n \\n\\n\\nc\\n\\n\\n' > blanks.txt",
    "form feeds and other ends of lines": r"printf 'a\fb\vc\xe2\x80\xa8d\x85e\rf\n' > ends.txt",
    "CRLF": r"printf 'one\r\n2\r\nthree\r\nfour\r\n' > crlf.txt; printf 'a\r\n' > new.txt; sed -i 's/two/2/' mixed.txt",
    "CRLF to LF": "sed -i 's/\\r$//' crlf.txt",
    "attributes of text": r"printf 'a\r\nc\r\n' > file.auto; printf 'a\r\nB\r\n' > file.crlf; echo c >> file.lf",
    "attribute ident": "echo x >> file.id; echo '$Id: 1 $' > new.id",
    "ends of lines that attributes would change": r"printf 'a\nb\n' > file.crlf; printf 'a\r\nb\r\n' > file.lf",
    "new files with attributes": r"printf 'a\r\n' > n.auto; printf 'a\r\n' > n.crlf; echo a > n.plain",
    "changed attributes": r"echo '* text eol=crlf' > .gitattributes; printf 'a\nb\n' > new.txt; echo z >> lines.txt",
    "no diff attribute": "echo more >> file.plain",
    "binary": r"printf '\000\001\003\377binary' > data.bin; head -c 3000 /dev/urandom > new.bin; : > data2.bin",
    "binary removed": "rm data.bin",
    "text to binary": r"printf 'a\000b\n' >> lines.txt",
    "links": "ln -sf crlf.txt link; ln -s nowhere/at\\ all dangling; ln -s .. 'up link'",
    "link to file": "rm link; cp lines.txt link",
    "file to link": "rm lines.txt; ln -s crlf.txt lines.txt",
    "folder to link": "rm -r package; ln -s build package",
    "modes": "chmod +x package/module.py; chmod -x run.sh; printf '#!/bin/sh\\n' > new.sh; chmod 755 new.sh",
    "mode and content": "chmod +x lines.txt; echo more >> lines.txt",
    "odd names": "for f in 'with  blanks .txt' *te*.txt tab* new* *.txt latin*; do echo more >> \"$f\"; done",
    "new odd names": r"""
        for f in ' a' 'a -> b' '"q"' $'n\nl' $'\r' 'ö' $'\377' '*' '[a]' '-x' 'a{b' '#c'; do echo 1 > "./$f"; done""",
    "names of folders": "mkdir -p $'d\\ne' 'f g/b -> c/h'; echo 1 > $'d\\ne/a'; echo 2 > 'f g/b -> c/h/i'",
    "deletes": "rm crlf.txt empty package/module.py",
    "deletes everything": "rm -rf -- *",
    "renames": "mv package/module.py package/renamed.py; mv folder other 2> /dev/null || true; git mv run.sh go.sh",
    "file to folder and back": "rm lines.txt; mkdir lines.txt; echo 1 > lines.txt/a; rm -r package; echo 2 > package",
    "stages": "echo 1 > staged-new.txt; git add staged-new.txt; echo 2 >> crlf.txt; git add crlf.txt",
    "stages, then deletes": "echo 1 > gone; git add gone; rm gone; git rm -q --cached run.sh; git rm -q crlf.txt",
    "restores what the set-up had deleted": "git checkout -q -- folder/file",
    "commits": "echo 1 > c.txt; git add -A; git commit -qm work; echo 2 >> c.txt; echo 3 > d.txt",
    "commits all and resets": "echo 1 > c.txt; git add -A; git commit -qm w; git reset -q --soft HEAD~2; git reset -q",
    "resets hard": "git reset -q --hard; echo 1 >> blanks.txt",
    "switches branches": "git stash -q; git checkout -qb o HEAD~1; echo 1 > o.txt; git add o.txt; git commit -qm o",
    "rebases": "git stash -q; git checkout -qb o HEAD~1; echo 1 > o; git add o; git commit -qm o; git rebase -q main",
    "conflict": """git add -A; git commit -qm s; git checkout -qb o; echo a > lines.txt; git commit -qam a
        git checkout -q main; echo b > lines.txt; git commit -qam b; git merge -q o > /dev/null || true""",
    "amends and packs": "echo 1 > c.txt; git add -A; git commit -q --amend -m x; git gc -q --prune=now",
    "cleans": "git clean -qfdx; git checkout -q .",
    "deletes .git": "rm -rf .git; echo 1 >> crlf.txt; echo 2 > new.txt",
    "makes .git anew": "rm -rf .git; git init -q .; git add -A; git commit -qm all; echo 2 > new.txt",
    "another .git": "git clone -q --bare . ../x.git; rm -rf .git; echo gitdir: ../x.git > .git; echo 2 > new",
    ".git is a pipe": "rm -rf .git; mkfifo .git; echo 2 > new.txt",
    "a torn index": "head -c 100 .git/index > i; mv i .git/index; echo 2 > new.txt",
    "a nested repository": """
        git init -q nested; cd nested; echo 1 > file; echo 2 > run; chmod +x run; mkdir d; echo 2 > d/e
        git add -A; git commit -qm nested; echo 3 > new""",
    "nested repositories without a commit": "for p in a a/b; do git init -q $p; echo 1 > $p/file; done",
    "a repository in a folder of the image": "git init -q package; echo 1 > package/new; echo 2 >> package/module.py",
    "a submodule": """
        git init -q ../sub; cd ../sub; echo 1 > file; git add file; git commit -qm sub; cd - > /dev/null
        git -c protocol.file.allow=always submodule --quiet add "$R/sub" sub; git commit -qam s; echo 2 >> sub/file""",
    "a linked work tree": "git worktree add -q linked HEAD 2> /dev/null; rm -r linked/build; echo 1 > linked/new.txt",
    "names that no patch can have": "mkdir .GIT a .git/.git; echo 1 > .GIT/config; echo 2 > a/.gIt; echo 3 > new",
    "not files": "mkfifo pipe; rm crlf.txt; mkfifo crlf.txt; mkdir emptied",
    "hidden from its index": """git update-index --assume-unchanged crlf.txt; git update-index --skip-worktree run.sh
        echo 1 >> crlf.txt; echo 2 >> run.sh; git config core.ignoreStat true""",
    "same times": "touch -r crlf.txt ../t; printf 'ONE\\r\\ntwo\\r\\nthree\\r\\n' > crlf.txt; touch -r ../t crlf.txt",
    "a sparse checkout": "git stash -q; git sparse-checkout set package; echo 1 >> package/module.py",
    "nothing is readable by others": "umask 077; echo 1 > private; mkdir closed; echo 2 > closed/f; chmod 0 lines.txt",
    "hostile settings": r"""
        printf '#!/bin/sh\ntouch "%s/ran"\ncat > /dev/null\necho hostile\nexit 0\n' "$R" > "$R/evil"; chmod +x "$R/evil"
        mkdir -p .git/hooks
        for hook in post-index-change pre-commit reference-transaction post-checkout fsmonitor-watchman; do
          cp "$R/evil" .git/hooks/$hook
        done
        for where in --local --global; do
          for key in core.fsmonitor diff.external diff.python.textconv filter.f.clean filter.f.smudge filter.f.process \
            core.pager core.sshCommand core.alternateRefsCommand uploadpack.packObjectsHook core.editor; do
            git config $where $key "$R/evil"
          done
          while read -r key value; do git config $where $key "$value"; done << END
            core.hooksPath $R/testbed/.git/hooks
            core.excludesFile $R/testbed/all
            core.attributesFile $R/testbed/attributes
            core.quotePath false
            core.autocrlf true
            core.fileMode false
            core.symlinks false
            core.ignoreCase true
            core.abbrev 4
            color.ui always
            diff.noprefix true
            diff.mnemonicPrefix true
            diff.context 0
            diff.renames copies
            diff.ignoreSubmodules all
            diff.wsErrorHighlight all
            diff.algorithm patience
            diff.suppressBlankEmpty true
            diff.orderFile $R/evil
            status.showUntrackedFiles no
END
        done
        git config core.worktree /; git config core.bare true
        echo '*' > all; printf '* filter=f diff=python text eol=crlf working-tree-encoding=UTF-16\n' > attributes
        cp attributes .gitattributes; cp attributes .git/info/attributes; echo '*' > .git/info/exclude
        rm -rf .git/objects/pack; echo 1 >> crlf.txt; echo 2 > new.py; chmod +x lines.txt; ln -s a b""",
}
"""What an agent does in the image, by a name of it; all of it must come back as a patch."""
RAW_ONLY = {
    "ends of lines that attributes would change",
    "attribute ident",
    "changed attributes",
    "a linked work tree",
    "hostile settings",
}
"""What `git apply` itself would change because of the attributes in the tree, unless they are put out of force."""

_MANIFEST = r"""
cd "$R/PLACE"
list() { find . -iname .git -prune -o -path ./build/lib -prune -o -name '*.pyc' -o "$@"; }
{
  list -type l -printf 'link %p -> %l\0' -o -type f -perm -u+x -printf 'program %p\0' -o -type f -printf 'file %p\0'
} | sort -z
list -type f -print0 | sort -z | xargs -0 -r sha256sum -z
"""
_APPLY = r"""
rm -rf "$R/applied"; cp -a "$R/before" "$R/applied"; cd "$R/applied"
[ -z "RAW" ] || echo '* -text -ident -eol -working-tree-encoding -filter' > .git/info/attributes
git apply --binary --whitespace=nowarn "$R/patch"
"""


def row(base_commit: str) -> Row:
    return Row.model_validate(
        {
            "instance_id": "owner__repo-1",
            "repo": "owner/repo",
            "base_commit": base_commit,
            "patch": "",
            "test_patch": "",
            "problem_statement": "It is broken.",
            "version": "1",
            "FAIL_TO_PASS": [],
            "PASS_TO_PASS": [],
            "eval_script": "true",
            "log_parser": "parse_log_pytest",
            "eval_type": "pass_and_fail",
            "image": "image:latest",
        }
    )


async def run(sandbox: Sandbox, script: str) -> str:
    """What the script prints; it must end well."""
    result = await sandbox.exec(Command(script=START + script, timeout_s=120, cwd=PurePosixPath("/")))
    assert result.ok, result.stderr + result.stdout
    return result.stdout


async def prepared(sandbox: Sandbox, *scripts: str) -> RepositoryState:
    """IMAGE is made, then the scripts are run, then it is prepared; a copy of its tree lies in /before."""
    base = (await run(sandbox, "\n".join((IMAGE, *scripts)))).split()[0]
    state = await prepare_repository(sandbox, row(base))
    await run(sandbox, 'rm -rf "$R/before"; cp -a "$R/testbed" "$R/before"')
    return state


async def tree(sandbox: Sandbox, place: str = "testbed") -> Sequence[str]:
    """All files and links of a folder with their modes and content, but for what the image ignores."""
    return (await run(sandbox, _MANIFEST.replace("PLACE", place))).split("\0")


async def applied(sandbox: Sandbox, patch: bytes, *, raw: bool) -> Sequence[str]:
    """The tree that /before becomes by the patch."""
    await sandbox.write_bytes(PurePosixPath("/patch"), patch)
    if patch:
        await run(sandbox, _APPLY.replace("RAW", "raw" if raw else ""))
    return await tree(sandbox, "applied" if patch else "before")


async def found(sandbox: Sandbox) -> set[str]:
    """The words of the future that an agent can find in /testbed, its repository, and what is beside it."""
    return set((await run(sandbox, SEARCH.replace("WORDS", "|".join(FUTURE_WORDS)))).split())


async def handed_in(sandbox: Sandbox, state: RepositoryState, script: str) -> Collected:
    """The agent runs a script in /testbed, and what it did is collected."""
    await run(sandbox, AS_AGENT + script)
    return await collect_patch(sandbox, state)


async def worked(sandbox: Sandbox, state: RepositoryState, script: str) -> bytes:
    """The patch of what the agent did by a script."""
    return (await handed_in(sandbox, state, script)).patch
