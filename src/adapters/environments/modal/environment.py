"""Sandboxes in Modal's cloud.

The SDK is imported at the first call, not with this module: `import modal` itself reads the user's file, and fails in
its own words where that is malformed. By then the credentials have been read, and a malformed file been named.
"""

import os
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, ClassVar

from ....domain.errors import ConfigError
from ....domain.resolving import refuse_unsupported
from ....domain.sandbox import Capabilities, Check, Network, SandboxOwner, SandboxSpec, SweepSelector, SweptSandbox
from ....domain.value import Parameters as AdapterParameters
from ...support.cleanup import stop_shielded
from .credentials import Credentials, resolve_credentials
from .parameters import LONGEST_LIFETIME_S, ModalParameters, checked_gpu, revealed

if TYPE_CHECKING:
    from .account import ModalAccount
    from .sandbox import ModalSandbox

_PLATFORM = "linux/amd64"


class ModalEnvironment:
    """Sandboxes in Modal's cloud.

    Each is one of the App `app_name`, and ends by itself at the end of its lifetime.
    """

    name: ClassVar[str] = "modal"
    capabilities: ClassVar[Capabilities] = Capabilities(
        images=True,
        builds=True,
        named_images=True,
        users=True,
        networks=frozenset({Network.PUBLIC, Network.NONE}),
        resources=frozenset({"cpu", "memory", "gpu", "region", "idle_timeout"}),
    )
    Parameters: ClassVar[type[AdapterParameters]] = ModalParameters

    def __init__(self, parameters: ModalParameters, environ: Mapping[str, str] | None = None) -> None:
        self._parameters = parameters
        self._environ = environ
        self._account: ModalAccount | None = None

    @asynccontextmanager
    async def open(self, spec: SandboxSpec, owner: SandboxOwner) -> AsyncIterator["ModalSandbox"]:
        """One call to create and one command as its first answer; the image costs its calls once a process."""
        refuse_unsupported(self.name, spec, self.capabilities)
        refuse_impossible(spec)
        account = self._connected()
        async with AsyncExitStack() as stack:
            launch = account.launch(spec, owner)
            stack.push_async_callback(stop_shielded, launch.stop, limit_s=account.stop_limit_s, what=launch.name)
            yield await account.started(launch, spec)

    def secrets(self) -> Collection[str]:
        """The token, wherever it was found."""
        credentials = self._credentials()
        return (credentials.token_id, credentials.token_secret)

    async def check(self) -> list[Check]:
        """The credentials and their origin, the workspace, the Modal environment and the App."""
        try:
            credentials = self._credentials()
        except ConfigError as exc:
            return [Check(name="credentials", ok=False, detail=exc.message, hint=exc.hint or "`modal setup`")]
        return [
            Check(name="credentials", ok=True, detail=f"from {credentials.origin}"),
            *await self._connected().checks(),
            Check(name="platform", ok=True, detail=f"images are {_PLATFORM}"),
        ]

    async def sweep(self, selector: SweepSelector) -> list[SweptSandbox]:
        """Terminate sandboxes with this tool's tags that `selector` selects, in the App `app_name`."""
        return await self._connected().sweep(self.name, selector)

    async def close(self) -> None:
        """Let the connection go."""
        account, self._account = self._account, None
        if account is not None:
            await account.close()

    def _credentials(self) -> Credentials:
        environ = os.environ if self._environ is None else self._environ
        token = revealed(self._parameters.token_id), revealed(self._parameters.token_secret)
        return resolve_credentials(*token, environ)

    def _connected(self) -> "ModalAccount":
        if self._account is None:
            credentials = self._credentials()
            from .account import ModalAccount

            self._account = ModalAccount(credentials, self._parameters)
        return self._account


def refuse_impossible(spec: SandboxSpec) -> None:
    """Raise ConfigError for what Modal has not got: other platforms, longer lifetimes, GPUs without a type."""
    if spec.platform not in (None, _PLATFORM):
        raise ConfigError(f"Modal runs {_PLATFORM} images only: platform={spec.platform!r}", hint="leave it out")
    if spec.timeout > LONGEST_LIFETIME_S:
        message = f"a Modal sandbox lives {LONGEST_LIFETIME_S} s at most: timeout={spec.timeout:g}"
        raise ConfigError(message, hint="lower the task's limits, or set environments.modal.timeout")
    if spec.gpu is not None:
        try:
            checked_gpu(spec.gpu)
        except ValueError as exc:
            raise ConfigError(f"gpu: {exc}", hint="set environments.modal.gpu") from exc
