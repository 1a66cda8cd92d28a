"""Logging: one pipeline to RUN_DIR/run.log (JSON lines) and to stderr (human lines), with every secret replaced."""

import json
import logging
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, WrappedLogger

from ..domain.errors import ConfigError
from ..domain.one_line import cut
from ..domain.redaction import Redactor

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
MAX_HUMAN_CHARS = 1000
LEFT_TO_DISPLAYS = frozenset({"attempt.failed"})
"""Events that every progress display shows itself, and bounds in number; run.log has them."""
_HEAD = ("time", "level", "event", "exception")

Redact = Callable[[Any], Any]
"""Text, mapping or list in, the same with every known secret replaced out."""


class Logs:
    """Where log events go. Any call is safe from any thread, and none raises for what it logs."""

    def __init__(self, *, level: str, redact: Redact, stream: TextIO | None = None) -> None:
        if level not in LEVELS:
            raise ConfigError(f"no log level {level!r}", hint=f"use one of {', '.join(LEVELS)}")
        self._level = LEVELS[level]
        self._redact = redact
        self._stream = stream
        self._show: Callable[[str], None] = self._to_stream
        self._file: TextIO | None = None
        self._lock = threading.RLock()

    def show_with(self, print_line: Callable[[str], None]) -> None:
        """Hand human lines to `print_line` (a progress display's, so that its table stays whole) and not to stderr."""
        self._show = print_line

    def attach_run_log(self, path: Path) -> None:
        """Append every event from debug upward to `path` from now on."""
        with self._lock:
            self.detach_run_log()
            try:
                self._file = path.open("a", encoding="utf-8", errors="backslashreplace", buffering=1)
            except OSError as exc:
                self._report_lost(exc)

    def detach_run_log(self) -> None:
        """Close the run's log."""
        with self._lock:
            file, self._file = self._file, None
            if file is not None:
                try:
                    file.close()
                except OSError as exc:
                    self._report_lost(exc)

    def write(self, event: Mapping[str, Any]) -> None:
        """Send one finished event to the run's log, and to stderr where its level says so."""
        clean = self.masked(event)
        self._to_file(clean)
        is_shown = LEVELS.get(clean.get("level", ""), logging.ERROR) >= self._level
        if is_shown and clean.get("event") not in LEFT_TO_DISPLAYS:
            self._show(human_line(clean))

    def masked(self, event: Mapping[str, Any]) -> Mapping[str, Any]:
        """`event` in terms of JSON, without the secrets that are known here."""
        clean: Mapping[str, Any] = self._redact(_plain(event))
        return clean

    def _to_file(self, event: Mapping[str, Any]) -> None:
        with self._lock:
            if self._file is None:
                return
            try:
                self._file.write(f"{json.dumps(event, ensure_ascii=False)}\n")
            except OSError as exc:
                file, self._file = self._file, None
                with suppress(OSError):
                    file.close()
                self._report_lost(exc)

    def _report_lost(self, error: OSError) -> None:
        self._show(f"warning: run.log: {error}; the run goes on without it")

    def _to_stream(self, text: str) -> None:
        stream = self._stream or sys.stderr
        if stream is None:  # the process was started with it closed
            return
        try:
            stream.write(f"{text}\n")
            stream.flush()
        except (OSError, ValueError):
            return  # stderr is closed or its reader gone: there is nowhere left to say so


_current: ContextVar[Logs | None] = ContextVar("logs", default=None)
_live: list[Logs] = []
_pipeline = ExitStack()
_lock = threading.Lock()
_secrets: set[str] = set()


def mask_from_now(secrets: Iterable[str]) -> None:
    """These are secrets of this process: `redacted_now` shows none of them."""
    found = set(secrets)
    with _lock:
        _secrets.update(found)


def redacted_now(text: str) -> str:
    """`text` without any secret that this process has known: for what ends the program, outside of all logging."""
    with _lock:
        return Redactor(_secrets).text(text)


@contextmanager
def logging_to(logs: Logs) -> Iterator[Logs]:
    """In the block, structlog's events, the libraries' warnings and Python's go to `logs`; then all is as before.

    Of several blocks at once each has the events of its own context: its tasks, and threads that took it over. What
    comes from elsewhere goes to all. No event shows a secret of any of them.
    """
    with _lock:
        if not _live:
            _pipeline.enter_context(_taken_over())
        _live.append(logs)
    token = _current.set(logs)
    try:
        yield logs
    finally:
        _current.reset(token)
        with _lock:
            _live.remove(logs)
            if not _live:
                _pipeline.close()
        logs.detach_run_log()


@contextmanager
def _taken_over() -> Iterator[None]:
    handler = _LibraryHandler()
    root = logging.getLogger()
    before = structlog.get_config() if structlog.is_configured() else None
    root.addHandler(handler)
    logging.captureWarnings(capture=True)
    structlog.configure(
        processors=_PROCESSORS,
        wrapper_class=_LOGGER_CLASS,
        cache_logger_on_first_use=False,
    )
    try:
        yield
    finally:
        structlog.reset_defaults()
        if before is not None:
            structlog.configure(**before)
        logging.captureWarnings(capture=False)
        root.removeHandler(handler)


def _send(_logger: WrappedLogger, _method: str, event: MutableMapping[str, Any]) -> EventDict:
    current, live = _current.get(), tuple(_live)
    for logs in (current,) if current is not None else live:
        clean: Mapping[str, Any] = event
        for other in live:
            if other is not logs:
                clean = other.masked(clean)
        logs.write(clean)
    raise structlog.DropEvent


_LOGGER_CLASS = structlog.make_filtering_bound_logger(logging.DEBUG)
_PROCESSORS = (
    structlog.contextvars.merge_contextvars,
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
    structlog.processors.format_exc_info,
    _send,
)


class _LibraryHandler(logging.Handler):
    """Warnings and errors of docker, openai, httpx, modal, asyncio, ... as events of the same pipeline."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._log = structlog.wrap_logger(None, processors=_PROCESSORS, wrapper_class=_LOGGER_CLASS)

    def emit(self, record: logging.LogRecord) -> None:
        log = self._log.error if record.levelno >= logging.ERROR else self._log.warning
        log(
            "library.logged",
            library=record.name,
            message=_message(record),
            **({"exc_info": record.exc_info} if record.exc_info else {}),
        )


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError, KeyError):  # arguments that do not fit the library's own format
        return str(record.msg)


def human_line(event: Mapping[str, Any]) -> str:
    """`warning: sandbox.leaked sandbox=ac-1 error='no answer'`, in one line."""
    fields = [f"{key}={_shown(value)}" for key, value in event.items() if key not in _HEAD]
    cause = str(event.get("exception", "")).strip().rpartition("\n")[2]
    line = " ".join([f"{event.get('level', 'error')}: {event.get('event', '')}", *fields, *([cause] if cause else [])])
    return cut(line, MAX_HUMAN_CHARS)


def _shown(value: Any) -> str:
    text = str(value)
    return text if text and text.isprintable() and " " not in text else repr(text)


def _plain(value: Any) -> Any:
    """`value` in terms of strict JSON, so that redaction sees every text that will be written."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    return _text_of(value)


def _text_of(value: object) -> str:
    try:
        return str(value)
    except Exception as exc:  # noqa: BLE001 - an object of a plug-in; a log call must not fail for it
        return f"<{type(value).__name__}: {type(exc).__name__}>"
