"""The section `environments.modal`: names as on Modal's own pages, ranges and combinations checked when it is read."""

import ipaddress
import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr, field_validator, model_validator
from pydantic.config import JsonDict

from ....domain.sandbox import AbsolutePath, ImageBuild, ImageName, Network, Variables
from ....domain.value import Parameters

LONGEST_LIFETIME_S = 24 * 3600
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_NAMED_IMAGE = re.compile(r"([A-Za-z0-9_.-]{1,64}/)?(?!im-)[A-Za-z0-9_.-]{1,64}(:[A-Za-z0-9_.-]{1,64})?")
_GPU = re.compile(r"[A-Za-z][A-Za-z0-9-]*!?(:[1-8])?")
_DOMAIN = re.compile(r"(\*\.)?([A-Za-z0-9_-]+\.)+[A-Za-z0-9-]+")
_BUILDER_VERSION = re.compile(r"\d{4}\.\d{2}(\.\d+)?|PREVIEW")
_KEEPS_IDENTITY: JsonDict = {"identity": False}
_REGISTRY_KINDS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "registry_username and registry_password": (("registry_username", "registry_password"),),
    "AWS": (
        ("registry_aws_access_key_id", "registry_aws_secret_access_key", "registry_aws_region"),
        ("registry_aws_role_arn", "registry_aws_region"),
    ),
    "GCP": (("registry_service_account_json",),),
    "registry_secret": (("registry_secret",),),
}


def checked_gpu(gpu: str) -> str:
    """One type and an optional count. Raises ValueError."""
    if "," in gpu:
        raise ValueError(f"{gpu!r} names several GPU types; a sandbox takes one, as in 'A100:2'")
    if not _GPU.fullmatch(gpu):
        raise ValueError(
            f"{gpu!r} is no GPU of Modal's; give a type and an optional count of at most 8, as in 'A100:2'"
        )
    return gpu


def _object_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name at Modal: at most 64 letters, digits, `.`, `-` and `_`")
    return name


ObjectName = Annotated[str, AfterValidator(_object_name)]


class ModalParameters(Parameters):
    """Sandboxes in Modal's cloud. Images are linux/amd64."""

    token_id: SecretStr | None = Field(default=None, json_schema_extra=_KEEPS_IDENTITY)
    """Token, with token_secret, in a private file only; None is MODAL_TOKEN_ID, then ~/.modal.toml."""
    token_secret: SecretStr | None = Field(default=None, json_schema_extra=_KEEPS_IDENTITY)
    """The other half."""
    app_name: ObjectName = Field(default="agentcompass", json_schema_extra=_KEEPS_IDENTITY)
    """The Modal App that holds the sandboxes; made if missing."""
    environment_name: ObjectName | None = Field(default=None, json_schema_extra=_KEEPS_IDENTITY)
    """The Modal Environment of that App; None is MODAL_ENVIRONMENT, then the workspace's default."""
    image: ImageName | None = None
    """Registry image to use in place of the one that the recipe chooses."""
    named_image: str | None = None
    """Image published at Modal, as in `name`, `name:tag` or `environment/name:tag`."""
    build: ImageBuild | None = None
    """Image to be built (`{"context": FOLDER, "dockerfile": NAME, "timeout_s": N}`) where none is named."""
    workspace_root: AbsolutePath | None = None
    """Absolute working directory of commands, made if missing; None is the image's own."""
    env_variables: Variables = Field(default_factory=dict)
    """Set for every command. No secrets: those are named in `secrets`."""
    user: str | None = None
    """User of commands that name none; None is the image's own."""
    cpu: float | None = Field(default=None, gt=0)
    """Cores to reserve; None is Modal's default. A sandbox may use more where there is more."""
    memory: int | None = Field(default=None, gt=0)
    """MiB to reserve; None is Modal's default. A sandbox may use more where there is more."""
    gpu: str | None = None
    """Type and count, as in `T4` or `A100:2`."""
    region: str | None = None
    """As in `us-east`; several with commas, any of which will do."""
    timeout: float | None = Field(default=None, gt=0, le=LONGEST_LIFETIME_S)
    """Lifetime of a sandbox in seconds, at most 24 h; None is what the task's budgets need."""
    idle_timeout: float | None = Field(default=None, gt=0, le=LONGEST_LIFETIME_S)
    """Seconds without a running command after which Modal ends a sandbox; the model's answers are such time too."""
    network: Network = Network.PUBLIC
    """`public`, or `none` for no network at all."""
    block_network: bool | None = None
    """true blocks all network, false opens it whatever the task says; None leaves it to `network` and the task."""
    outbound_cidr_allowlist: tuple[str, ...] | None = None
    """The only addresses that a sandbox may reach, as in `10.0.0.0/8`; one of a task without network reaches none."""
    outbound_domain_allowlist: tuple[str, ...] | None = None
    """The only domains that a sandbox may reach, as in `example.org` or `*.example.com`."""
    secrets: tuple[ObjectName, ...] = ()
    """Names of Modal Secrets, set as variables of every command. The agent can read them."""
    volumes: dict[str, ObjectName] = Field(default_factory=dict)
    """Absolute mount point -> name of a Modal Volume."""
    registry_username: str | None = Field(default=None, json_schema_extra=_KEEPS_IDENTITY)
    """For images of a private registry, with registry_password."""
    registry_password: SecretStr | None = Field(default=None, json_schema_extra=_KEEPS_IDENTITY)
    """Password or access token."""
    registry_aws_access_key_id: SecretStr | None = Field(default=None, json_schema_extra=_KEEPS_IDENTITY)
    """For ECR, with registry_aws_secret_access_key and registry_aws_region."""
    registry_aws_secret_access_key: SecretStr | None = Field(default=None, json_schema_extra=_KEEPS_IDENTITY)
    """For ECR."""
    registry_aws_session_token: SecretStr | None = Field(default=None, json_schema_extra=_KEEPS_IDENTITY)
    """For ECR, with temporary keys."""
    registry_aws_role_arn: str | None = Field(default=None, json_schema_extra=_KEEPS_IDENTITY)
    """For ECR by OIDC, with registry_aws_region, in place of keys."""
    registry_aws_region: str | None = Field(default=None, json_schema_extra=_KEEPS_IDENTITY)
    """For ECR."""
    registry_service_account_json: SecretStr | None = Field(default=None, json_schema_extra=_KEEPS_IDENTITY)
    """For GCP's Artifact Registry: the key file's content."""
    registry_secret: ObjectName | None = Field(default=None, json_schema_extra=_KEEPS_IDENTITY)
    """Name of a Modal Secret with such credentials, in place of giving them here."""
    image_builder_version: str | None = None
    """As in `2025.06`; None is MODAL_IMAGE_BUILDER_VERSION, then the workspace's."""
    create_rate: float = Field(default=4, gt=0, json_schema_extra=_KEEPS_IDENTITY)
    """Sandboxes created in a second, at most; a workspace usually allows 5."""
    max_starting: int = Field(default=64, ge=1, json_schema_extra=_KEEPS_IDENTITY)
    """Sandboxes that are starting at the same time, at most."""
    start_timeout_s: float = Field(default=1200, gt=0, json_schema_extra=_KEEPS_IDENTITY)
    """Limit of creating one sandbox and having its first answer, without builds and the wait for its turn."""
    start_tries: int = Field(default=10, ge=1, json_schema_extra=_KEEPS_IDENTITY)
    """Tries of a creation or an image that failed for a passing reason."""

    @field_validator("gpu")
    @classmethod
    def _one_gpu(cls, value: str | None) -> str | None:
        return None if value is None else checked_gpu(value)

    @field_validator("named_image")
    @classmethod
    def _image_name(cls, value: str | None) -> str | None:
        if value is not None and not _NAMED_IMAGE.fullmatch(value):
            raise ValueError(f"{value!r} is no named image: write name, name:tag or environment/name:tag")
        return value

    @field_validator("image_builder_version")
    @classmethod
    def _version(cls, value: str | None) -> str | None:
        if value is not None and not _BUILDER_VERSION.fullmatch(value):
            raise ValueError(f"{value!r} is no image builder version, as in '2025.06'")
        return value

    @field_validator("region")
    @classmethod
    def _regions(cls, value: str | None) -> str | None:
        if value is not None and not all(part.strip() for part in value.split(",")):
            raise ValueError(f"{value!r} has an empty region")
        return value

    @field_validator("outbound_cidr_allowlist")
    @classmethod
    def _cidrs(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for text in value or ():
            try:
                ipaddress.ip_network(text)
            except ValueError as exc:
                raise ValueError(f"{text!r} is no range of addresses: {exc}") from exc
        return value

    @field_validator("outbound_domain_allowlist")
    @classmethod
    def _domains(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for text in value or ():
            if not _DOMAIN.fullmatch(text):
                raise ValueError(f"{text!r} is no domain, as in 'example.org' or '*.example.com'")
        return value

    @field_validator("volumes")
    @classmethod
    def _mounts(cls, value: dict[str, str]) -> dict[str, str]:
        for path in value:
            if not path.startswith("/") or path == "/":
                raise ValueError(f"{path!r} is no absolute path below /")
        if len(set(value.values())) < len(value):
            raise ValueError("a volume can be mounted at one path only")
        return value

    @model_validator(mode="after")
    def _combinations(self) -> "ModalParameters":
        self._one_image()
        self._whole_token()
        self._one_network()
        self._one_registry()
        return self

    def _one_image(self) -> None:
        given = [name for name in ("image", "named_image", "build") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} exclude each other")

    def _whole_token(self) -> None:
        halves = {name: revealed(getattr(self, name)) for name in ("token_id", "token_secret")}
        missing = [name for name, value in halves.items() if not value]
        if len(missing) == 1:
            raise ValueError(f"half a Modal token: {missing[0]} is missing")

    def _one_network(self) -> None:
        lists = [name for name in ("outbound_cidr_allowlist", "outbound_domain_allowlist") if getattr(self, name)]
        if lists and self.block_network is not None:
            raise ValueError(f"block_network and {lists[0]} exclude each other")
        if lists and self.network is Network.NONE:
            raise ValueError(f"network: none and {lists[0]} exclude each other")
        if self.block_network is False and self.network is Network.NONE:
            raise ValueError("block_network: false and network: none exclude each other")

    def _one_registry(self) -> None:
        given = {name for name in type(self).model_fields if name.startswith("registry_") and getattr(self, name)}
        given -= {"registry_aws_session_token"}
        if not given:
            return
        kinds = [kind for kind, ways in _REGISTRY_KINDS.items() if given & {name for way in ways for name in way}]
        if len(kinds) > 1:
            raise ValueError(f"credentials of one registry only: {' / '.join(kinds)} exclude each other")
        ways = _REGISTRY_KINDS[kinds[0]]
        if not any(given == set(way) for way in ways):
            raise ValueError(
                f"credentials of a registry are {' or '.join(' + '.join(way) for way in ways)}, all of them"
            )


def revealed(secret: SecretStr | None) -> str:
    """The secret's text; empty where there is none."""
    return secret.get_secret_value().strip() if secret is not None else ""


def registry_variables(parameters: ModalParameters) -> dict[str, str | None]:
    """The registry's credentials under the names that the SDK tells their kind by; {} where none are given."""
    prefix = {"registry_username": "REGISTRY_USERNAME", "registry_password": "REGISTRY_PASSWORD"}
    found: dict[str, str | None] = {}
    for name in type(parameters).model_fields:
        value = getattr(parameters, name)
        if not name.startswith("registry_") or name == "registry_secret" or not value:
            continue
        key = prefix.get(name, name.removeprefix("registry_").upper())
        found[key] = value.get_secret_value() if isinstance(value, SecretStr) else value
    return found
