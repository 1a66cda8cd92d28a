"""Commands at Modal that behave as a test says, in place of the SDK's objects."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any

LONG_S = 60.0


async def never() -> Any:
    await asyncio.sleep(LONG_S)


async def _nothing() -> None:
    return None


def answers(*told: Any) -> Callable[[], Awaitable[Any]]:
    """One answer a call, the last for ever; an exception is raised."""
    left = list(told)

    async def answer() -> Any:
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, Exception):
            raise found
        return found

    return answer


class Sandbox:
    """Starts the one command that it is given the behaviour of."""

    def __init__(
        self,
        *,
        stdout: tuple[bytes | float | Exception, ...] = (),
        stderr: tuple[bytes | float | Exception, ...] = (),
        wait: Callable[[], Awaitable[Any]] = never,
        poll: Callable[[], Awaitable[Any]] = _nothing,
        drain: Callable[[], Awaitable[Any]] = _nothing,
    ) -> None:
        self.opened: list[str] = []
        self.written: list[bytes | None] = []
        self.exec = SimpleNamespace(aio=self._exec)
        self._process = SimpleNamespace(
            stdout=_Stream("stdout", stdout, self.opened),
            stderr=_Stream("stderr", stderr, self.opened),
            wait=SimpleNamespace(aio=wait),
            poll=SimpleNamespace(aio=poll),
            stdin=SimpleNamespace(
                write=self.written.append,
                write_eof=lambda: self.written.append(None),
                drain=SimpleNamespace(aio=drain),
            ),
        )

    async def _exec(self, *_: str, **__: Any) -> Any:
        return self._process


class _Stream:
    def __init__(self, name: str, pieces: tuple[bytes | float | Exception, ...], opened: list[str]) -> None:
        self._name, self._pieces, self._opened = name, pieces, opened

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self._opened.append(self._name)
        for piece in self._pieces:
            if isinstance(piece, bytes):
                yield piece
            elif isinstance(piece, Exception):
                raise piece
            else:
                await asyncio.sleep(piece)


class Machine:
    """A sandbox whose commands behave, by their words, as `commands` says; an exception refuses them."""

    object_id = "sb-1"

    def __init__(self, commands: Callable[[tuple[str, ...]], Sandbox | Exception], *polls: int | None) -> None:
        self.executed: list[tuple[str, ...]] = []
        self.exec = SimpleNamespace(aio=self._exec)
        self.poll = SimpleNamespace(aio=answers(*polls or (None,)))
        self._commands = commands

    async def _exec(self, *argv: str, **options: Any) -> Any:
        self.executed.append(argv)
        command = self._commands(argv)
        if isinstance(command, Exception):
            raise command
        return await command.exec.aio(*argv, **options)
