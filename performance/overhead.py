"""What AgentCompass costs over the bare docker SDK: the same 32 task directories through both, in turn.

    python performance/overhead.py [--image IMAGE] [--tasks 32] [--rounds 3] [--at-once 1 4 8]

The floor makes, for each task, the calls that the work itself needs: create, start, one exec (the solution), the
tests in by archive, one exec (the tests), the reward out by archive, remove. Both sides are whole processes.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from measuring import beside, cost_of

TASK_TOML = """version = "1.0"

[metadata]
category = "performance"

[agent]
timeout_sec = 60.0

[verifier]
timeout_sec = 60.0

[environment]
build_timeout_sec = 60.0
docker_image = "{image}"
workdir = "/app"
"""
SOLVE = "#!/bin/bash\necho 42 > /app/answer\n"
TEST = '#!/bin/bash\nif [ "$(cat /app/answer)" = 42 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n'


def make_tasks(folder: Path, count: int, image: str) -> None:
    """`count` trivial task directories below `folder`."""
    for number in range(count):
        task = folder / f"task-{number:03}"
        files = {
            "task.toml": TASK_TOML.format(image=image),
            "instruction.md": "Write 42 to /app/answer.\n",
            "solution/solve.sh": SOLVE,
            "tests/test.sh": TEST,
        }
        for name, text in files.items():
            path = task / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def ours(tasks: Path, results: str, at_once: int) -> list[str]:
    """The command line of AgentCompass for them."""
    return [
        *(sys.executable, "-m", "agentcompass", "run", "task_directory", "oracle", "none", "--env", "docker"),
        *("--benchmark-params", f'{{"path": "{tasks}"}}', "--results-dir", results),
        *("--task-concurrency", str(at_once), "--progress", "none"),
    ]


def floor(tasks: Path, image: str, at_once: int) -> list[str]:
    """The command line of the bare SDK for them."""
    return [sys.executable, beside("docker_floor.py"), str(tasks), image, str(at_once)]


def main() -> None:
    """Print one line for each concurrency."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--image", default="debian:bookworm-slim")
    parser.add_argument("--tasks", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 4, 8])
    options = parser.parse_args()
    all_ratios = []
    with tempfile.TemporaryDirectory() as folder:
        tasks = Path(folder) / "tasks"
        make_tasks(tasks, options.tasks, options.image)
        for at_once in options.at_once:
            ratios, cpu = [], []
            for number in range(options.rounds):
                bare = cost_of(floor(tasks, options.image, at_once))
                own = cost_of(ours(tasks, f"{folder}/results-{at_once}-{number}", at_once))
                ratios.append(own.wall_s / bare.wall_s)
                cpu.append(own.cpu_s)
                print(f"  {at_once} at once: {own.wall_s:.2f} s, bare SDK {bare.wall_s:.2f} s", flush=True)
                print(f"    CPU {own.cpu_s:.2f} s, bare SDK {bare.cpu_s:.2f} s", flush=True)
            all_ratios += ratios
            print(f"{at_once} at once: wall ratio {statistics.median(ratios):.3f}, CPU {statistics.median(cpu):.2f} s")
    print(f"median of all wall ratios: {statistics.median(all_ratios):.3f}")


if __name__ == "__main__":
    main()
