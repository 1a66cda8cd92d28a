"""A local server that speaks Modal's own protocol, for the real `modal` SDK to talk to.

By hand:

    python tests/integration/modal_server --port 9900 --admin-port 9901 --named 'tools:latest=debian:12'
    MODAL_SERVER_URL=http://127.0.0.1:9900 MODAL_TOKEN_ID=ak-test MODAL_TOKEN_SECRET=as-test agentcompass doctor modal

It prints one line of JSON, `{"url": ..., "admin": ...}`, when it is ready, and stops at SIGTERM, SIGINT or, with
`--stop-at-eof`, when its standard input is closed. Whatever way it ends, its containers, images and folders are
removed (after a SIGKILL by a small process that watches it).

`--backend docker` (the default): a sandbox is a container of this machine's engine, an image is a local one (a
registry reference that is not there cannot be built), a dockerfile is built for real. Commands enter the container by
nsenter, so it takes root. `--backend light`: a sandbox is a few processes with a private copy of this machine's files,
whatever the image; only for tests of scale.

Steering, by HTTP on the admin port (modal_server_client.py has a client):

    GET  /state        created, running, peak, not_removed, statuses, creation_times, images_built
    GET  /sandboxes    one summary each, ended ones too
    GET  /calls?method=NAME    time, request, headers, status and duration of each call;  GET /counts: calls by method
    POST /faults       [{"method": "TaskExecStart", "status": "UNAVAILABLE", "times": 2, ...}]; fields: faults.Fault
    POST /settings     {"create_rate": 5, "jwt_life_s": 2, ...}; fields: settings.Settings
    POST /sandboxes/ID/end     {"status": "INTERNAL_FAILURE", "exit_code": 1}: it dies; ID may be its name, or `all`
    POST /cut-connections      every connection breaks
    POST /reset        as new
"""

import argparse
import asyncio
import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from admin import Admin
from aiohttp import web
from engine import LABEL, Engine
from server import ModalServer
from settings import Settings


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="modal_server", description="A local stand-in for Modal.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--admin-port", type=int, default=0)
    parser.add_argument("--backend", choices=("docker", "light"), default="docker")
    parser.add_argument("--token", action="append", default=[], metavar="ID:SECRET[:WORKSPACE]")
    parser.add_argument("--environment", action="append", default=[], metavar="NAME")
    parser.add_argument("--named", action="append", default=[], metavar="NAME:TAG=LOCAL_IMAGE")
    parser.add_argument("--settings", default="{}", metavar="JSON", help="any other setting, see settings.py")
    parser.add_argument("--stop-at-eof", action="store_true", help="stop when standard input is closed")
    parser.add_argument("--reap", nargs=2, metavar=("LABEL", "FOLDER"), help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def settings_of(options: argparse.Namespace) -> Settings:
    settings = Settings()
    if options.token:
        parts = [token.split(":") for token in options.token]
        settings.tokens = {part[0]: part[1] for part in parts}
        settings.workspaces = {part[0]: part[2] for part in parts if len(part) > 2}
    if options.environment:
        settings.environments = options.environment
    settings.named_images = dict(named.split("=", 1) for named in options.named)
    settings.update(json.loads(options.settings))
    return settings


async def serve(options: argparse.Namespace) -> None:
    engine = Engine() if options.backend == "docker" else None
    server = ModalServer(settings_of(options), engine)
    with _watcher(server):
        if engine is not None:
            await _remove_what_dead_servers_left(engine)
        port = await server.listen(options.host, options.port)
        runner = web.AppRunner(Admin(server).application())
        await runner.setup()
        site = web.TCPSite(runner, options.host, options.admin_port)
        await site.start()
        admin = f"http://{options.host}:{runner.addresses[0][1]}"
        server.stored.blob_url = admin
        sys.stdout.write(json.dumps({"url": f"http://{options.host}:{port}", "admin": admin}) + "\n")
        sys.stdout.flush()
        await _until_told(stop_at_eof=options.stop_at_eof)
        await runner.cleanup()
        await server.close()


async def _until_told(*, stop_at_eof: bool) -> None:
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    if stop_at_eof:
        loop.add_reader(sys.stdin, lambda: None if os.read(sys.stdin.fileno(), 1024) else told.set())
    await told.wait()
    if stop_at_eof:
        loop.remove_reader(sys.stdin)


@contextlib.contextmanager
def _watcher(server: ModalServer) -> Iterator[None]:
    """A process that removes what is left once this one has ended, in whatever way."""
    command = [sys.executable, str(Path(__file__).parent), "--reap", server.label, str(server.folder)]
    watcher = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        yield
    finally:
        assert watcher.stdin is not None
        watcher.stdin.close()
        watcher.wait()


async def reap(label: str, folder: str) -> None:
    """Wait for the end of standard input, then remove what the server with that label left."""
    await asyncio.to_thread(sys.stdin.buffer.read)
    shutil.rmtree(folder, ignore_errors=True)
    engine = Engine()
    with contextlib.suppress(OSError):
        await engine.remove_labelled(f"{LABEL}={label}")
    await engine.close()


async def _remove_what_dead_servers_left(engine: Engine) -> None:
    for container in await engine.call("GET", f'/containers/json?all=1&filters={{"label":["{LABEL}"]}}'):
        label = container["Labels"][LABEL]
        if not Path(f"/proc/{label.partition('-')[0]}").exists():
            await engine.remove_labelled(f"{LABEL}={label}")


def main() -> None:
    options = parse(sys.argv[1:])
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if options.reap:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        asyncio.run(reap(*options.reap))
    else:
        asyncio.run(serve(options))


if __name__ == "__main__":
    main()
