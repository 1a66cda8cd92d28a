"""A sandbox's container from its name to its removal: what it is created with, whose it is, and that it goes."""

import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from docker import APIClient
from docker.errors import APIError, NotFound
from docker.types import DeviceRequest, LogConfig
from docker.utils import version_gte

from ....domain.errors import ConfigError, SandboxBusy, SandboxStartFailed
from ....domain.naming import sandbox_name
from ....domain.sandbox import Network, SandboxOwner, SandboxSpec
from ...support.shell_supervision import STOP_SIGNAL, keep_alive_argv
from .errors import explanation, status_of
from .images import DockerImage

SANDBOX_LABEL = "agentcompass.sandbox"
"""On every container of this tool, and on no other."""
_OWNER_FIELDS = ("run_id", "task_id", "attempt", "try_number", "purpose", "host", "process")
_EXPIRES = "agentcompass.expires"
_START_SLACK_S = 60
_MIB = 1 << 20
_REMOVAL_LIMIT_S = 30
_KNOWS_PLATFORMS = "1.41"
"""First version of the engine's API whose create takes one."""


def owner_labels(owner: SandboxOwner) -> dict[str, str]:
    """Who started it."""
    return {f"agentcompass.{name}": str(getattr(owner, name)) for name in _OWNER_FIELDS}


def expiry_of(labels: Mapping[str, str]) -> datetime:
    """When it has ended by itself. Raises ValueError where that cannot be read."""
    return datetime.fromisoformat(labels.get(_EXPIRES, ""))


def label_of(labels: Mapping[str, str], field: str) -> str:
    """A field of the owner."""
    return labels.get(f"agentcompass.{field}", "")


def is_gpu_count(gpu: str) -> bool:
    """Whether it is a count, or `all`."""
    return gpu == "all" or (gpu.isascii() and gpu.isdecimal() and int(gpu) > 0)


def gpu_requests(gpu: str | None) -> list[DeviceRequest]:
    """For a bare count, or `all`. Raises ConfigError for a type: an engine has the GPUs that it has."""
    if gpu is None:
        return []
    if not is_gpu_count(gpu):
        raise ConfigError(f"docker cannot choose a GPU by type: gpu={gpu!r}", hint="give a count, or `all`")
    return [DeviceRequest(count=-1 if gpu == "all" else int(gpu), capabilities=[["gpu"]])]


class DockerContainer:
    """One container that is to be. `start` and `remove` block, and may run in threads side by side."""

    def __init__(self, spec: SandboxSpec, owner: SandboxOwner) -> None:
        self.name = sandbox_name(owner)
        self.id: str | None = None
        self.started_at = 0.0
        """By `time.monotonic`."""
        self._spec = spec
        self._owner_labels = owner_labels(owner)
        self.begun = False
        self._abandoned = False

    def start(self, client: APIClient, image: DockerImage) -> str:
        """Create and start it; returns its id. An earlier try's leftover of the same owner makes room.

        Raises:
            SandboxStartFailed: somebody else's container has that name.
            SandboxBusy: the engine keeps the name for a container that is not there yet, or is just going.
        """
        self.begun = True
        self.id = None  # of an earlier try, which would hide what this one makes
        self.id = self._created(client, image)
        if not self._abandoned:
            client.start(self.id)
            self.started_at = time.monotonic()
        if self._abandoned:
            remove_container(client, self.id)
        return self.id

    def remove(self, client: APIClient) -> None:
        """Remove it by force, also if it is only just being created, and only if it is this owner's."""
        self._abandoned = True
        if self.id is not None:
            remove_container(client, self.id)
        elif self.begun:
            with suppress(NotFound):
                if (found := self._own(client)) is not None:
                    remove_container(client, found)

    def _created(self, client: APIClient, image: DockerImage) -> str:
        config = self._config(client, image)
        try:
            return str(client.create_container(**config)["Id"])
        except APIError as exc:
            if status_of(exc) != 409 or "already in use" not in explanation(exc):
                raise
            earlier = self._earlier(client)
            if earlier is None:
                message = f"a container named {self.name!r} is there that this run did not start"
                raise SandboxStartFailed(message, hint=f"`docker rm -f {self.name}` if nobody needs it") from exc
        remove_container(client, earlier)
        return str(client.create_container(**config)["Id"])

    def _earlier(self, client: APIClient) -> str | None:
        try:
            return self._own(client)
        except NotFound as exc:
            raise SandboxBusy(f"the engine still keeps the name {self.name!r}: {explanation(exc)}") from exc

    def _own(self, client: APIClient) -> str | None:
        found = client.inspect_container(self.name)
        labels = found["Config"].get("Labels") or {}
        return str(found["Id"]) if self._owner_labels.items() <= labels.items() else None

    def _config(self, client: APIClient, image: DockerImage) -> dict[str, Any]:
        spec = self._spec
        expires = datetime.now(UTC) + timedelta(seconds=spec.timeout + _START_SLACK_S)
        workspace = str(spec.workspace_root) if spec.workspace_root else ""
        # An engine that stores several platforms under one image would start its own.
        platform = spec.platform if spec.platform and version_gte(client.api_version, _KNOWS_PLATFORMS) else None
        return {
            "image": image.id,
            "platform": platform,
            "name": self.name,
            "entrypoint": keep_alive_argv(spec.timeout, workspace, spec.directories),
            "user": "0",
            "working_dir": "/",
            "environment": spec.env_variables,
            "labels": {SANDBOX_LABEL: "1", **self._owner_labels, _EXPIRES: expires.isoformat(timespec="seconds")},
            "healthcheck": {"test": ["NONE"]},
            "stop_signal": STOP_SIGNAL,
            "use_config_proxy": False,
            "host_config": _host_config(client, spec),
        }


def remove_container(client: APIClient, container: str) -> None:
    """Kill and remove it with its anonymous volumes, and see it gone; one that is gone already is no error."""
    try:
        client.remove_container(container, v=True, force=True)
    except NotFound:
        return
    except APIError as exc:
        if status_of(exc) != 409:
            raise
        with suppress(NotFound):
            client.wait(container, timeout=_REMOVAL_LIMIT_S, condition="removed")


def _host_config(client: APIClient, spec: SandboxSpec) -> dict[str, Any]:
    options: dict[str, Any] = {"auto_remove": True, "log_config": LogConfig(type="none")}
    if spec.network is Network.NONE:
        options["network_mode"] = "none"
    if spec.memory is not None:
        options["mem_limit"] = options["memswap_limit"] = spec.memory * _MIB
    if spec.cpu is not None:
        options["nano_cpus"] = round(spec.cpu * 1_000_000_000)
    if spec.gpu is not None:
        options["device_requests"] = gpu_requests(spec.gpu)
    config: dict[str, Any] = client.create_host_config(**options)
    return config
