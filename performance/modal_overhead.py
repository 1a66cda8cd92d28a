"""What the Modal adapter costs over the bare SDK: the same lives of sandboxes through both, each a process of its own.

    python tests/integration/modal_server --backend light --port 9900 --admin-port 9901 &
    MODAL_SERVER_URL=http://127.0.0.1:9900 MODAL_TOKEN_ID=ak-test MODAL_TOKEN_SECRET=as-test \\
        python performance/modal_overhead.py [--sandboxes 256] [--rounds 3]

A life is: create, three commands with their output, terminate, detach; all of them at the same time. The adapter adds
what it promises: the first answer, one stdin as a file, supervision, tags, the pace (lifted here).
"""

import argparse
import asyncio
import os
import statistics
import sys

from measuring import Cost, beside, cost_of, raise_file_limit

COMMANDS = 3
IMAGE = "debian:bookworm-slim"


async def through_the_sdk(count: int) -> None:
    """What the work itself needs."""
    import modal
    from modal_proto import api_pb2

    pair = (os.environ["MODAL_TOKEN_ID"], os.environ["MODAL_TOKEN_SECRET"])
    async with modal.Client(os.environ["MODAL_SERVER_URL"], api_pb2.CLIENT_TYPE_CLIENT, pair) as client:
        app = await modal.App.lookup.aio("overhead-sdk", client=client, create_if_missing=True)
        image = await modal.Image.from_registry(IMAGE).build.aio(app)

        async def live() -> None:
            sandbox = await modal.Sandbox.create.aio("sleep", "600", app=app, image=image, timeout=600, client=client)
            for _ in range(COMMANDS):
                process = await sandbox.exec.aio("/bin/sh", "-c", "echo here", timeout=60, text=False)
                out, *_ = await asyncio.gather(process.stdout.read.aio(), process.stderr.read.aio(), process.wait.aio())
                assert out == b"here\n"
            await sandbox.terminate.aio()
            await sandbox.detach.aio()

        await asyncio.gather(*(live() for _ in range(count)))


async def through_the_adapter(count: int) -> None:
    """The same, as a run does it."""
    from agentcompass.adapters.environments.modal.environment import ModalEnvironment, ModalParameters
    from agentcompass.domain.sandbox import Command, SandboxSpec
    from agentcompass.testing.environment import an_owner

    parameters = ModalParameters(app_name="overhead-adapter", create_rate=10_000, max_starting=count)
    environment = ModalEnvironment(parameters)

    async def live(number: int) -> None:
        async with environment.open(SandboxSpec(image=IMAGE, timeout=600), an_owner(attempt=number)) as sandbox:
            for _ in range(COMMANDS):
                result = await sandbox.exec(Command(script="echo here", timeout_s=60))
                assert result.stdout == "here\n"

    await asyncio.gather(*(live(number) for number in range(1, count + 1)))
    await environment.close()


SIDES = {"sdk": through_the_sdk, "adapter": through_the_adapter}


def described(name: str, costs: list[Cost], count: int) -> str:
    """Medians, the CPU for each sandbox."""
    wall_s, cpu_s, peak_mib = (
        statistics.median(getattr(cost, field) for cost in costs) for field in ("wall_s", "cpu_s", "peak_mib")
    )
    per_life_ms = cpu_s / count * 1000
    return (
        f"{name:8} {wall_s:7.1f} s wall {cpu_s:7.2f} s CPU = {per_life_ms:6.1f} ms a sandbox {peak_mib:7.0f} MiB peak"
    )


def main() -> None:
    """Both sides in turn, `rounds` times."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sandboxes", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    raise_file_limit()
    if options.side:
        asyncio.run(SIDES[options.side](options.sandboxes))
        return
    costs: dict[str, list[Cost]] = {side: [] for side in SIDES}
    for _ in range(options.rounds):
        for side in SIDES:
            argv = [sys.executable, beside("modal_overhead.py"), "--side", side, "--sandboxes", str(options.sandboxes)]
            costs[side].append(cost_of(argv))
    for side in SIDES:
        print(described(side, costs[side], options.sandboxes))


if __name__ == "__main__":
    main()
