"""Small task directories, made for a test."""

from collections.abc import Mapping
from pathlib import Path

TASK_TOML = """version = "1.0"

[metadata]
category = "made-up"
host_process = true

[agent]
timeout_sec = 30.0

[verifier]
timeout_sec = 20.0

[environment]
docker_image = "debian:bookworm-slim"
workdir = "/app"
"""
REWARD = '"${AGENTCOMPASS_ROOT:-}/logs/verifier/reward.txt"'
ANSWER_TEST = f"""#!/bin/bash
if [ "$(cat answer.txt 2>/dev/null)" = 42 ]; then echo 1 > {REWARD}; else echo 0 > {REWARD}; fi
"""
"""Passes when answer.txt says 42."""


def write_task(
    folder: Path,
    name: str,
    *,
    toml: str = TASK_TOML,
    instruction: str = "Write 42 to `answer.txt`.\n",
    test: str = ANSWER_TEST,
    solve: str | None = "#!/bin/bash\necho 42 > answer.txt\n",
    files: Mapping[str, str | bytes] | None = None,
) -> Path:
    """A task directory `folder/name`; `files` are further ones by their relative paths. Returns its path."""
    task = folder / name
    scripts = {"tests/test.sh": test} | ({"solution/solve.sh": solve} if solve is not None else {})
    for path, content in {"task.toml": toml, "instruction.md": instruction, **scripts, **(files or {})}.items():
        file = task / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return task
