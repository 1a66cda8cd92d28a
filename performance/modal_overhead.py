"""What a run at Modal costs over the bare SDK: the same task directories through both, each a process of its own.

    python tests/integration/modal_server --backend light --port 9900 --admin-port 9901 &
    MODAL_SERVER_URL=http://127.0.0.1:9900 MODAL_TOKEN_ID=ak-test MODAL_TOKEN_SECRET=as-test \\
        python performance/modal_overhead.py [--tasks 256] [--rounds 3]

The bare side makes, for each task and for all at the same time, the calls that the work needs: create, a first command,
the solution in, a command, the tests in, a command, terminate, detach. The pace of creation is lifted on both sides.
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
from pathlib import Path

from measuring import Cost, beside, cost_of, raise_file_limit
from overhead import SOLVE, TEST, make_tasks

IMAGE = "debian:bookworm-slim"


async def through_the_sdk(count: int) -> None:
    """What the work itself needs."""
    import modal
    from modal_proto import api_pb2

    pair = (os.environ["MODAL_TOKEN_ID"], os.environ["MODAL_TOKEN_SECRET"])
    async with modal.Client(os.environ["MODAL_SERVER_URL"], api_pb2.CLIENT_TYPE_CLIENT, pair) as client:
        app = await modal.App.lookup.aio("overhead-sdk", client=client, create_if_missing=True)
        image = await modal.Image.from_registry(IMAGE).build.aio(app)

        async def run(sandbox: modal.Sandbox, script: str) -> bytes:
            process = await sandbox.exec.aio("/bin/bash", "-c", script, timeout=60, text=False)
            out, *_ = await asyncio.gather(process.stdout.read.aio(), process.stderr.read.aio(), process.wait.aio())
            return bytes(out)

        async def live() -> None:
            sandbox = await modal.Sandbox.create.aio("sleep", "600", app=app, image=image, timeout=600, client=client)
            await run(sandbox, "mkdir -p /app /logs/verifier")
            await sandbox.filesystem.write_bytes.aio(SOLVE.encode(), "/solution/solve.sh")
            await run(sandbox, "bash /solution/solve.sh")
            await sandbox.filesystem.write_bytes.aio(TEST.encode(), "/tests/test.sh")
            assert await run(sandbox, "bash /tests/test.sh; cat /logs/verifier/reward.txt") == b"1\n"
            await sandbox.terminate.aio()
            await sandbox.detach.aio()

        await asyncio.gather(*(live() for _ in range(count)))


def ours(tasks: Path, results: str, count: int) -> list[str]:
    """The command line of AgentCompass for them."""
    pace = f'{{"create_rate": 10000, "max_starting": {count}}}'
    return [
        *(sys.executable, "-m", "agentcompass", "run", "task_directory", "oracle", "none", "--env", "modal"),
        *("--benchmark-params", f'{{"path": "{tasks}"}}', "--env-params", pace, "--results-dir", results),
        *("--task-concurrency", str(count), "--progress", "none"),
    ]


def described(name: str, costs: list[Cost], count: int) -> str:
    """Medians, and the CPU for each attempt."""
    wall_s, cpu_s, peak_mib = (
        statistics.median(getattr(cost, field) for cost in costs) for field in ("wall_s", "cpu_s", "peak_mib")
    )
    each_ms = cpu_s / count * 1000
    return f"{name:8} {wall_s:6.1f} s wall, CPU {cpu_s:.2f} s = {each_ms:.1f} ms an attempt, peak {peak_mib:.0f} MiB"


def main() -> None:
    """Both sides in turn, `rounds` times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    raise_file_limit()
    if options.bare:
        asyncio.run(through_the_sdk(options.tasks))
        return
    bare, own = [], []
    with tempfile.TemporaryDirectory() as folder:
        tasks = Path(folder) / "tasks"
        make_tasks(tasks, options.tasks, IMAGE)
        for number in range(options.rounds):
            argv = [sys.executable, beside("modal_overhead.py"), "--bare", "--tasks", str(options.tasks)]
            bare.append(cost_of(argv))
            own.append(cost_of(ours(tasks, f"{folder}/results-{number}", options.tasks)))
    print(described("bare SDK", bare, options.tasks))
    print(described("run", own, options.tasks))


if __name__ == "__main__":
    main()
