"""How often Python looks for garbage."""

import gc

_USUAL = (700, 10, 10)
_RARE = (50_000, 10, 10)


def collect_rarely() -> None:
    """For the start: imports and settings make many objects and no garbage; looking for it took a tenth of the time."""
    gc.set_threshold(*_RARE)


def collect_as_usual() -> None:
    """From here on, and without looking at what the start has made."""
    gc.freeze()
    gc.set_threshold(*_USUAL)
