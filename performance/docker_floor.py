"""The least that docker must do for a folder of tasks: python docker_floor.py TASKS IMAGE AT_ONCE."""

import io
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import docker
from docker.models.containers import Container


def tests_archive(task: Path) -> bytes:
    """The task's tests, as a tar for the root folder."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        tar.add(task / "tests", "tests")
    return data.getvalue()


def reward(container: Container) -> str:
    """The verdict file's text."""
    chunks, _ = container.get_archive("/logs/verifier/reward.txt")
    with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as tar:
        file = tar.extractfile("reward.txt")
        assert file is not None
        return file.read().decode().strip()


def run(client: docker.DockerClient, task: Path, image: str) -> None:
    """One task."""
    container = client.containers.create(image, ["sleep", "600"], working_dir="/app")
    try:
        container.start()
        container.exec_run(["bash", "-c", (task / "solution/solve.sh").read_text()])
        container.put_archive("/", tests_archive(task))
        container.exec_run(["bash", "-c", "mkdir -p /logs/verifier; bash /tests/test.sh"])
        assert reward(container) == "1"
    finally:
        container.remove(force=True)


def main() -> None:
    """All tasks, so many at once."""
    folder, image, at_once = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    client = docker.from_env(max_pool_size=at_once)
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(lambda task: run(client, task, image), sorted(folder.iterdir())))


if __name__ == "__main__":
    main()
