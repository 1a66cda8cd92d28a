"""A registry on the loopback that serves one small image, asks for credentials, or refuses, as a test wants it."""

import base64
import gzip
import hashlib
import io
import json
import tarfile
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

CREDENTIALS = "user:pass-word"
_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_CONFIG = "application/vnd.docker.container.image.v1+json"
_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


@dataclass
class FakeRegistry:
    """What is served, and what was asked for."""

    busybox: bytes
    port: int = 0
    refusals: list[tuple[int, str]] = field(default_factory=list)
    """Answers (status, code) to the next requests for a manifest."""
    wants_credentials: bool = False
    manifest_requests: int = 0
    nonce: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Makes the image one that no engine has yet, whatever an earlier registry has left there."""

    def name(self, repository: str = "tool", tag: str = "latest") -> str:
        """The image, as it is to be pulled."""
        return f"127.0.0.1:{self.port}/{repository}:{tag}"

    def blobs(self) -> dict[str, tuple[str, bytes]]:
        """Digest -> media type and content."""
        layer = _layer(self.busybox)
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Cmd": ["/bin/sh"], "Labels": {"registry": self.nonce}},
            "rootfs": {"type": "layers", "diff_ids": [_digest(gzip.decompress(layer))]},
        }
        encoded = json.dumps(config).encode()
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": {"mediaType": _CONFIG, "size": len(encoded), "digest": _digest(encoded)},
            "layers": [{"mediaType": _LAYER, "size": len(layer), "digest": _digest(layer)}],
        }
        found = {_digest(layer): (_LAYER, layer), _digest(encoded): (_CONFIG, encoded)}
        return {**found, "manifest": (_MANIFEST, json.dumps(manifest).encode())}


@contextmanager
def serving(busybox: bytes) -> Iterator[FakeRegistry]:
    """A registry that runs meanwhile."""
    registry = FakeRegistry(busybox)
    blobs = registry.blobs()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            return

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            status, kind, body = _answer(registry, blobs, self.path, self.headers.get("Authorization"), self.command)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
            if status == 401:
                self.send_header("WWW-Authenticate", 'Basic realm="fake"')
            if kind == _MANIFEST:
                self.send_header("Docker-Content-Digest", _digest(body))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def write_credentials(folder: Path, registry: FakeRegistry) -> None:
    """A docker configuration that knows the registry's credentials."""
    auth = base64.b64encode(CREDENTIALS.encode()).decode()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"auths": {f"127.0.0.1:{registry.port}": {"auth": auth}}}))


def _answer(
    registry: FakeRegistry, blobs: dict[str, tuple[str, bytes]], path: str, authorization: str | None, method: str
) -> tuple[int, str, bytes]:
    expected = "Basic " + base64.b64encode(CREDENTIALS.encode()).decode()
    if registry.wants_credentials and authorization != expected:
        return 401, "application/json", _error("UNAUTHORIZED", "authentication required")
    if path.rstrip("/") == "/v2":
        return 200, "application/json", b"{}"
    if "/manifests/" in path:
        registry.manifest_requests += path.endswith("latest")
        if registry.refusals:
            status, code = registry.refusals.pop(0)
            return status, "application/json", _error(code, code.lower())
        return 200, *blobs["manifest"]
    kind, body = blobs[path.rpartition("/")[2]]
    return 200, kind, body


def _error(code: str, message: str) -> bytes:
    return json.dumps({"errors": [{"code": code, "message": message}]}).encode()


def _layer(busybox: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        info = tarfile.TarInfo("bin/sh")
        info.size, info.mode = len(busybox), 0o755
        tar.addfile(info, io.BytesIO(busybox))
        for name in ("sleep", "mkdir", "chmod", "rm", "cat", "true"):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "sh"
            tar.addfile(link)
    return gzip.compress(buffer.getvalue(), mtime=0)


def _digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()
