"""An adapter whose SDK is not installed."""

import an_sdk_that_nobody_has  # noqa: F401


class Adapter:
    """Never reached."""
