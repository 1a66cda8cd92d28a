"""Signals and the run's own time limit, as two requests: finish what runs, or cut it."""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial


class Interrupts:
    """First Ctrl-C: soft. Second, SIGTERM, a closed terminal, or the run's limit: hard. Each callback comes once."""

    def __init__(self, on_soft: Callable[[str], None], on_hard: Callable[[str], None]) -> None:
        self._on_soft, self._on_hard = on_soft, on_hard
        self.soft = False
        self.hard = False
        self.by_signal = False

    def interrupt(self) -> None:
        """A Ctrl-C."""
        self.by_signal = True
        if self.soft:
            self.cut("second interrupt")
            return
        self.soft = True
        self._on_soft("interrupt")

    def terminate(self, name: str) -> None:
        """A SIGTERM or SIGHUP."""
        self.by_signal = True
        self.cut(name)

    def cut(self, reason: str) -> None:
        """Stop now."""
        self.soft = True
        if not self.hard:
            self.hard = True
            self._on_hard(reason)

    @contextmanager
    def installed(self, timeout_seconds: float | None) -> Iterator[None]:
        """Inside, the process's signals and the time limit come here. Only the main thread can take signals."""
        loop = asyncio.get_running_loop()
        handlers: dict[signal.Signals, Callable[[], None]] = {signal.SIGINT: self.interrupt}
        for ending in (signal.SIGTERM, signal.SIGHUP):
            handlers[ending] = partial(self.terminate, ending.name)
        if threading.current_thread() is not threading.main_thread():
            handlers = {}
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        reason = f"the run's limit timeout_seconds of {timeout_seconds:g} s reached" if timeout_seconds else ""
        timer = loop.call_later(timeout_seconds, self.cut, reason) if timeout_seconds else None
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()
            for number in handlers:
                loop.remove_signal_handler(number)
