"""Things kept by id: secrets, volumes, mounts and the files in them."""

import base64
import hashlib
from dataclasses import dataclass, field

from accounts import Accounts
from dispatch import Call, refuse
from grpclib.const import Status
from identifiers import new_id
from modal_proto import api_pb2
from settings import Settings


@dataclass
class MountedFile:
    name: str
    sha256: str
    mode: int


@dataclass
class StoredObjects:
    """Answers the RPCs of secrets, volumes and mounts, and hands their contents to the other parts."""

    settings: Settings
    accounts: Accounts
    blob_url: str = ""
    """Where files of 4 MiB and more are PUT; set when the admin port is known."""
    _secrets: dict[str, dict[str, str]] = field(default_factory=dict)
    _volumes: dict[tuple[str, str, str], str] = field(default_factory=dict)
    _mounts: dict[str, list[MountedFile]] = field(default_factory=dict)
    _files: dict[str, bytes] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)

    def clear(self) -> None:
        for kept in (self._secrets, self._volumes, self._mounts, self._files, self.blobs):
            kept.clear()

    def secret(self, secret_id: str) -> dict[str, str]:
        """Raises GRPCError(NOT_FOUND)."""
        if secret_id not in self._secrets:
            raise refuse(Status.NOT_FOUND, f"Secret {secret_id!r} not found")
        return self._secrets[secret_id]

    def variables(self, secret_ids: list[str], sources: list[api_pb2.SecretSource]) -> dict[str, str]:
        """What the secrets of a create or exec call put into the environment, later ones winning."""
        merged: dict[str, str] = {}
        for secret_id in secret_ids:
            merged.update(self.secret(secret_id))
        for source in sources:
            merged.update(self.secret(source.secret_id) if source.secret_id else dict(source.env.contents))
        return merged

    def mount(self, mount_id: str) -> list[tuple[MountedFile, bytes]]:
        """Raises GRPCError(NOT_FOUND)."""
        if mount_id not in self._mounts:
            raise refuse(Status.NOT_FOUND, f"Mount {mount_id!r} not found")
        return [(file, self._files[file.sha256]) for file in self._mounts[mount_id]]

    async def SecretGetOrCreate(
        self, call: Call, request: api_pb2.SecretGetOrCreateRequest
    ) -> api_pb2.SecretGetOrCreateResponse:
        if request.deployment_name:
            values = self._named_secret(request)
            secret_id = f"st-{request.deployment_name}"
        else:
            values = dict(request.env_dict)
            secret_id = new_id("st-")
        self._secrets[secret_id] = values
        metadata = api_pb2.SecretMetadata(name=request.deployment_name, keys=sorted(values))
        return api_pb2.SecretGetOrCreateResponse(secret_id=secret_id, metadata=metadata)

    def _named_secret(self, request: api_pb2.SecretGetOrCreateRequest) -> dict[str, str]:
        self.accounts.environment(request.environment_name)
        values = self.settings.named_secrets.get(request.deployment_name)
        if values is None:
            raise refuse(Status.NOT_FOUND, f"Secret {request.deployment_name!r} not found")
        missing = sorted(set(request.required_keys) - set(values))
        if missing:
            raise refuse(Status.FAILED_PRECONDITION, f"Secret is missing required key(s): {', '.join(missing)}")
        return values

    async def SecretGetInfo(self, call: Call, request: api_pb2.SecretGetInfoRequest) -> api_pb2.SecretGetInfoResponse:
        metadata = api_pb2.SecretMetadata(keys=sorted(self.secret(request.secret_id)))
        return api_pb2.SecretGetInfoResponse(metadata=metadata)

    async def VolumeGetOrCreate(
        self, call: Call, request: api_pb2.VolumeGetOrCreateRequest
    ) -> api_pb2.VolumeGetOrCreateResponse:
        environment = self.accounts.environment(request.environment_name)
        key = (self.accounts.workspace(call), environment, request.deployment_name)
        if key not in self._volumes:
            if request.object_creation_type == api_pb2.OBJECT_CREATION_TYPE_UNSPECIFIED:
                raise refuse(Status.NOT_FOUND, f"Volume {request.deployment_name!r} not found")
            self._volumes[key] = new_id("vo-")
        metadata = api_pb2.VolumeMetadata(name=request.deployment_name)
        return api_pb2.VolumeGetOrCreateResponse(volume_id=self._volumes[key], metadata=metadata)

    def volume_name(self, volume_id: str) -> str:
        """A name for the local volume behind it. Raises GRPCError(NOT_FOUND)."""
        if volume_id not in self._volumes.values():
            raise refuse(Status.NOT_FOUND, f"Volume {volume_id!r} not found")
        return f"modal-server-{volume_id}"

    async def MountBatchedCheckExistence(
        self, call: Call, request: api_pb2.MountBatchedCheckExistenceRequest
    ) -> api_pb2.MountBatchedCheckExistenceResponse:
        missing = [sha256 for sha256 in request.sha256_hex_hashes if sha256 not in self._files]
        return api_pb2.MountBatchedCheckExistenceResponse(missing_sha256_hex_hashes=missing)

    async def MountPutFile(self, call: Call, request: api_pb2.MountPutFileRequest) -> api_pb2.MountPutFileResponse:
        data = self.blobs.pop(request.data_blob_id, None) if request.data_blob_id else request.data
        if data is None or hashlib.sha256(data).hexdigest() != request.sha256_hex:
            raise refuse(Status.INVALID_ARGUMENT, "the uploaded content does not have the announced hash")
        self._files[request.sha256_hex] = data
        return api_pb2.MountPutFileResponse(exists=True)

    async def MountGetOrCreate(
        self, call: Call, request: api_pb2.MountGetOrCreateRequest
    ) -> api_pb2.MountGetOrCreateResponse:
        if request.namespace == api_pb2.DEPLOYMENT_NAMESPACE_GLOBAL:
            raise refuse(Status.NOT_FOUND, f"Mount {request.deployment_name!r} is not kept by this server")
        files = [MountedFile(file.filename, file.sha256_hex, file.mode or 0o644) for file in request.files]
        absent = [file.name for file in files if file.sha256 not in self._files]
        if absent:
            raise refuse(Status.FAILED_PRECONDITION, f"files were not uploaded: {absent}")
        checksum = hashlib.sha256(repr(files).encode()).hexdigest()
        mount_id = f"mo-{checksum[:22]}"
        self._mounts[mount_id] = files
        metadata = api_pb2.MountHandleMetadata(content_checksum_sha256_hex=checksum)
        return api_pb2.MountGetOrCreateResponse(mount_id=mount_id, handle_metadata=metadata)

    async def BlobCreate(self, call: Call, request: api_pb2.BlobCreateRequest) -> api_pb2.BlobCreateResponse:
        sha256 = base64.b64decode(request.content_sha256_base64).hex()
        blob_id = f"bl-{sha256[:22]}"
        urls = api_pb2.UploadUrlList(items=[f"{self.blob_url}/blobs/{blob_id}"])
        return api_pb2.BlobCreateResponse(blob_ids=[blob_id], upload_urls=urls)
