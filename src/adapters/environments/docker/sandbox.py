"""A running container as a sandbox."""

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from docker import APIClient
from docker.errors import NotFound

from ....domain.errors import AgentCompassError, SandboxFailed, SandboxLost, SandboxStartFailed
from ....domain.sandbox import Command, ExecResult, SandboxSpec
from ...support.cleanup import cleaned_up, exception_seen
from ...support.shell_supervision import Mark, kill_all_argv, supervised_argv
from ...support.supervised_commands import (
    AFTER_KILL_S,
    ROOT,
    Company,
    ended_within,
    invocation_of,
    kill_until_ended,
    killed_at_limit,
    odd_variables,
    quietly,
    refuse_missing_end,
    result_of,
    transferring,
)
from .container import DockerContainer
from .engine import CutableStream, DockerEngine
from .errors import FAILURES, explanation, said_error, use_error
from .exec import DockerExec
from .files import get_bytes, get_path, put_files, put_path
from .images import DockerImage

T = TypeVar("T")

_HELPER_LIMIT_S = 30
_CUT_LIMIT_S = 10
_ASK_LIMIT_S = 10
_HELPER_OUTPUT_BYTES = 4096
_FAILURES = (*FAILURES, OSError, SandboxFailed)
_GONE = ("no such container", "is not running", "no such exec", "cannot exec", "container not running", "has stopped")


class DockerSandbox:
    """One container, until `DockerEnvironment.open` removes it."""

    def __init__(
        self, engine: DockerEngine, container: DockerContainer, container_id: str, image: DockerImage, spec: SandboxSpec
    ) -> None:
        self._engine, self._container, self._id, self._image, self._spec = engine, container, container_id, image, spec
        self._workspace = spec.workspace_root or PurePosixPath(image.working_dir)
        self._user = spec.user or image.user
        variables = dict(pair.split("=", 1) for pair in image.env if "=" in pair) | spec.env_variables
        self._odd_variables = odd_variables(variables)
        self._settled = not (spec.directories or spec.workspace_root)
        self._gone: str | None = None
        self._company = Company()

    @property
    def id(self) -> str:
        """The container's id."""
        return self._id

    @property
    def image(self) -> str | None:
        """As the user named it, or the tag of what was built."""
        return self._image.name

    @property
    def image_digest(self) -> str | None:
        """Of the registry's manifest where it came from one, else the image's id."""
        return self._image.digest

    async def exec(self, command: Command) -> ExecResult:
        """Two calls to the engine: create and start; a third, before them, where there is stdin or a long script."""
        mark = Mark()
        invocation, files = invocation_of(
            command, mark, self._workspace, self._odd_variables, wait_for_start=not self._settled
        )
        if files:
            await self._transfer(partial(put_files, container=self._id, files=files), "copying the command's input")
        run = DockerExec(
            self._id,
            supervised_argv(mark, invocation),
            mark=mark,
            env=command.env,
            user=command.user or self._user,
            max_output_bytes=command.max_output_bytes,
        )
        timed_out = await self._run(run, command.timeout_s, invocation.folder)
        if not timed_out:
            self._settled = True
            if invocation.folder and (command.user or self._user) not in ("0", "root"):
                await quietly(self._helper(["/bin/sh", "-c", 'rm -rf "$0"', invocation.folder]))
        return result_of(run, timed_out=timed_out)

    async def upload(self, source: Path, target: PurePosixPath) -> None:
        """One call to the engine; a second for an empty folder."""
        target = self._workspace / target
        put = partial(put_path, container=self._id, source=source, target=target)
        if not await self._transfer(put, f"upload to {str(target)!r}"):
            run = await self._helper(["/bin/sh", "-c", 'mkdir -p "$0"', str(target)])
            if run.process_code != 0:
                raise SandboxFailed(f"upload to {str(target)!r}: {run.stderr.text().strip()}")

    async def download(self, source: PurePosixPath, target: Path) -> None:
        """One call to the engine."""
        source = self._workspace / source
        get = partial(get_path, container=self._id, source=source, target=target)
        await self._transfer(get, f"download of {str(source)!r}")

    async def read_bytes(self, path: PurePosixPath, max_bytes: int) -> bytes:
        """One call to the engine, cut off where there is more than `max_bytes`."""
        path = self._workspace / path
        get = partial(get_bytes, container=self._id, source=path, max_bytes=max_bytes)
        return await self._transfer(get, f"reading {str(path)!r}")

    async def write_bytes(self, path: PurePosixPath, data: bytes, mode: int = 0o644) -> None:
        """One call to the engine."""
        path = self._workspace / path
        put = partial(put_files, container=self._id, files={path: (data, mode)})
        await self._transfer(put, f"writing {str(path)!r}")

    async def kill_processes(self) -> None:
        """Everything but the container's first process."""
        await self._helper(kill_all_argv())

    async def _run(self, run: DockerExec, limit_s: float, folder: str = "") -> bool:
        """Whether it had to be killed at its limit."""
        with self._engine.watched(run.stream), self._company.joined_by(run):
            work = self._engine.long_call(run.run)
            kill, check_end = partial(self._kill, run, work, folder), partial(self._check_end, run, work)
            return await killed_at_limit(self._ended(run, work, limit_s), kill, check_end)

    async def _ended(self, run: DockerExec, work: "asyncio.Future[None]", limit_s: float) -> bool:
        if await ended_within(work, run, limit_s):
            return True
        # A stalled connection tells of no end, and its stream never closes.
        try:
            async with asyncio.timeout(_ASK_LIMIT_S):
                ended = await self._engine.call(run.ask_end)
        except FAILURES:
            return False
        if ended:
            await asyncio.wait({work}, timeout=AFTER_KILL_S[1])
            run.stream.cut()
            work.add_done_callback(exception_seen)
            await asyncio.wait({work}, timeout=AFTER_KILL_S[0])
        return ended

    async def _check_end(self, run: DockerExec, work: "asyncio.Future[None]") -> None:
        if work.done() and (error := work.exception()) is not None:
            raise await self._error(error, "exec") from error
        if run.never_ran:
            said = " ".join(run.stdout.text().split())
            found = said_error(said, None, "exec")
            known = isinstance(found, SandboxStartFailed)
            raise found if known else await self._error(SandboxFailed(said), "exec")
        await refuse_missing_end(run, self._printed_by, self._why_lost)

    async def _kill(self, run: DockerExec, work: "asyncio.Future[None]", folder: str) -> None:
        run.abandoned = True
        try:
            await kill_until_ended(run, work, folder, self._printed_by)
        finally:
            run.stream.cut()
            work.add_done_callback(exception_seen)
        await asyncio.wait({work}, timeout=AFTER_KILL_S[0])

    async def _printed_by(self, argv: Sequence[str], user: str) -> str:
        return (await self._helper(argv, user)).stdout.text()

    async def _helper(self, argv: Sequence[str], user: str = ROOT) -> DockerExec:
        run = DockerExec(self._id, argv, mark=Mark(), env={}, user=user, max_output_bytes=_HELPER_OUTPUT_BYTES)
        work = self._engine.long_call(run.run)
        work.add_done_callback(exception_seen)
        with self._engine.watched(run.stream):
            try:
                ended = await ended_within(work, run, _HELPER_LIMIT_S)
            finally:
                if not work.done():
                    run.stream.cut()
        if not ended:
            raise SandboxFailed(f"the engine did not run a helper within {_HELPER_LIMIT_S} s")
        if (error := work.exception()) is not None:
            raise await self._error(error, "exec") from error
        if run.never_ran:
            raise await self._error(SandboxFailed(run.stdout.text().strip()), "exec")
        return run

    async def _transfer(self, function: Callable[[APIClient, CutableStream], T], doing: str) -> T:
        stream = CutableStream()
        work = self._engine.long_call(lambda client: function(client, stream))
        async with transferring(doing, self._error, _FAILURES):
            with self._engine.watched(stream):
                await _ended_or_cut(work, stream)
            return work.result()

    async def _error(self, error: BaseException, doing: str) -> AgentCompassError:
        if not isinstance(error, _FAILURES):
            raise error
        lost = await self._why_lost()
        if lost is None and any(phrase in explanation(error).lower() for phrase in _GONE):
            lost = f"{self._name()} is ending: {self._ended_lifetime() or 'the engine does not say why yet'}"
        return SandboxLost(f"{doing}: {lost}") if lost else use_error(error, doing)

    async def _why_lost(self) -> str | None:
        if self._gone is None:
            try:
                self._gone = await self._engine.call(self._seek_reason)
            except FAILURES:
                return None
        return self._gone

    def _seek_reason(self, client: APIClient) -> str | None:
        try:
            state = client.inspect_container(self._id)["State"]
        except NotFound:
            return f"{self._name()} is gone: {self._past(client)}"
        if state.get("Running") and not state.get("Dead"):
            return None
        return f"{self._name()} has stopped: {self._past(client)}"

    def _past(self, client: APIClient) -> str:
        if (over := self._ended_lifetime()) is not None:
            return over
        now = int(time.time())
        since = now - int(time.monotonic() - self._container.started_at) - 5
        past = client.events(since=since, until=now + 1, filters={"container": self._id}, decode=True)
        events: dict[str, Any] = {str(event.get("Action")): event for event in past}
        if "oom" in events:
            limit = f" (memory {self._spec.memory} MiB)" if self._spec.memory else ""
            return f"out of memory{limit}"
        code = (events.get("die") or {}).get("Actor", {}).get("Attributes", {}).get("exitCode")
        killed = "it was killed or removed from outside" if "kill" in events or code is None else "it ended"
        return killed + (f", exit code {code}" if code else "") + self._platform_hint(client)

    def _ended_lifetime(self) -> str | None:
        over = time.monotonic() >= self._container.started_at + self._spec.timeout - 1
        return f"its lifetime (timeout) of {self._spec.timeout:g} s is over" if over else None

    def _platform_hint(self, client: APIClient) -> str:
        version = client.version()
        engine = f"{version.get('Os')}/{version.get('Arch')}"
        return "" if self._image.platform == engine else f"; its image is for {self._image.platform}, not {engine}"

    def _name(self) -> str:
        return f"container {self._container.name!r}"


async def _ended_or_cut(work: "asyncio.Future[T]", stream: CutableStream) -> None:
    # A transfer that goes on after its cancellation would write into folders that are no longer its own, and the engine
    # removes no container that it is still copying from or to.
    try:
        await asyncio.wait({work})
    except asyncio.CancelledError:
        stream.cut()
        work.add_done_callback(exception_seen)
        await cleaned_up(asyncio.wait({work}), _CUT_LIMIT_S, "end of a transfer")
        raise
