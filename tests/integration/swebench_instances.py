"""SWE-bench instances whose images are made here: of our own repositories, and a real one.

An image has what upstream's have: /testbed with a commit "SWE-bench" on top of the base commit, and an environment that
`source /opt/miniconda3/bin/activate; conda activate testbed` enters. Whatever is installed there lies in the image.
"""

import fcntl
import hashlib
import inspect
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import images
from docker import APIClient
from docker.errors import ImageNotFound
from swebench_repos import REPOSITORIES, Files, Repository

TESTBED = "agentcompass-test/testbed:bookworm"
"""What all the images have in common: the environment, with pytest in it."""
REQUESTS = Path(__file__).parent / "swebench_data" / "psf__requests-6028.json"
REQUESTS_RELEASE = "requests==2.27.0"
"""Its code is that of the real instance's base commit."""
PACKAGES = (
    *("pip==23.2.1", "setuptools==68.2.2", "wheel==0.41.3"),
    *("pytest==7.4.4", "pytest-mock==3.12.0", "iniconfig==2.0.0", "packaging==23.2", "pluggy==1.3.0"),
    *("certifi==2024.7.4", "charset_normalizer==2.0.12", "idna==3.7", "urllib3==1.26.18"),
)
Context = Mapping[str, str | Path]
"""Name -> text, or a local folder."""
_LABEL = "agentcompass.test.swebench"
_ACTIVATE = """\
conda() { [ "$1" = activate ] && export PATH="/opt/miniconda3/envs/$2/bin:$PATH" CONDA_DEFAULT_ENV="$2"; }
"""
_PIP_CONF = "[global]\nno-index = true\nfind-links = /opt/wheels\nroot-user-action = ignore\n"
_TESTBED_DOCKERFILE = f"""\
FROM {images.PYTHON}
COPY wheels /opt/wheels
COPY activate /opt/miniconda3/bin/activate
COPY pip.conf /etc/pip.conf
RUN python3 -m venv --without-pip /opt/miniconda3/envs/testbed \\
 && /opt/miniconda3/envs/testbed/bin/python /opt/wheels/pip-23.2.1-py3-none-any.whl/pip install {" ".join(PACKAGES)} \\
 && echo 'source /opt/miniconda3/bin/activate && conda activate testbed' >> /root/.bashrc
"""
_DOCKERFILE = f"""\
FROM {TESTBED}
COPY testbed /testbed
RUN cd /testbed && . /opt/miniconda3/bin/activate && conda activate testbed && """
_EVAL_SCRIPT = """\
#!/bin/bash
set -uxo pipefail
source /opt/miniconda3/bin/activate
conda activate testbed
cd /testbed
git config --global --add safe.directory /testbed
cd /testbed
git status
git show
git -c core.fileMode=false diff {base}
source /opt/miniconda3/bin/activate
conda activate testbed
{install}
git checkout {base} {tests}
git apply -v - <<'EOF_114329324912'
{test_patch}
EOF_114329324912
: '>>>>> Start Test Output'
{command}
: '>>>>> End Test Output'
git checkout {base} {tests}
"""


@dataclass(frozen=True)
class Instance:
    """A row, and the folder of the repository that its image has in /testbed."""

    repository: Repository
    row: dict[str, Any]
    testbed: Path


def make_instances(folder: Path) -> list[Instance]:
    """Those of our own, their repositories below `folder`; the same commits each time."""
    return [_instance(repository, folder / repository.name) for repository in REPOSITORIES]


def requests_row() -> dict[str, Any]:
    """The real instance's row."""
    (row,) = json.loads(REQUESTS.read_text("utf-8"))
    return dict(row)


def _instance(repository: Repository, folder: Path) -> Instance:
    _write(folder, repository.files)
    _git(folder, "init", "-q", "-b", "main")
    base = _commit(folder, "base")
    patch, test_patch = _diff(folder, repository.gold), _diff(folder, repository.hidden)
    _write(folder, repository.set_up)
    _commit(folder, "SWE-bench")
    script = _EVAL_SCRIPT.format(
        base=base,
        install=repository.install,
        tests=" ".join(repository.hidden),
        test_patch=test_patch,
        command=repository.command,
    )
    row = {
        "repo": f"acme/{repository.name}",
        "instance_id": repository.instance_id,
        "base_commit": base,
        "patch": patch,
        "test_patch": test_patch,
        "problem_statement": f"{repository.name} does not do what it should.",
        "hints_text": "",
        "created_at": "2026-01-02T03:04:05Z",
        "version": "1.0",
        "FAIL_TO_PASS": json.dumps(repository.fail_to_pass),
        "PASS_TO_PASS": json.dumps(repository.pass_to_pass),
        "environment_setup_commit": base,
        "difficulty": "<15 min fix",
        "eval_script": script,
        "log_parser": repository.parser,
        "eval_type": "pass_and_fail",
        "image": f"agentcompass-test/sweb.eval.x86_64.acme_1776_{repository.name}-1:latest",
    }
    return Instance(repository, row, folder)


def _diff(folder: Path, files: Files) -> str:
    """The patch that makes these changes, which are not kept."""
    _write(folder, files)
    _git(folder, "add", "-A")
    patch = _git(folder, "diff", "--cached", "--binary", "--full-index", "--no-renames")
    _git(folder, "reset", "-q", "--hard")
    return patch


def _write(folder: Path, files: Files) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.unlink()
            continue
        data = content.encode() if isinstance(content, str) else content
        path.write_bytes(data)
        path.chmod(0o755 if data.startswith(b"#!") else 0o644)


def _commit(folder: Path, message: str) -> str:
    _git(folder, "add", "-A")
    _git(folder, "commit", "-q", "--allow-empty", "-m", message)
    return _git(folder, "rev-parse", "HEAD").strip()


def _git(folder: Path, *arguments: str) -> str:
    plain = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    for role in ("AUTHOR", "COMMITTER"):
        who = {f"GIT_{role}_NAME": "acme", f"GIT_{role}_EMAIL": "acme@example.org"}
        plain |= {**who, f"GIT_{role}_DATE": "2026-01-02T03:04:05Z"}
    done = subprocess.run(["git", *arguments], cwd=folder, env={**os.environ, **plain}, check=True, capture_output=True)
    return done.stdout.decode()


def make_images(client: APIClient, instances: Sequence[Instance], folder: Path) -> None:
    """Those of `instances` and of the real one, where they are missing or of another content.

    The package index is asked for what they need; scratch files go to `folder`. One process makes them, others wait.
    """
    with Path(tempfile.gettempdir(), "agentcompass-test-swebench-images.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _make_images(client, instances, folder)


def _make_images(client: APIClient, instances: Sequence[Instance], folder: Path) -> None:
    images.make(client, ["python"])
    parts = [_TESTBED_DOCKERFILE, _ACTIVATE, _PIP_CONF, client.inspect_image(images.PYTHON)["Id"]]
    testbed = _digest(*parts)
    _ensure(client, TESTBED, testbed, _TESTBED_DOCKERFILE, lambda: _testbed_context(folder / "wheels"))
    for instance in instances:
        dockerfile = f"{_DOCKERFILE}{instance.repository.install}\n"
        content = _digest(dockerfile, testbed, repr(instance.repository), inspect.getsource(_instance))
        _ensure(client, instance.row["image"], content, dockerfile, lambda it=instance: {"testbed": it.testbed})
    dockerfile = f"{_DOCKERFILE}python -m pip install .\n"
    content = _digest(dockerfile, testbed, REQUESTS_RELEASE)
    _ensure(client, requests_row()["image"], content, dockerfile, lambda: {"testbed": _released(folder / "sdist")})


def _testbed_context(wheels: Path) -> Context:
    _download(wheels, "--only-binary=:all:", *PACKAGES)
    return {"wheels": wheels, "activate": _ACTIVATE, "pip.conf": _PIP_CONF}


def _released(folder: Path) -> Path:
    """The source distribution's tree, as the one commit of a repository."""
    _download(folder, "--no-binary=requests", REQUESTS_RELEASE)
    (archive,) = folder.glob("requests-*.tar.gz")
    subprocess.run(["tar", "-xzf", archive.name, "--no-same-owner"], cwd=folder, check=True)
    tree = folder / archive.name.removesuffix(".tar.gz")
    _git(tree, "init", "-q", "-b", "main")
    _commit(tree, REQUESTS_RELEASE)
    return tree


def _download(folder: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), *arguments]
    subprocess.run(command, check=True)


def _ensure(client: APIClient, tag: str, digest: str, dockerfile: str, context: Callable[[], Context]) -> None:
    try:
        label = (client.inspect_image(tag)["Config"].get("Labels") or {}).get(_LABEL, digest)
    except ImageNotFound:
        label = None
    if label == digest:  # one without our label is upstream's own, which is as good
        return
    said = []
    options = {"tag": tag, "rm": True, "labels": {_LABEL: digest}, "network_mode": "none"}
    for line in client.build(fileobj=_tar(dockerfile, context()), custom_context=True, decode=True, **options):
        said.append(str(line.get("stream", line)))
        if "error" in line:
            raise RuntimeError(f"{tag} cannot be built:\n{''.join(said[-40:])}")


def _tar(dockerfile: str, context: Context) -> io.BytesIO:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, content in {"Dockerfile": dockerfile, **context}.items():
            if isinstance(content, Path):
                tar.add(content, name)
                continue
            entry = tarfile.TarInfo(name)
            entry.size = len(content.encode())
            tar.addfile(entry, io.BytesIO(content.encode()))
    file.seek(0)
    return file


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
