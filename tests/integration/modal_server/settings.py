"""What the server can be told, at its start and while it runs."""

from dataclasses import asdict, dataclass, field, fields
from typing import Any


@dataclass
class Settings:
    """Every knob; the admin port changes any of them, a reset restores those of the command line."""

    tokens: dict[str, str] = field(default_factory=lambda: {"ak-test": "as-test"})
    """Token id -> token secret."""
    workspaces: dict[str, str] = field(default_factory=dict)
    """Token id -> workspace; a token not named here belongs to `test-workspace`."""
    environments: list[str] = field(default_factory=lambda: ["main"])
    """The first is the default one."""
    image_builder_version: str = "2025.06"
    named_images: dict[str, str] = field(default_factory=dict)
    """`name:tag` -> local image, as if published before."""
    private_images: dict[str, dict[str, str]] = field(default_factory=dict)
    """Registry prefix -> the keys and values that the registry secret must have."""
    named_secrets: dict[str, dict[str, str]] = field(default_factory=dict)
    """Secrets made in the workspace before: name -> its keys and values."""
    builds: list[dict[str, Any]] = field(default_factory=list)
    """Rules for builds: match (text in the dockerfile), status (failure, terminated, timeout), log, times, delay_s."""
    jwt_life_s: float = 3600
    create_rate: float = 0
    """Sandboxes accepted in any one second; 0 is no limit."""
    rate_retry_after_s: float | None = None
    """None: the refusal carries no RPCRetryPolicy, so the SDK does not retry."""
    capacity: int = 0
    """Sandboxes scheduled at once; more wait unscheduled. 0 is no limit."""
    create_delay_s: float = 0
    """Before a create call is answered."""
    start_delay_s: float = 0
    """Between the answer and the container's start."""
    terminate_delay_s: float = 0
    exec_timeout_code: int = -1
    """How a command killed at its limit looks: -1 (the SDK's own clock) or 137 (the server was first)."""
    exec_timeout_kills: str = "tree"
    """`tree`: everything the command started; `leader`: the command alone."""
    read_limit_bytes: int = 5 * 1000**3
    list_page: int = 10

    def update(self, changes: dict[str, Any]) -> None:
        """Raises KeyError for a name that is no setting."""
        known = {item.name for item in fields(self)}
        for name, value in changes.items():
            if name not in known:
                raise KeyError(name)
            setattr(self, name, value)

    def copy(self) -> dict[str, Any]:
        return asdict(self)
