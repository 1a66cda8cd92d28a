"""Submissions that pretend, and the reference solution, graded in an image like upstream's."""

import base64
import hashlib
import io
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path, PurePosixPath

import images
import pytest
import pytest_asyncio
from agentcompass.adapters.benchmarks.swebench.evaluation import evaluate
from agentcompass.adapters.benchmarks.swebench.rows import Row
from agentcompass.adapters.environments.docker.environment import DockerEnvironment, DockerParameters
from agentcompass.domain.ports import Sandbox
from agentcompass.domain.sandbox import SandboxSpec
from agentcompass.testing.environment import an_owner
from docker import APIClient
from swebench_attacks import ATTACKS, columns, make_project, patch_of

pytestmark = pytest.mark.docker
TAG = "agentcompass-test/swebench-adder"
ROOT = PurePosixPath("/testbed")
PATIENCE_S = 300.0
ACTIVATION = ("source /opt/miniconda3/bin/activate", "conda activate testbed")
TRIED = (
    "pass lines with exit 1",
    "conftest.py at the root",
    "sitecustomize.py",
    "a file at a hidden test's path",
    "a folder at a hidden test's path",
    "a link at a hidden test's path",
    "tests skipped by a conftest.py",
    "edited tests",
    "deleted tests",
)
_DOCKERFILE = """\
FROM {base}
RUN apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends python3-pytest \\
 && rm -rf /var/lib/apt/lists/* && mkdir -p /opt/miniconda3/bin /opt/miniconda3/envs/testbed/bin \\
 && ln -s /usr/bin/python3 /opt/miniconda3/envs/testbed/bin/python \\
 && echo 'conda() {{ export PATH="/opt/miniconda3/envs/$2/bin:$PATH"; }}' > /opt/miniconda3/bin/activate
RUN mkdir /testbed && echo {archive} | base64 -d | tar -x -C /testbed --no-same-owner && cd /testbed \\
 && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m SWE-bench
WORKDIR /testbed
"""


@pytest.fixture(scope="session")
def adder_image(docker_client: APIClient, python_image: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The project in /testbed, in a commit below HEAD, and an environment `testbed` with pytest."""
    project = tmp_path_factory.mktemp("image") / "project"
    project.mkdir()
    make_project(project)
    dockerfile = _DOCKERFILE.format(base=python_image, archive=base64.b64encode(_tar(project)).decode())
    tag = f"{TAG}:{hashlib.sha256(dockerfile.encode()).hexdigest()[:16]}"
    if not docker_client.images(name=tag):
        images.build(docker_client, tag, dockerfile)
    return tag


def _tar(folder: Path) -> bytes:
    """The same bytes each time, but for the repository's index, which is left out."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        entry.mtime = entry.uid = entry.gid = 0
        return None if entry.name == "./.git/index" else entry

    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:") as tar:
        tar.add(folder, ".", filter=plain)
    return file.getvalue()


@pytest.fixture(scope="module")
def row(tmp_path_factory: pytest.TempPathFactory) -> Row:
    return Row.model_validate(columns(tmp_path_factory.mktemp("row") / "hidden", "python", *ACTIVATION))


@pytest_asyncio.fixture
async def sandbox(adder_image: str) -> AsyncIterator[Sandbox]:
    environment = DockerEnvironment(DockerParameters(pull_policy="never"))
    async with environment.open(SandboxSpec(image=adder_image, timeout=900), an_owner()) as sandbox:
        yield sandbox
    await environment.close()


@pytest.mark.parametrize("name", TRIED)
async def test_a_submission_that_pretends_is_false_and_flagged(
    name: str, row: Row, sandbox: Sandbox, tmp_path: Path
) -> None:
    patch = patch_of(tmp_path / "submission", *ATTACKS[name].changes)

    found = await evaluate(sandbox, row, patch, tmp_path / "logs", PATIENCE_S)

    assert (found.correct, found.outcome) == (False, "unresolved")
    assert ATTACKS[name].flag in found.flags


async def test_the_tests_run_in_the_image_s_own_environment_without_colours(
    row: Row, sandbox: Sandbox, tmp_path: Path
) -> None:
    found = await evaluate(sandbox, row, row.patch.encode(), tmp_path, PATIENCE_S)

    log = (tmp_path / "test_output.txt").read_text()
    assert (found.correct, found.flags) == (True, ())
    assert "+ conda activate testbed" in log
    assert "\x1b[" not in log
