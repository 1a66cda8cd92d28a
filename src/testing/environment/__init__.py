"""The contract suite of Environment and Sandbox: three lines of test hold an adapter to every promise of the port.

    class TestMine(EnvironmentContract):
        @pytest.fixture
        def environment(self) -> Environment:
            return MyEnvironment(MyEnvironment.Parameters())

Everything runs in an image with nothing but a POSIX shell and the usual file commands.
"""

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in ("commands", "streams", "files", "lifetime")))

# The modules of tests come after the line that has pytest explain their asserts: hence E402.
from .commands import CommandContract  # noqa: E402
from .files import FileCommandContract, FileContract  # noqa: E402
from .lifetime import LifetimeContract  # noqa: E402
from .setting import ContractSetting, an_owner, exists, sh  # noqa: E402
from .streams import StreamContract  # noqa: E402

__all__ = [
    "CommandContract",
    "ContractSetting",
    "EnvironmentContract",
    "FileCommandContract",
    "FileContract",
    "LifetimeContract",
    "StreamContract",
    "an_owner",
    "exists",
    "sh",
]


class EnvironmentContract(CommandContract, StreamContract, FileContract, FileCommandContract, LifetimeContract):
    """All promises. Subclass it, give the fixture `environment`, and override what ContractSetting lets you set."""
