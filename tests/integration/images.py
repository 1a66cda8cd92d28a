"""Makes the images that the Docker tests run in, from Debian's packages and without a registry.

    python tests/integration/images.py [busybox] [debian] [python]

An image is made once: it carries the hash of its recipe, and is made again when that changes.
"""

import hashlib
import inspect
import io
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from docker import APIClient
from docker.errors import ImageNotFound

BUSYBOX = "agentcompass-test/busybox:latest"
"""A POSIX shell and its applets, nothing else."""
DEBIAN = "agentcompass-test/debian:bookworm"
"""Debian's base system: bash, coreutils."""
PYTHON = "agentcompass-test/python:bookworm"
"""The same with python3 and git."""
QUICKSTART = "debian:bookworm-slim"
"""What the quickstart tasks name; made from DEBIAN where the engine has none."""
_RECIPE_LABEL = "agentcompass.test.recipe"
_DEBIAN_WITHOUT = ("./var/cache/apt/archives/*.deb", "./var/lib/apt/lists/*", "./usr/share/doc/*", "./usr/share/man/*")
_PASSWD = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"
_PYTHON_DOCKERFILE = f"""\
FROM {DEBIAN}
RUN apt-get update -q \\
 && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends python3 git ca-certificates \\
 && rm -rf /var/lib/apt/lists/*
"""


def make(client: APIClient, names: list[str]) -> None:
    """Make the named images that are missing or out of date, in the order of their dependence."""
    if "python" in names and "debian" not in names:
        names = [*names, "debian"]
    for name, (tag, recipe) in RECIPES.items():
        if name in names:
            _ensure(client, tag, recipe)
    if "debian" in names:
        _tag_for_quickstart(client)


def _ensure(client: APIClient, tag: str, recipe: Callable[[APIClient, str, str], None]) -> None:
    digest = hashlib.sha256(inspect.getsource(recipe).encode() + _PYTHON_DOCKERFILE.encode()).hexdigest()[:16]
    if _label(client, tag) == digest:
        return
    print(f"making {tag}", file=sys.stderr, flush=True)  # noqa: T201 - a script's own progress
    recipe(client, tag, digest)


def _label(client: APIClient, tag: str) -> str | None:
    try:
        config = client.inspect_image(tag)["Config"]
    except ImageNotFound:
        return None
    return (config.get("Labels") or {}).get(_RECIPE_LABEL)


def _make_busybox(client: APIClient, tag: str, digest: str) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        folder.chmod(0o755)
        _downloaded("busybox-static", folder)
        package = next(folder.glob("*.deb"))
        _run("dpkg-deb", "-x", str(package), str(folder / "unpacked"))
        program = folder / "unpacked" / "bin" / "busybox"
        applets = subprocess.run([program, "--list"], check=True, capture_output=True, text=True).stdout.split()
        rootfs = folder / "rootfs"
        for path, mode in {"bin": 0o755, "tmp": 0o1777, "etc": 0o755, "root": 0o700}.items():
            (rootfs / path).mkdir(parents=True)
            (rootfs / path).chmod(mode)
        program.rename(rootfs / "bin" / "busybox")
        for applet in set(applets) - {"busybox"}:
            (rootfs / "bin" / applet).symlink_to("busybox")
        (rootfs / "etc" / "passwd").write_text(_PASSWD)
        _import(client, rootfs, tag, digest)


def _make_debian(client: APIClient, tag: str, digest: str) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        rootfs = Path(scratch, "rootfs")
        _run("debootstrap", "--variant=minbase", "bookworm", str(rootfs))
        _import(client, rootfs, tag, digest)


def _make_python(client: APIClient, tag: str, digest: str) -> None:
    build(client, tag, _PYTHON_DOCKERFILE, digest)


def build(client: APIClient, tag: str, dockerfile: str, digest: str = "") -> None:
    """An image of a Dockerfile that copies nothing; it is built with the host's network."""
    said = []
    options = {"tag": tag, "network_mode": "host", "rm": True, "labels": {_RECIPE_LABEL: digest}}
    for line in client.build(fileobj=io.BytesIO(dockerfile.encode()), decode=True, **options):
        said.append(str(line.get("stream", line)))
        if "error" in line:
            raise RuntimeError(f"{tag} cannot be built:\n{''.join(said[-40:])}")


def _import(client: APIClient, rootfs: Path, tag: str, digest: str) -> None:
    archive = rootfs.with_suffix(".tar")
    excluded = [f"--exclude={pattern}" for pattern in _DEBIAN_WITHOUT]
    _run("tar", "-C", str(rootfs), "--numeric-owner", "--owner=0", "--group=0", *excluded, "-cf", str(archive), ".")
    repository, _, name = tag.rpartition(":")
    changes = ['CMD ["/bin/sh"]', f"LABEL {_RECIPE_LABEL}={digest}"]
    client.import_image_from_file(str(archive), repository=repository, tag=name, changes=changes)
    if _label(client, tag) != digest:
        raise RuntimeError(f"{tag} was not imported")


def _downloaded(package: str, folder: Path) -> None:
    command = ["apt-get", "-q", "download", package]
    if subprocess.run(command, cwd=folder, check=False, capture_output=True).returncode:
        _run("apt-get", "-q", "update")
        subprocess.run(command, cwd=folder, check=True, capture_output=True)


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed with {done.returncode}:\n{done.stdout[-2000:]}")


def _tag_for_quickstart(client: APIClient) -> None:
    repository, _, name = QUICKSTART.partition(":")
    try:
        client.inspect_image(QUICKSTART)
    except ImageNotFound:
        client.tag(DEBIAN, repository, name)


RECIPES: dict[str, tuple[str, Callable[[APIClient, str, str], None]]] = {
    "busybox": (BUSYBOX, _make_busybox),
    "debian": (DEBIAN, _make_debian),
    "python": (PYTHON, _make_python),
}


if __name__ == "__main__":
    wanted = sys.argv[1:] or list(RECIPES)
    if unknown := set(wanted) - set(RECIPES):
        sys.exit(f"no such image: {', '.join(sorted(unknown))}; there are {', '.join(RECIPES)}")
    make(APIClient(version="auto", timeout=600), wanted)
