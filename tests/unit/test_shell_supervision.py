"""The supervising shell tells the end of a command whatever the command did to its output, and nobody else can."""

import os
import resource
import shutil
import subprocess
import time
from typing import Any

import pytest
from agentcompass.adapters.support.shell_supervision import MARK_VARIABLE, SHELL, Invocation, Mark, supervised_argv

SHELLS = [words for words in ("sh", "bash --posix", "busybox sh") if shutil.which(words.split()[0])]
FILL = "dd if=/dev/zero bs=4096 count=1000 oflag=nonblock"
FORGE = r"""
set -f
for word in $(cat /proc/$PPID/cmdline /proc/$PPID/environ | tr '\0=' '\n\n'); do echo "$word:0"; done
exit 3
"""


def started(shell: str, mark: Mark, script: str, **options: Any) -> "subprocess.Popen[bytes]":
    """`script` as `shell` supervises it."""
    argv = supervised_argv(mark, Invocation(argv=(), script=script, cwd="/"))
    script_of_first = argv[2].replace(SHELL, shell)
    env = {**os.environ, MARK_VARIABLE: mark.name, **options.pop("env", {})}
    words = [*shell.split(), "-c", script_of_first, *argv[3:]]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, **options)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_the_end_is_told_on_a_full_output_that_does_not_block(shell: str, stream: str) -> None:
    mark = Mark()
    script = f"{FILL} >&{1 if stream == 'stdout' else 2} 2>/dev/null\nexit 3"
    with started(shell, mark, script) as process:
        time.sleep(0.5)
        told = dict(zip(("stdout", "stderr"), process.communicate(timeout=20), strict=True))

    assert len(told[stream]) > 4096
    assert all(text.endswith(f"{mark.nonce}:3\n".encode()) for text in told.values())


@pytest.mark.parametrize("shell", SHELLS)
def test_a_command_finds_no_word_that_ends_it(shell: str) -> None:
    mark = Mark()
    with started(shell, mark, FORGE) as process:
        out, _ = process.communicate(timeout=20)

    assert f"{mark.name}:0\n".encode() in out
    assert out.count(mark.nonce.encode()) == 1
    assert out.endswith(f"{mark.nonce}:3\n".encode())


@pytest.mark.parametrize("shell", SHELLS)
def test_a_command_inherits_no_stream_of_its_supervisor(shell: str) -> None:
    mark = Mark()
    with started(shell, mark, "test ! -e /proc/$$/fd/8 && test ! -e /proc/$$/fd/9") as process:
        out, _ = process.communicate(timeout=20)

    assert out == f"{mark.nonce}:0\n".encode()


@pytest.mark.parametrize("shell", SHELLS)
def test_a_command_runs_where_no_file_can_be_written(shell: str) -> None:
    mark = Mark()
    old = {"BASH_COMPAT": "5.0"}  # its here-documents are files
    with started(shell, mark, "echo here", env=old, restore_signals=False, preexec_fn=_no_room) as process:
        told = process.communicate(timeout=20)

    assert told == (f"here\n{mark.nonce}:0\n".encode(), f"{mark.nonce}:0\n".encode())


def _no_room() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
