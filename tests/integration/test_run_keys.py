"""The model's key: in no file, on neither stream, in no container, whatever the endpoint says."""

import json
import secrets
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import pytest
from openai_server import Answer, Call, OpenAIServer, error
from running import LOCAL_IMAGES, Ended, a_run, agentcompass, asked_of, obey, task_directory, write_do_task

pytestmark = pytest.mark.docker

KEY = f"sk-{secrets.token_hex(20)}"
HEADER = f"tenant-{secrets.token_hex(16)}"
IN_QUERY, IN_USERINFO = secrets.token_hex(20), secrets.token_hex(20)
ENVIRONMENTS = "for place in /proc/[0-9]*; do tr '\\0' '\\n' < $place/environ; done > seen.txt; cat seen.txt; env"
ECHOES = {"refused": 401, "broken": 500, "too-many": 429}


class Story:
    """One run at the most talkative log level, whose endpoint repeats what it was sent in most of its answers."""

    def __init__(self, folder: Path, image: str, where: Callable[[str], str], *more: str) -> None:
        self.run = a_run(folder / "results")
        self._words = {
            write_do_task(folder / "tasks", name, image, ENVIRONMENTS, "echo 42 > answer.txt"): name
            for name in ("well", *ECHOES)
        }
        params = {"max_tries": 2, "max_wait_s": 0.05, "extra_headers": {"X-Tenant": HEADER}}
        with OpenAIServer(self._answer) as server:
            self.ended: Ended = agentcompass(
                *("run", "task_directory", "mini_swe_agent", "scripted", *more),
                *(*task_directory(folder / "tasks"), *self.run.place, "--model-params", json.dumps(params)),
                *("--model-base-url", where(server.url), "--log-level", "debug", "--progress", "json"),
                scratch=folder,
            )
            self.calls = list(server.calls)

    def _answer(self, asked: Call) -> Answer:
        status = ECHOES.get(self._words[asked_of(asked)])
        if status is None:
            return obey(asked)
        return error(status, f"not so, {asked.headers['authorization']}: {asked.path} {json.dumps(asked.headers)}")

    def written(self) -> dict[str, bytes]:
        """Every file of the run, and what came on the two streams."""
        files = {str(path): path.read_bytes() for path in self.run.folder.rglob("*") if path.is_file()}
        return {**files, "stdout": self.ended.out.encode(), "stderr": self.ended.err.encode()}

    def leaks(self, secret: str) -> list[str]:
        """Where `secret` is written, as it is or in base64."""
        forms = [secret.encode(), b64encode(secret.encode())[:-4], b64encode(f"user:{secret}".encode())[:-4]]
        return [place for place, content in self.written().items() if any(form in content for form in forms)]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, debian_image: str) -> Story:
    return Story(
        *(tmp_path_factory.mktemp("keys"), debian_image, lambda url: f"{url}?token={IN_QUERY}"),
        *("--env", "docker", *LOCAL_IMAGES, "--model-api-key", KEY),
    )


@pytest.fixture(scope="module")
def by_password(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return Story(
        *(tmp_path_factory.mktemp("password"), "none", lambda url: url.replace("//", f"//user:{IN_USERINFO}@")),
        *("--env", "host_process", "--max-retries", "0"),
    )


def test_the_endpoint_gets_the_keys(story: Story) -> None:
    assert {call.headers["authorization"] for call in story.calls} == {f"Bearer {KEY}"}
    assert {call.headers["x-tenant"] for call in story.calls} == {HEADER}
    assert {call.path for call in story.calls} == {f"/v1/chat/completions?token={IN_QUERY}"}


@pytest.mark.parametrize("secret", [KEY, HEADER, IN_QUERY], ids=["key", "header", "query"])
def test_nothing_that_is_written_has_a_key(story: Story, secret: str) -> None:
    assert len(story.written()) > 15
    assert story.leaks(secret) == []


def test_nothing_that_is_written_has_the_password_of_the_address(by_password: Story) -> None:
    sent = {call.headers["authorization"] for call in by_password.calls}

    assert sent == {f"Basic {b64encode(f'user:{IN_USERINFO}'.encode()).decode()}"}
    assert by_password.leaks(IN_USERINFO) == []


def test_errors_still_tell_what_the_endpoint_said(story: Story) -> None:
    errors = {task: attempt["error"] for task, attempt in story.run.attempts().items()}

    assert errors.pop("well") == ""
    assert all(f"HTTP {ECHOES[task]}: not so, " in told for task, told in errors.items())
    assert all("authorization" in told for told in errors.values())


def test_no_process_in_the_container_has_a_key_or_the_runners_variables(story: Story) -> None:
    seen = story.run.steps("well")[0]["observation"]

    assert "PATH=" in seen
    assert "XDG_CACHE_HOME" not in seen
    assert not any(secret[:12] in seen for secret in (KEY, HEADER, IN_QUERY))
