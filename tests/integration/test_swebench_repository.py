"""In images: no agent finds what came after the base commit, and what it leaves comes back byte for byte."""

import base64
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import images
import pytest
from agentcompass.adapters.benchmarks.swebench.repository import collect_patch, prepare_repository
from agentcompass.adapters.environments.docker.environment import DockerEnvironment, DockerParameters
from agentcompass.domain.errors import BenchmarkBroken
from agentcompass.domain.ports import Sandbox
from agentcompass.domain.sandbox import SandboxSpec
from agentcompass.testing.environment import an_owner
from docker import APIClient
from swebench_repositories import (
    AGENT,
    AS_AGENT,
    FUTURE,
    FUTURE_PACKED,
    FUTURE_WORDS,
    IMAGE,
    RAW_ONLY,
    SET_UP,
    START,
    STATE,
    TESTBED,
    applied,
    found,
    row,
    run,
    tree,
    worked,
)

pytestmark = pytest.mark.docker
BASE = "git -c safe.directory=/testbed -C /testbed rev-parse v1^{commit}"
MATTER_IN_CONTAINERS = [
    "edits",
    "no final newline",
    "blank context",
    "CRLF",
    "attributes of text",
    "ends of lines that attributes would change",
    "binary",
    "links",
    "modes",
    "new odd names",
    "deletes everything",
    "renames",
    "commits",
    "switches branches",
    "deletes .git",
    "a nested repository",
    "a submodule",
    "same times",
    "nothing is readable by others",
    "hostile settings",
]
Open = Callable[..., AbstractAsyncContextManager[Sandbox]]


@pytest.fixture(scope="session")
def repository_image(docker_client: APIClient, python_image: str) -> str:
    """IMAGE with all of FUTURE, packed, and the changes of SET_UP above it."""
    tag = "agentcompass-test/swebench-repository:latest"
    script = base64.b64encode("\n".join((START, IMAGE, FUTURE, FUTURE_PACKED, SET_UP)).encode()).decode()
    images.build(docker_client, tag, f"FROM {python_image}\nRUN echo {script} | base64 -d | bash\n")
    return tag


@pytest.fixture
async def open_sandbox() -> AsyncIterator[Open]:
    environment = DockerEnvironment(DockerParameters(pull_policy="never"))

    @asynccontextmanager
    async def opened(image: str, user: str | None = None) -> AsyncIterator[Sandbox]:
        spec = SandboxSpec(image=image, user=user, workspace_root=TESTBED)
        async with environment.open(spec, an_owner()) as sandbox:
            yield sandbox

    yield opened
    await environment.close()


async def test_nothing_of_the_future_is_found_in_a_container(open_sandbox: Open, repository_image: str) -> None:
    async with open_sandbox(repository_image) as sandbox:
        base = (await run(sandbox, BASE)).strip()
        before, known_before = await run(sandbox, STATE), await found(sandbox)
        state = await prepare_repository(sandbox, row(base))
        known_after, after = await found(sandbox), await run(sandbox, STATE)

    assert known_before == set(FUTURE_WORDS)
    assert known_after == set()
    assert after == before
    assert state.relation == "parent"


@pytest.mark.parametrize("what", MATTER_IN_CONTAINERS)
async def test_work_in_a_container_comes_back(open_sandbox: Open, repository_image: str, what: str) -> None:
    async with open_sandbox(repository_image) as sandbox:
        state = await prepare_repository(sandbox, row((await run(sandbox, BASE)).strip()))
        await run(sandbox, "cp -a /testbed /before")
        patch = await worked(sandbox, state, AGENT[what])
        made, left = await applied(sandbox, patch, raw=what in RAW_ONLY), await tree(sandbox)

    assert patch
    assert made == left


async def test_an_agent_that_removes_its_folder_hands_in_the_loss_of_all_files(
    open_sandbox: Open, repository_image: str
) -> None:
    async with open_sandbox(repository_image) as sandbox:
        state = await prepare_repository(sandbox, row((await run(sandbox, BASE)).strip()))
        patch = await worked(sandbox, state, "cd /; rm -rf /testbed")

    assert b"deleted file mode" in patch


async def test_a_repository_of_another_user_stays_that_users(open_sandbox: Open, repository_image: str) -> None:
    async with open_sandbox(repository_image) as sandbox:
        await run(sandbox, "chown -R nobody /testbed")
        state = await prepare_repository(sandbox, row((await run(sandbox, BASE)).strip()))
        owners = await run(sandbox, "find /testbed ! -user nobody")
        await run(sandbox, AS_AGENT + 'su -s /bin/bash nobody -c "echo 1 > new; git add new; git commit -qm new"')
        patch = (await collect_patch(sandbox, state)).patch

    assert owners == ""
    assert b"+++ b/new\n" in patch


async def test_root_prepares_a_sandbox_of_another_user(open_sandbox: Open, repository_image: str) -> None:
    async with open_sandbox(repository_image, user="nobody") as sandbox:
        base = (await run(sandbox, BASE)).strip()
        state = await prepare_repository(sandbox, row(base))
        patch = (await collect_patch(sandbox, state)).patch

    assert patch == b""


async def test_an_image_without_bash_or_git_is_refused(
    open_sandbox: Open, busybox_image: str, debian_image: str
) -> None:
    for image, reason in ((busybox_image, "it has no bash"), (debian_image, "it has no git")):
        async with open_sandbox(image) as sandbox:
            with pytest.raises(BenchmarkBroken, match=reason):
                await prepare_repository(sandbox, row("0" * 40))
