"""Docker's failures in the words of the domain: one table, one place."""

import http.client
import re
from collections.abc import Callable
from dataclasses import dataclass

import requests
import urllib3
from docker.errors import APIError, DockerException

from ....domain.errors import AgentCompassError, SandboxBusy, SandboxFailed, SandboxStartFailed
from ....domain.one_line import one_line

FAILURES = (
    DockerException,
    requests.RequestException,
    urllib3.exceptions.HTTPError,
    http.client.HTTPException,
    ConnectionError,
    TimeoutError,
)
"""What a call to the engine may raise."""

ErrorKind = Callable[..., AgentCompassError]


@dataclass(frozen=True)
class _Rule:
    phrases: tuple[str, ...]
    """Regular expressions, any of which the engine's words match."""
    kind: ErrorKind
    hint: str = ""


_START_RULES = (
    _Rule(("returned a non-zero code: ",), SandboxStartFailed),  # whatever words the step's own command holds
    _Rule(("no space left on device",), SandboxStartFailed, "free some disk: `docker system df`, `docker image prune`"),
    _Rule(("toomanyrequests", "rate limit", "too many requests"), SandboxBusy, "log in, or use a mirror"),
    _Rule(("no matching manifest", "does not match the specified platform"), SandboxStartFailed, "check `platform`"),
    _Rule(
        (
            *("pull access denied", "access to the resource is denied", r"\bunauthorized\b", "no basic auth"),
            *("authentication required", r"(^|registry: |daemon: |\": )denied\b"),
        ),
        SandboxStartFailed,
        "check the image's name; for a private registry, `docker login` first",
    ),
    _Rule(
        ("manifest unknown", "no such image", "repository does not exist", "name unknown", "not found: manifest"),
        SandboxStartFailed,
        "check the image's name and tag",
    ),
    _Rule(("invalid reference format",), SandboxStartFailed, "check the image's name"),
    _Rule(("exec format error",), SandboxStartFailed, "the image is for another platform than the engine's"),
    _Rule(
        ("could not select device driver",), SandboxStartFailed, "install the engine's GPU support, or leave out gpu"
    ),
    _Rule(("range of cpus",), SandboxStartFailed, "lower `cpu`"),
    _Rule(("minimum memory limit",), SandboxStartFailed, "raise `memory`"),
    _Rule(("unable to find user", "no matching entries in passwd"), SandboxStartFailed, "check `user`"),
    _Rule(("buildkit",), SandboxStartFailed, "build it with `docker build -t NAME` and give that `image`"),
    _Rule(("stat /bin/sh: no such file", '"/bin/sh": permission denied'), SandboxStartFailed, "it needs a /bin/sh"),
    _Rule(
        (
            *("tls handshake timeout", "i/o timeout", "connection reset by peer", "connection refused"),
            *("temporary failure in name resolution", "service unavailable", "bad gateway", "gateway timeout"),
        ),
        SandboxBusy,
    ),
)
_BUSY_STATUSES = frozenset({408, 409, 423, 425, 429})


def explanation(error: BaseException) -> str:
    """What the engine said, on one line."""
    said = error.explanation if isinstance(error, APIError) and error.explanation else str(error)
    silent = "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
    return one_line(str(said)) or silent


def status_of(error: BaseException) -> int | None:
    """The engine's HTTP status, where it answered."""
    return error.status_code if isinstance(error, APIError) else None


def start_error(error: BaseException, doing: str) -> AgentCompassError:
    """An image or a container could not be had: SandboxStartFailed for good, SandboxBusy when it may go better."""
    return said_error(explanation(error), status_of(error), doing)


def said_error(said: str, status: int | None, doing: str, *, otherwise: ErrorKind = SandboxBusy) -> AgentCompassError:
    """As `start_error`, from what the engine said; `otherwise` is what words that nobody knows come to."""
    lowered = said.lower()
    for rule in _START_RULES:
        if any(re.search(phrase, lowered) for phrase in rule.phrases):
            return rule.kind(f"{doing}: {said}", hint=rule.hint)
    refused = status is not None and 400 <= status < 500 and status not in _BUSY_STATUSES
    return SandboxStartFailed(f"{doing}: {said}") if refused else otherwise(f"{doing}: {said}")


def use_error(error: BaseException, doing: str) -> SandboxFailed:
    """A call on a container that is alive failed."""
    return SandboxFailed(f"{doing}: {explanation(error)}")
