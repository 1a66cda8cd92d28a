"""Which Modal token is meant, and where it comes from. Pure reading: the SDK is not imported, nothing is changed."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ....domain.errors import ConfigError
from ....domain.local_path import local_path

SETTING = "environments.modal"
_SETUP = "`modal setup`, or set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET"


@dataclass(frozen=True)
class Credentials:
    """A whole pair, from one place."""

    token_id: str = field(repr=False)
    token_secret: str = field(repr=False)
    origin: str
    """As in `MODAL_TOKEN_ID and MODAL_TOKEN_SECRET`, `profile 'work' of '/home/me/.modal.toml'`."""
    server_url: str | None = None
    """None is Modal's own."""
    environment: str | None = None
    """The Modal environment that goes with them; None is the workspace's default."""


def resolve_credentials(token_id: str | None, token_secret: str | None, environ: Mapping[str, str]) -> Credentials:
    """First found wins: the two parameters, MODAL_TOKEN_ID and MODAL_TOKEN_SECRET, the user's file.

    A pair is never put together from two places, and an empty value counts as none. The file is MODAL_CONFIG_PATH or
    ~/.modal.toml, its profile MODAL_PROFILE, the active one, or the only one.

    Raises:
        ConfigError: half a pair (which half is missing), no pair at all, a file that cannot be read, no such profile.
    """
    path = config_path(environ)
    profiles = read_profiles(path)
    server_url, environment = _text(environ.get("MODAL_SERVER_URL")), _text(environ.get("MODAL_ENVIRONMENT"))
    names = (f"{SETTING}.token_id", f"{SETTING}.token_secret")
    if (pair := _pair(token_id, token_secret, names)) is not None:
        return Credentials(*pair, f"{names[0]} and token_secret", server_url, environment)
    names = ("MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET")
    if (pair := _pair(environ.get(names[0]), environ.get(names[1]), names)) is not None:
        return Credentials(*pair, " and ".join(names), server_url, environment)
    return _from_file(path, profiles, environ, server_url, environment)


def config_path(environ: Mapping[str, str]) -> Path:
    """The user's file, as the SDK finds it."""
    named = environ.get("MODAL_CONFIG_PATH")
    return Path(named) if named else Path(environ.get("HOME") or local_path("~"), ".modal.toml")


def read_profiles(path: Path) -> dict[str, dict[str, Any]]:
    """The file's tables; {} where there is no file. `import modal` reads it too, and fails where this does.

    Raises:
        ConfigError: it is no TOML, or has values outside of tables.
    """
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as exc:
        raise ConfigError(f"Modal's file {str(path)!r} cannot be read: {exc}", hint="mend it, or remove it") from exc
    flat = [key for key, value in content.items() if not isinstance(value, dict)]
    if flat:
        message = f"Modal's file {str(path)!r} has {flat[0]!r} outside of a profile's table"
        raise ConfigError(message, hint="put it below a line like [default]")
    return content


def _from_file(
    path: Path,
    profiles: dict[str, dict[str, Any]],
    environ: Mapping[str, str],
    server_url: str | None,
    environment: str | None,
) -> Credentials:
    name = _profile_name(path, profiles, environ)
    if name is None:
        looked = f"{SETTING}.token_id, MODAL_TOKEN_ID and {str(path)!r} were looked at"
        raise ConfigError(f"no Modal credentials: {looked}", hint=_SETUP)
    profile = profiles[name]
    origin = f"profile {name!r} of {str(path)!r}"
    names = (f"token_id in {origin}", f"token_secret in {origin}")
    pair = _pair(_text(profile.get("token_id")), _text(profile.get("token_secret")), names)
    if pair is None:
        raise ConfigError(f"no Modal credentials: {origin} has no token", hint=_SETUP)
    return Credentials(
        *pair,
        origin,
        server_url or _text(profile.get("server_url")),
        environment or _text(profile.get("environment")),
    )


def _profile_name(path: Path, profiles: dict[str, dict[str, Any]], environ: Mapping[str, str]) -> str | None:
    known = ", ".join(sorted(profiles)) or "none"
    wanted = environ.get("MODAL_PROFILE")
    if wanted:
        if wanted not in profiles:
            message = f"MODAL_PROFILE is {wanted!r}, which {str(path)!r} does not have"
            raise ConfigError(message, hint=f"its profiles: {known}")
        return wanted
    active = [name for name, profile in profiles.items() if profile.get("active") is True]
    if len(active) > 1:
        message = f"several profiles of {str(path)!r} are active: {', '.join(active)}"
        raise ConfigError(message, hint="`modal profile activate NAME`, or set MODAL_PROFILE")
    if not active and len(profiles) > 1:
        message = f"no profile of {str(path)!r} is active: {known}"
        raise ConfigError(message, hint="`modal profile activate NAME`, or set MODAL_PROFILE")
    return next(iter(active or profiles), None)


def _pair(token_id: str | None, token_secret: str | None, names: tuple[str, str]) -> tuple[str, str] | None:
    found, missing = [_text(token_id), _text(token_secret)], []
    missing = [name for name, value in zip(names, found, strict=True) if not value]
    if len(missing) == 1:
        there = names[0] if missing[0] == names[1] else names[1]
        raise ConfigError(f"half a Modal token: {there} is set, {missing[0]} is missing", hint="set both, or neither")
    return (str(found[0]), str(found[1])) if not missing else None


def _text(value: object) -> str | None:
    return (value.strip() or None) if isinstance(value, str) else None
