"""What an image build printed, as `image.logs` of the SDK asks for it."""

from accounts import Accounts
from dispatch import Call
from google.protobuf.timestamp_pb2 import Timestamp
from images import Image, Images
from modal_proto import api_pb2

_TASK = "ta-build-"


class BuildLogs:
    """Answers the RPCs that find and read a build's log; a build is a task of its own, named after the image."""

    def __init__(self, accounts: Accounts, images: Images) -> None:
        self._accounts = accounts
        self._images = images

    async def ImageBuildChainGet(
        self, call: Call, request: api_pb2.ImageBuildChainGetRequest
    ) -> api_pb2.ImageBuildChainGetResponse:
        image = self._images.known(self._accounts.workspace(call), request.image_id)
        times = [said for said, _ in image.log]
        step = api_pb2.ImageBuildStep(
            image_id=image.id,
            builder_app_id="ap-builder",
            builder_task_id=_TASK + image.id,
            started_at=_timestamp(times[0] if times else 0),
            finished_at=_timestamp(times[-1] + 1 if times else 0),
        )
        return api_pb2.ImageBuildChainGetResponse(build_steps=[step])

    async def AppFetchLogs(self, call: Call, request: api_pb2.AppFetchLogsRequest) -> api_pb2.AppFetchLogsResponse:
        if not request.task_id.startswith(_TASK):
            return api_pb2.AppFetchLogsResponse()
        image = self._images.known(self._accounts.workspace(call), request.task_id.removeprefix(_TASK))
        items = _items(image, request)
        batch = api_pb2.TaskLogsBatch(task_id=request.task_id, image_id=image.id, items=items)
        return api_pb2.AppFetchLogsResponse(batches=[batch] if items else [])


def _items(image: Image, request: api_pb2.AppFetchLogsRequest) -> list[api_pb2.TaskLogs]:
    """The last `limit` lines of the time asked for."""
    since, until = _seconds(request.since), _seconds(request.until) or float("inf")
    lines = [(said, line) for said, line in image.log if since <= said <= until]
    return [
        api_pb2.TaskLogs(data=line, timestamp=said, file_descriptor=api_pb2.FILE_DESCRIPTOR_STDOUT)
        for said, line in lines[-(request.limit or len(lines)) :]
    ]


def _seconds(moment: Timestamp) -> float:
    return float(moment.seconds) + moment.nanos / 1e9


def _timestamp(seconds: float) -> Timestamp:
    return Timestamp(seconds=int(seconds), nanos=int(seconds % 1 * 1e9))
