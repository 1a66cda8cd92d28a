"""The port through which a test steers the server and sees what it did: JSON over HTTP."""

import hashlib
from typing import Any

from aiohttp import web
from sandboxes import Result
from server import ModalServer

MAX_BLOB = 1024**3


class Admin:
    """Routes: see `routes`; bodies and answers are JSON."""

    def __init__(self, server: ModalServer) -> None:
        self._server = server

    def application(self) -> web.Application:
        application = web.Application(client_max_size=MAX_BLOB)
        application.add_routes(
            [
                web.get("/state", self._state),
                web.get("/sandboxes", self._sandboxes),
                web.get("/calls", self._calls),
                web.get("/counts", self._counts),
                web.get("/faults", self._faults),
                web.post("/faults", self._add_faults),
                web.post("/settings", self._change_settings),
                web.post("/reset", self._reset),
                web.post("/clear-calls", self._clear_calls),
                web.post("/sandboxes/{id}/end", self._end),
                web.post("/cut-connections", self._cut),
                web.put("/blobs/{id}", self._put_blob),
            ]
        )
        return application

    async def _state(self, _: web.Request) -> web.Response:
        counters = self._server.sandboxes.counters()
        return web.json_response({**counters, "images_built": self._server.images.built})

    async def _sandboxes(self, _: web.Request) -> web.Response:
        return web.json_response([sandbox.summary() for sandbox in self._server.sandboxes.everything()])

    async def _calls(self, request: web.Request) -> web.Response:
        return web.json_response(self._server.log.calls(request.query.get("method")))

    async def _counts(self, _: web.Request) -> web.Response:
        return web.json_response(self._server.log.counts())

    async def _faults(self, _: web.Request) -> web.Response:
        return web.json_response(self._server.faults.left())

    async def _add_faults(self, request: web.Request) -> web.Response:
        wanted: list[dict[str, Any]] = await request.json()
        try:
            for fault in wanted:
                self._server.faults.add(**fault)
        except (TypeError, KeyError) as exc:
            return web.json_response({"error": f"no such fault: {exc}"}, status=400)
        return web.json_response({})

    async def _change_settings(self, request: web.Request) -> web.Response:
        try:
            self._server.settings.update(await request.json())
        except KeyError as exc:
            return web.json_response({"error": f"no such setting: {exc}"}, status=400)
        return web.json_response(self._server.settings.copy())

    async def _reset(self, _: web.Request) -> web.Response:
        await self._server.reset()
        return web.json_response({})

    async def _clear_calls(self, _: web.Request) -> web.Response:
        self._server.log.clear()
        return web.json_response({})

    async def _end(self, request: web.Request) -> web.Response:
        wanted = await request.json()
        status = Result.GenericStatus.Value(f"GENERIC_STATUS_{wanted.get('status', 'INTERNAL_FAILURE')}")
        for sandbox in self._server.sandboxes.running():
            if request.match_info["id"] in (sandbox.id, sandbox.name, "all"):
                self._server.sandboxes.end(sandbox, status, wanted.get("exit_code", 1))
        return web.json_response({})

    async def _cut(self, _: web.Request) -> web.Response:
        return web.json_response({"cut": self._server.cut_connections()})

    async def _put_blob(self, request: web.Request) -> web.Response:
        data = await request.read()
        self._server.stored.blobs[request.match_info["id"]] = data
        return web.Response(headers={"ETag": f'"{hashlib.md5(data).hexdigest()}"'})
