"""The supervising shell tells the end of a command whatever the command did to its output."""

import os
import shutil
import subprocess
import time

import pytest
from agentcompass.adapters.support.shell_supervision import MARK_VARIABLE, Invocation, Mark, supervised_argv

SHELLS = [words for words in (["sh"], ["bash", "--posix"], ["busybox", "sh"]) if shutil.which(words[0])]
FILL = "dd if=/dev/zero bs=4096 count=1000 oflag=nonblock"


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_the_end_is_told_on_a_full_output_that_does_not_block(shell: list[str], stream: str) -> None:
    mark = Mark()
    script = f"{FILL} >&{1 if stream == 'stdout' else 2} 2>/dev/null\nexit 3"
    argv = supervised_argv(mark, Invocation(argv=(), script=script, cwd="/"))
    with subprocess.Popen(
        [*shell, *argv[1:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, MARK_VARIABLE: mark.name},
    ) as process:
        time.sleep(0.5)
        told = dict(zip(("stdout", "stderr"), process.communicate(timeout=20), strict=True))

    assert len(told[stream]) > 4096
    assert all(text.endswith(f"{mark.nonce}:3\n".encode()) for text in told.values())
