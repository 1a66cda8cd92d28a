"""Which Docker engine is meant: DOCKER_HOST, the user's contexts, or the usual socket, as `docker` itself decides."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from docker.constants import DEFAULT_UNIX_SOCKET
from docker.errors import DockerException
from docker.tls import TLSConfig
from docker.utils import kwargs_from_env

from ....domain.errors import ConfigError
from ....domain.local_path import local_path
from .errors import explanation

_DEFAULT = "default"
_TLS_HINT = "see DOCKER_CERT_PATH: ca.pem, cert.pem and key.pem are to be there; or unset DOCKER_TLS_VERIFY"


@dataclass(frozen=True)
class Endpoint:
    """Where the engine listens, and what said so."""

    url: str
    origin: str
    """As in `DOCKER_HOST`, `context 'colima' (DOCKER_CONTEXT)`, `the default socket`."""
    tls: TLSConfig | bool = False

    @property
    def socket(self) -> Path | None:
        """The file of a local socket."""
        scheme, _, path = self.url.partition("://")
        return Path("/" + path.lstrip("/")) if scheme in ("unix", "http+unix") else None


def resolve_endpoint(host: str | None, context: str | None, environ: Mapping[str, str]) -> Endpoint:
    """First found wins: parameter `host`, parameter `context`, DOCKER_HOST, DOCKER_CONTEXT, the current context.

    Raises:
        ConfigError: a context that does not exist or cannot be read, variables or key files that docker refuses,
            or an engine over ssh where paramiko is missing.
    """
    found = _named(host, context, environ)
    if found.url.startswith("ssh://") and find_spec("paramiko") is None:
        message = f"the engine at {found.url!r} ({found.origin}) is used over ssh, for which paramiko is missing"
        raise ConfigError(message, hint="pip install 'docker[ssh]'")
    return found


def _named(host: str | None, context: str | None, environ: Mapping[str, str]) -> Endpoint:
    if host:
        return _from_environment({**environ, "DOCKER_HOST": host}, "parameter host")
    if context:
        return _from_context(context, "parameter context", environ)
    if environ.get("DOCKER_HOST"):
        return _from_environment(environ, "DOCKER_HOST")
    if environ.get("DOCKER_CONTEXT"):
        return _from_context(environ["DOCKER_CONTEXT"], "DOCKER_CONTEXT", environ)
    config = _config_folder(environ) / "config.json"
    return _from_context(str(_json(config).get("currentContext") or _DEFAULT), str(config), environ)


def _from_environment(environ: Mapping[str, str], origin: str) -> Endpoint:
    try:
        found: Mapping[str, Any] = kwargs_from_env(environment=dict(environ))
    except DockerException as exc:
        raise ConfigError(f"docker cannot be used as {origin} says: {explanation(exc)}", hint=_TLS_HINT) from exc
    return Endpoint(str(found["base_url"]), origin, found.get("tls") or False)


def _from_context(name: str, origin: str, environ: Mapping[str, str]) -> Endpoint:
    if name == _DEFAULT:
        return Endpoint(DEFAULT_UNIX_SOCKET.removeprefix("http+"), "the default socket")
    contexts = _config_folder(environ) / "contexts"
    key = hashlib.sha256(name.encode()).hexdigest()
    endpoint = _json(contexts / "meta" / key / "meta.json").get("Endpoints", {}).get("docker", {})
    if not endpoint.get("Host"):
        known = ", ".join(sorted(_context_names(contexts))) or "none but default"
        hint = f"known contexts: {known}; see `docker context ls`"
        raise ConfigError(f"docker context {name!r} ({origin}) does not exist", hint=hint)
    folder = contexts / "tls" / key / "docker"
    try:
        tls = _context_tls(folder, bool(endpoint.get("SkipTLSVerify")))
    except (DockerException, OSError) as exc:
        message = f"docker context {name!r} ({origin}) cannot be used: {explanation(exc)}"
        raise ConfigError(message, hint=f"see the key files in {str(folder)!r}") from exc
    return Endpoint(str(endpoint["Host"]), f"context {name!r} ({origin})", tls)


def _context_tls(folder: Path, skip_verify: bool) -> TLSConfig | bool:
    authority, certificate, key = (folder / f"{name}.pem" for name in ("ca", "cert", "key"))
    if not authority.is_file() and not certificate.is_file():
        return False
    return TLSConfig(
        client_cert=(str(certificate), str(key)) if certificate.is_file() else None,
        ca_cert=str(authority) if authority.is_file() else None,
        verify=not skip_verify,
    )


def _context_names(contexts: Path) -> list[str]:
    return [str(_json(meta).get("Name")) for meta in contexts.glob("meta/*/meta.json")]


def _config_folder(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("DOCKER_CONFIG") or Path(environ.get("HOME") or local_path("~"), ".docker"))


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as exc:
        raise ConfigError(f"docker's file {str(path)!r} cannot be read: {exc}") from exc
    return content if isinstance(content, dict) else {}
