"""Memory and time of the runner itself, with a harness and an environment that do nothing.

    python performance/scale.py [--tasks 1000 5000] [--at-once 500]

For each number of tasks: peak memory, CPU and wall time of the run, and of a second start of the finished run.
"""

import argparse
import sys
import tempfile

from measuring import cost_of

FAKES = "agentcompass.testing.fakes"


def command(tasks: int, at_once: int, results: str) -> list[str]:
    """A run of `tasks` tasks over the fakes of the contract suites."""
    return [
        *(sys.executable, "-m", "agentcompass", "run"),
        *(f"{FAKES}:FakeBenchmark", f"{FAKES}:FakeHarness", "none", "--env", f"{FAKES}:FakeEnvironment"),
        *("--benchmark-params", f'{{"tasks": {tasks}}}', "--results-dir", results, "--run-name", "scale"),
        *("--run-id", str(tasks), "--task-concurrency", str(at_once), "--progress", "none"),
    ]


def main() -> None:
    """Print two lines for each number of tasks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, nargs="+", default=[1000, 5000])
    parser.add_argument("--at-once", type=int, default=500)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as results:
        for tasks in options.tasks:
            for start in ("first", "second"):
                cost = cost_of(command(tasks, options.at_once, results))
                print(
                    f"{tasks} tasks, {start} start:"
                    f" {cost.wall_s:.2f} s, CPU {cost.cpu_s:.2f} s, peak memory {cost.peak_mib:.0f} MiB"
                )


if __name__ == "__main__":
    main()
