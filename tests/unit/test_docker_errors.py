"""Docker's failures: what each hint is said about, and what it is not said about."""

import pytest
from agentcompass.adapters.environments.docker.errors import explanation, said_error
from agentcompass.domain.errors import SandboxBusy, SandboxStartFailed

LOGIN = "docker login"


@pytest.mark.parametrize(
    "said",
    [
        "pull access denied for tool, repository does not exist or may require 'docker login'",
        "denied: requested access to the resource is denied",
        "denied",
        "error from registry: denied",
        "Error response from daemon: denied",
        'Head "https://registry.example.org/v2/tool/manifests/latest": denied',
        'denied: Permission "artifactregistry.repositories.downloadArtifacts" denied on resource',
        "denied: Your authorization token has expired. Reauthenticate and try again.",
        'Head "https://registry.example.org/v2/tool/manifests/1": unauthorized: authentication required',
        "no basic auth credentials",
    ],
)
def test_a_refusal_of_the_registry_hints_at_a_login(said: str) -> None:
    error = said_error(said, 500, "pull of image 'tool'")

    assert isinstance(error, SandboxStartFailed)
    assert LOGIN in error.hint


@pytest.mark.parametrize(
    "said",
    [
        'failed to create task: exec: "/entry.sh": permission denied: unknown',
        "dial unix /var/run/docker.sock: connect: permission denied",
        "Mounts denied: the path /data is not shared from the host",
        "open /var/lib/docker/tmp/x: access denied: the volume is read-only",
        "operation denied: by policy",
    ],
)
def test_other_refusals_do_not(said: str) -> None:
    assert LOGIN not in said_error(said, 500, "start of a container of 'tool'").hint


def test_a_shell_that_must_not_be_run_is_named_as_such() -> None:
    error = said_error('exec: "/bin/sh": permission denied: unknown', 400, "start of a container of 'tool'")

    assert (type(error), error.hint) == (SandboxStartFailed, "it needs a /bin/sh")


@pytest.mark.parametrize("said", ["toomanyrequests: slow down", "You have reached your pull rate limit"])
def test_a_registry_that_asks_for_patience_gets_it(said: str) -> None:
    assert isinstance(said_error(said, 500, "pull of image 'tool'"), SandboxBusy)


def test_what_the_engine_said_keeps_to_its_line_and_obeys_no_terminal() -> None:
    assert explanation(ConnectionError("it\n said\x1b[2J")) == "it said\\x1b[2J"


def test_a_time_out_without_words_is_told_all_the_same() -> None:
    assert explanation(TimeoutError()) == "no answer in time"
