"""Who may call: tokens, workspaces, environments, apps, short-lived tokens."""

import base64
import itertools
import json
import time
from typing import Any

from dispatch import Call, refuse
from google.protobuf.empty_pb2 import Empty
from grpclib.const import Status
from identifiers import new_id
from modal_proto import api_pb2
from settings import Settings

DEFAULT_WORKSPACE = "test-workspace"
OPEN_TO_ALL = {"TokenFlowCreate", "TokenFlowWait"}
"""What somebody calls who has no token yet."""


class Accounts:
    """Answers the RPCs about the caller and the names it works in."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._apps: dict[tuple[str, str, str], str] = {}
        self._serial = itertools.count()
        self._secret = new_id("key-")

    def clear(self) -> None:
        self._apps.clear()

    def guard(self, call: Call) -> None:
        """Raises GRPCError(UNAUTHENTICATED) unless the token is known and, where one is sent, the auth token good."""
        if call.method in OPEN_TO_ALL:
            return
        secret = call.headers.get("x-modal-token-secret", "")
        if not call.token_id or self._settings.tokens.get(call.token_id) != secret:
            raise refuse(Status.UNAUTHENTICATED, "Token validation failed: no such token, or a wrong secret")
        if "x-modal-auth-token" in call.headers:
            self.check_jwt(call.headers["x-modal-auth-token"], call.token_id)

    def workspace(self, call: Call) -> str:
        return self._settings.workspaces.get(call.token_id, DEFAULT_WORKSPACE)

    def environment(self, name: str) -> str:
        """Raises GRPCError(NOT_FOUND)."""
        if not name:
            return self._settings.environments[0]
        if name not in self._settings.environments:
            raise refuse(Status.NOT_FOUND, f"Environment {name!r} not found")
        return name

    def app_place(self, workspace: str, app_id: str) -> tuple[str, str]:
        """Environment and name of an app. Raises GRPCError(NOT_FOUND)."""
        for (owner, environment, name), known in self._apps.items():
            if owner == workspace and known == app_id:
                return environment, name
        raise refuse(Status.NOT_FOUND, f"App {app_id!r} not found")

    def app_id(self, workspace: str, environment: str, name: str) -> str | None:
        return self._apps.get((workspace, environment, name))

    def jwt(self, subject: str) -> str:
        """Three parts, of which the middle one holds subject and expiry, as at Modal."""
        payload = {"sub": subject, "exp": time.time() + self._settings.jwt_life_s, "n": next(self._serial)}
        return ".".join(_base64(part) for part in ({"alg": "none"}, payload, {"key": self._secret}))

    def check_jwt(self, token: str, subject: str) -> None:
        """Raises GRPCError(UNAUTHENTICATED) for one that is not ours, another's or expired."""
        try:
            payload = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
        except (IndexError, ValueError) as exc:
            raise refuse(Status.UNAUTHENTICATED, "malformed token") from exc
        if payload.get("sub") != subject:
            raise refuse(Status.UNAUTHENTICATED, "token of somebody else")
        if payload["exp"] < time.time():
            raise refuse(Status.UNAUTHENTICATED, "token expired")

    async def ClientHello(self, call: Call, request: Empty) -> api_pb2.ClientHelloResponse:
        return api_pb2.ClientHelloResponse(image_builder_version=self._settings.image_builder_version)

    async def WorkspaceNameLookup(self, call: Call, request: Empty) -> api_pb2.WorkspaceNameLookupResponse:
        name = self.workspace(call)
        return api_pb2.WorkspaceNameLookupResponse(workspace_name=name, username=name)

    async def TokenInfoGet(self, call: Call, request: Any) -> api_pb2.TokenInfoGetResponse:
        reply = api_pb2.TokenInfoGetResponse(
            token_id=call.token_id,
            workspace_id="ac-test",
            workspace_name=self.workspace(call),
            user_identity=api_pb2.UserIdentity(user_id="us-test", username="tester"),
            token_name="test token",
        )
        reply.created_at.FromSeconds(int(time.time()) - 3600)
        return reply

    async def TokenFlowCreate(self, call: Call, request: Any) -> api_pb2.TokenFlowCreateResponse:
        return api_pb2.TokenFlowCreateResponse(
            token_flow_id=new_id("tf-"), web_url="http://127.0.0.1/", code="1234", wait_secret=self._secret
        )

    async def TokenFlowWait(self, call: Call, request: api_pb2.TokenFlowWaitRequest) -> api_pb2.TokenFlowWaitResponse:
        """The user has agreed at once, and is given the first of the tokens."""
        if request.wait_secret != self._secret:
            raise refuse(Status.PERMISSION_DENIED, "a token flow of somebody else")
        token_id, token_secret = next(iter(self._settings.tokens.items()))
        workspace = self._settings.workspaces.get(token_id, DEFAULT_WORKSPACE)
        return api_pb2.TokenFlowWaitResponse(token_id=token_id, token_secret=token_secret, workspace_username=workspace)

    async def AuthTokenGet(self, call: Call, request: Any) -> api_pb2.AuthTokenGetResponse:
        return api_pb2.AuthTokenGetResponse(token=self.jwt(call.token_id))

    async def EnvironmentGetOrCreate(
        self, call: Call, request: api_pb2.EnvironmentGetOrCreateRequest
    ) -> api_pb2.EnvironmentGetOrCreateResponse:
        name = self.environment(request.deployment_name)
        settings = api_pb2.EnvironmentSettings(image_builder_version=self._settings.image_builder_version)
        metadata = api_pb2.EnvironmentMetadata(name=name, settings=settings)
        return api_pb2.EnvironmentGetOrCreateResponse(environment_id=f"en-{name}", metadata=metadata)

    async def EnvironmentList(self, call: Call, request: Empty) -> api_pb2.EnvironmentListResponse:
        default = self._settings.environments[0]
        items = [
            api_pb2.EnvironmentListItem(name=name, default=name == default, environment_id=f"en-{name}")
            for name in self._settings.environments
        ]
        return api_pb2.EnvironmentListResponse(items=items)

    async def AppGetOrCreate(
        self, call: Call, request: api_pb2.AppGetOrCreateRequest
    ) -> api_pb2.AppGetOrCreateResponse:
        environment = self.environment(request.environment_name)
        key = (self.workspace(call), environment, request.app_name)
        if key not in self._apps:
            if request.object_creation_type != api_pb2.OBJECT_CREATION_TYPE_CREATE_IF_MISSING:
                raise refuse(Status.NOT_FOUND, f"App {request.app_name!r} not found in environment {environment!r}")
            self._apps[key] = new_id("ap-")
        app_id = self._apps[key]
        metadata = api_pb2.AppHandleMetadata(app_id=app_id, description=request.app_name, environment_name=environment)
        return api_pb2.AppGetOrCreateResponse(app_id=app_id, handle_metadata=metadata)

    async def AppClientDisconnect(self, call: Call, request: Any) -> Empty:
        return Empty()


def _base64(part: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
