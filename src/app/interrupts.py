"""Signals and the run's own time limit, as two requests: finish what runs, or cut it."""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from types import FrameType
from typing import Any


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
        """Inside, the process's signals and the time limit come here; afterwards signals go where they went before.

        A hang-up or termination that the process ignores (as under `nohup`) stays ignored; SIGINT does not: a shell has
        it ignored in what a script runs in the background, and it is the script's one way to ask for a soft end.
        Only the main thread can take signals.
        """
        loop = asyncio.get_running_loop()
        reason = f"the run's limit timeout_seconds of {timeout_seconds:g} s reached" if timeout_seconds else ""
        timer = loop.call_later(timeout_seconds, self.cut, reason) if timeout_seconds else None
        context = copy_context()  # a signal comes in that of whatever runs just then, perhaps another run

        def hear(number: signal.Signals) -> None:
            loop.call_soon_threadsafe(self._signalled, number, context=context)

        try:
            with _listening(hear):
                yield
        finally:
            if timer is not None:
                timer.cancel()

    def _signalled(self, number: signal.Signals) -> None:
        if number is signal.SIGINT:
            self.interrupt()
        else:
            self.terminate(number.name)


_listeners: list[Callable[[signal.Signals], None]] = []
_before: dict[signal.Signals, Any] = {}


@contextmanager
def _listening(listener: Callable[[signal.Signals], None]) -> Iterator[None]:
    """A signal is for every run of the process: the first takes it over, the last to end gives it back.

    Not by `loop.add_signal_handler`, which has one handler a signal and forgets the one before.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if not _listeners:
        _take_over()
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
        if not _listeners:
            _give_back()


def _take_over() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        handler = signal.getsignal(number)
        is_deaf = handler is signal.SIG_IGN and number is not signal.SIGINT
        if is_deaf or handler is None:  # None is not Python's, and could not be put back
            continue
        _before[number] = handler
        signal.signal(number, _received)
        signal.siginterrupt(number, False)


def _give_back() -> None:
    while _before:
        signal.signal(*_before.popitem())


def _received(number: int, _frame: FrameType | None) -> None:
    for listener in tuple(_listeners):
        listener(signal.Signals(number))
