"""What a user can set of a SWE-bench benchmark."""

from pydantic import Field
from pydantic.config import JsonDict

from ....domain.value import Parameters
from .repository import SCRIPT_LIMIT_S

_TOLD_BY_THE_DATA: JsonDict = {"identity": False}
"""What these lead to, a commit and a SHA-256, is part of a run's identity by `dataset()`."""


class SweBenchParameters(Parameters):
    """Which data, which instances of it, and the limits."""

    dataset: str | None = Field(default=None, min_length=1, json_schema_extra=_TOLD_BY_THE_DATA)
    """Instead of the benchmark's own: a local .parquet, .jsonl or .json file, or a data set of the hub (`org/name`)."""
    split: str = Field(default="test", pattern=r"^\w[\w.-]*$", json_schema_extra=_TOLD_BY_THE_DATA)
    """Split of a data set of the hub; a local file is one split."""
    revision: str | None = Field(default=None, min_length=1, json_schema_extra=_TOLD_BY_THE_DATA)
    """Commit, tag or branch on the hub; null is the copy that is there, or else today's. The commit is recorded."""
    repo: str | tuple[str, ...] = ()
    """Only instances of this repository, or of these, as in `django/django`."""
    difficulty: str | tuple[str, ...] = ()
    """Only instances of this difficulty, or of these, as in `<15 min fix`."""
    seed: int | None = None
    """Shuffle the instances by this number, before `offset` and `limit`."""
    offset: int = Field(default=0, ge=0)
    """Leave out the first so many."""
    agent_timeout_s: float = Field(default=10800, gt=0, allow_inf_nan=False)
    """Limit of the agent's work; the harness's own limits on steps and cost come first, as a rule."""
    eval_timeout_s: float = Field(default=1800, gt=0, allow_inf_nan=False)
    """Limit of one run of the hidden tests; the default is upstream's."""
    start_timeout_s: float = Field(default=3600, gt=0, allow_inf_nan=False, json_schema_extra={"identity": False})
    """Limit of pulling the image and starting a sandbox."""
    prepare_timeout_s: float = Field(default=600, gt=0, le=SCRIPT_LIMIT_S, json_schema_extra={"identity": False})
    """Limit of bringing the repository to its base state before the agent starts."""
    collect_timeout_s: float = Field(default=600, gt=0, le=SCRIPT_LIMIT_S, json_schema_extra={"identity": False})
    """Limit of taking what has changed in the repository after the agent has ended."""
