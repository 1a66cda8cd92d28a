"""How a sandbox begins and ends, who may end it, and what an environment says of itself."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path, PurePosixPath

import pytest
from pydantic import ValidationError

from ...domain.errors import ConfigError, SandboxLost
from ...domain.ports import Environment, Sandbox
from ...domain.resolving import unsupported
from ...domain.sandbox import Capabilities, Check, ImageBuild, Network, SandboxOwner, SandboxSpec, SweepSelector
from ...domain.value import Parameters
from .setting import ContractSetting, an_owner, as_of_now, expired, held, rooted, sh

ENDED_PROCESS = "999999999-1"
"""No kernel gives a pid this high."""
BEYOND: dict[str, object] = {
    "image": "an/image:tag",
    "named_image": "a-name",
    "build": ImageBuild(context=Path("context")),
    "user": "65534",
    "network": Network.NONE,
}


class _Failure(Exception):
    """Something that goes wrong while a sandbox is in use."""


class LifetimeContract(ContractSetting):
    """Promises of `open`, `sweep`, `check` and the class itself."""

    async def test_a_sandbox_has_an_id_of_its_own(
        self, environment: Environment, spec: SandboxSpec, sandbox: Sandbox, owner: SandboxOwner
    ) -> None:
        async with held(environment, rooted(spec), owner.model_copy(update={"attempt": 2})) as other:
            ids = {sandbox.id, other.id}

        assert len(ids) == 2
        assert all(ids)

    async def test_sandboxes_share_no_files(
        self, environment: Environment, spec: SandboxSpec, sandbox: Sandbox, owner: SandboxOwner
    ) -> None:
        path = PurePosixPath("/contract-private/file")
        await sandbox.write_bytes(path, b"one's own")
        async with held(environment, rooted(spec), owner.model_copy(update={"purpose": "grade"})) as other:
            with pytest.raises(FileNotFoundError):
                await other.read_bytes(path, 100)

    async def test_a_sandbox_is_gone_after_use(
        self, environment: Environment, spec: SandboxSpec, owner: SandboxOwner
    ) -> None:
        async with environment.open(spec, owner) as sandbox:
            used = await sandbox.exec(sh("true"))
        with pytest.raises(SandboxLost):
            await sandbox.exec(sh("true"))

        assert used.ok
        assert await environment.sweep(expired(owner)) == []

    async def test_a_sandbox_is_gone_after_an_exception(
        self, environment: Environment, spec: SandboxSpec, owner: SandboxOwner
    ) -> None:
        with pytest.raises(_Failure):
            async with environment.open(spec, owner):
                raise _Failure

        assert await environment.sweep(expired(owner)) == []

    async def test_a_sandbox_is_gone_after_a_cancellation_in_use(
        self, environment: Environment, spec: SandboxSpec, owner: SandboxOwner
    ) -> None:
        opened = asyncio.Event()
        user = asyncio.create_task(_use(environment, spec, owner, opened))
        entered = asyncio.create_task(opened.wait())
        await asyncio.wait({user, entered}, return_when=asyncio.FIRST_COMPLETED)
        entered.cancel()
        user.cancel()
        await asyncio.wait({user})

        assert user.cancelled()
        assert await environment.sweep(expired(owner)) == []

    @pytest.mark.parametrize("delay_s", [0, 0.02, 0.1, 0.3, 0.7])
    async def test_a_sandbox_is_gone_after_a_cancellation_while_it_was_opened(
        self, environment: Environment, spec: SandboxSpec, owner: SandboxOwner, delay_s: float
    ) -> None:
        user = asyncio.create_task(_use(environment, spec, owner, asyncio.Event()))
        await asyncio.sleep(delay_s)
        user.cancel()
        await asyncio.wait({user})

        assert user.cancelled()
        assert await environment.sweep(expired(owner)) == []

    async def test_every_call_on_a_destroyed_sandbox_says_that_it_is_lost(
        self, environment: Environment, sandbox: Sandbox, owner: SandboxOwner, tmp_path: Path
    ) -> None:
        path = PurePosixPath("/contract-lost/file")
        await sandbox.write_bytes(path, b"x")
        await self.destroy(environment, sandbox, owner)
        calls: list[Callable[[], Awaitable[object]]] = [
            partial(sandbox.exec, sh("true")),
            partial(sandbox.upload, tmp_path, path.parent),
            partial(sandbox.download, path, tmp_path / "target"),
            partial(sandbox.read_bytes, path, 10),
            partial(sandbox.write_bytes, path, b"y"),
            sandbox.kill_processes,
        ]

        for call in calls:
            with pytest.raises(SandboxLost):
                await call()

    async def test_a_command_whose_sandbox_is_destroyed_says_that_it_is_lost(
        self, environment: Environment, sandbox: Sandbox, owner: SandboxOwner
    ) -> None:
        call = asyncio.create_task(sandbox.exec(sh("sleep 60")))
        await asyncio.sleep(1)
        await self.destroy(environment, sandbox, owner)

        with pytest.raises(SandboxLost):
            await call

    async def test_a_destroyed_sandbox_is_left_without_an_error(
        self, environment: Environment, spec: SandboxSpec, owner: SandboxOwner
    ) -> None:
        async with environment.open(spec, owner) as sandbox:
            await self.destroy(environment, sandbox, owner)

        assert await environment.sweep(expired(owner)) == []

    async def test_a_sandbox_ends_by_itself_at_the_end_of_its_lifetime(
        self, environment: Environment, spec: SandboxSpec, owner: SandboxOwner
    ) -> None:
        async with environment.open(spec.model_copy(update={"timeout": self.short_lifetime_s}), owner) as sandbox:
            with pytest.raises(SandboxLost):
                await _use_again_and_again(sandbox, seconds=int(self.short_lifetime_s) + 60)

    async def test_a_sweep_stops_what_a_dead_process_left(self, environment: Environment, spec: SandboxSpec) -> None:
        owner = an_owner(process=ENDED_PROCESS)
        async with environment.open(spec, owner) as sandbox:
            swept = await environment.sweep(as_of_now(owner))
            with pytest.raises(SandboxLost):
                await sandbox.exec(sh("true"))

        assert [(one.environment, one.id, one.error) for one in swept] == [(environment.name, sandbox.id, "")]
        assert [(one.run_id, one.task_id) for one in swept] == [(owner.run_id, owner.task_id)]

    async def test_a_sweep_leaves_what_a_live_process_uses(
        self, environment: Environment, sandbox: Sandbox, owner: SandboxOwner
    ) -> None:
        swept = await environment.sweep(as_of_now(owner))
        used = await sandbox.exec(sh("true"))

        assert swept == []
        assert used.ok

    async def test_a_sweep_of_one_run_leaves_the_others(self, environment: Environment, spec: SandboxSpec) -> None:
        owner = an_owner(process=ENDED_PROCESS)
        async with environment.open(spec, owner) as sandbox:
            swept = await environment.sweep(as_of_now(an_owner()))
            used = await sandbox.exec(sh("true"))

        assert swept == []
        assert used.ok

    async def test_a_sweep_leaves_another_machines_sandboxes_until_they_expire(
        self, environment: Environment, spec: SandboxSpec
    ) -> None:
        owner = an_owner(host="another-machine", process=ENDED_PROCESS)
        async with environment.open(spec, owner) as sandbox:
            before = await environment.sweep(as_of_now(owner))
            after_s = timedelta(seconds=spec.timeout + 3600)
            selector = SweepSelector(run_id=owner.run_id, host="this-machine", now=datetime.now(UTC) + after_s)
            after = await environment.sweep(selector)

        assert before == []
        assert [one.id for one in after] == [sandbox.id]

    async def test_a_spec_beyond_the_capabilities_is_refused_before_anything_starts(
        self, environment: Environment, spec: SandboxSpec, owner: SandboxOwner
    ) -> None:
        plain = spec.model_copy(update={"image": None, "named_image": None, "build": None})
        specs = {field: plain.model_copy(update={field: value}) for field, value in BEYOND.items()}
        impossible = {field: one for field, one in specs.items() if unsupported(one, environment.capabilities)}
        for field, one in impossible.items():
            with pytest.raises(ConfigError, match=field):
                async with environment.open(one, owner):
                    pass

        assert await environment.sweep(expired(owner)) == []

    async def test_many_sandboxes_open_side_by_side(self, environment: Environment, spec: SandboxSpec) -> None:
        async def used(number: int) -> int | None:
            async with environment.open(spec, an_owner(attempt=number)) as sandbox:
                return (await sandbox.exec(sh("true"))).exit_code

        codes = await asyncio.gather(*map(used, range(1, 6)))

        assert codes == [0] * 5

    async def test_check_answers_in_readable_lines(self, environment: Environment) -> None:
        checks = await environment.check()

        assert checks
        assert all(isinstance(check, Check) and check.name and check.detail for check in checks)
        assert all(check.ok or check.hint for check in checks)

    async def test_closing_twice_is_no_error(self, environment: Environment) -> None:
        await environment.check()
        await environment.close()
        await environment.close()

    async def test_the_class_names_and_describes_itself(self, environment: Environment) -> None:
        kind = type(environment)

        assert kind.name
        assert kind.name == kind.name.lower()
        assert isinstance(kind.capabilities, Capabilities)
        assert issubclass(kind.Parameters, Parameters)
        assert kind.Parameters.__doc__

    async def test_parameters_may_all_be_left_out_and_unknown_ones_are_refused(self, environment: Environment) -> None:
        kind = type(environment).Parameters

        assert kind() == kind.model_validate({})
        with pytest.raises(ValidationError):
            kind.model_validate({"no_such_field": 1})


async def _use(environment: Environment, spec: SandboxSpec, owner: SandboxOwner, opened: asyncio.Event) -> None:
    async with environment.open(spec, owner):
        opened.set()
        await asyncio.Event().wait()


async def _use_again_and_again(sandbox: Sandbox, seconds: int) -> None:
    for _ in range(seconds):
        await sandbox.exec(sh("true"))
        await asyncio.sleep(1)
