"""The kinds of field that task.toml has: what each accepts, and what it refuses in words."""

import re
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StrictInt, StrictStr
from pydantic_core import PydanticCustomError

from ....domain.sandbox import LONGEST_TIMEOUT_S

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TASK_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_SIZE = re.compile(r"(\d{1,12})\s*([KMG])B?", re.IGNORECASE)
_MIB = {"K": 1 / 1024, "M": 1, "G": 1024}
Number = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
Seconds = Annotated[Number, Field(le=LONGEST_TIMEOUT_S)]
Delay = Annotated[float, Field(strict=True, ge=0, le=LONGEST_TIMEOUT_S, allow_inf_nan=False)]
RESERVED = "AGENTCOMPASS_ROOT"
"""Set by environments that keep a task's absolute paths below a folder of their own."""


def _problem(reason: str) -> PydanticCustomError:
    return PydanticCustomError("task_format", "{reason}", {"reason": reason})


def refused(what: str) -> BeforeValidator:
    def refuse(value: Any) -> None:
        if value not in (None, [], {}):
            raise _problem(f"{what}: not supported")

    return BeforeValidator(refuse)


def _network(value: Any) -> Any:
    if value == "allowlist":
        raise _problem("a network with an allow list: not supported, use 'public' or 'no-network'")
    return value


def _os(value: Any) -> Any:
    if isinstance(value, str) and value.lower() == "windows":
        raise _problem("Windows tasks: not supported")
    return value.lower() if isinstance(value, str) else value


def _variables(value: dict[str, str]) -> dict[str, str]:
    for name, text in value.items():
        if not VARIABLE.fullmatch(name) or name == RESERVED:
            raise _problem(f"{name!r} cannot be set as an environment variable")
        if "\0" in text:
            raise _problem(f"the value of {name!r} contains a NUL byte")
    return value


def _absolute(value: str) -> str:
    if not value.startswith("/") or ".." in PurePosixPath(value).parts or "\0" in value:
        raise _problem(f"{value!r} is not an absolute path without '..'")
    return value


def _mib(value: Any) -> Any:
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if value is None:
        return None
    if match is None:
        raise _problem("not a size: use a number with K, M or G, as in '2G'")
    return max(1, int(int(match[1]) * _MIB[match[2].upper()]))


def _user(value: Any) -> Any:
    known = isinstance(value, str | int) and not isinstance(value, bool)
    if not known or not re.fullmatch(r"[A-Za-z0-9_][\w.-]*(:[\w.-]+)?", str(value), re.ASCII):
        raise _problem(f"{value!r} is not a user name or id")
    return str(value)


def _schema_version(value: str) -> str:
    if not re.fullmatch(r"[01](\.\d+)*", value):
        raise _problem(f"{value!r}: only versions 1.x of the format are supported")
    return value


def _task_name(value: str) -> str:
    if not _TASK_NAME.fullmatch(value) or ".." in value:
        raise _problem(f"{value!r} is not of the form 'org/name'")
    return value


def _image(value: str) -> str:
    if not value or re.search(r"\s", value) or value.startswith("-"):
        raise _problem(f"{value!r} is not the name of an image")
    return value


def _shared(value: Any) -> Any:
    if value == "separate":
        raise _problem("a separate verifier environment: not supported")
    return value


def _no_gpus(value: Any) -> Any:
    if value not in (None, 0):
        raise _problem("GPUs: not supported")
    return value


def _refused_patterns(value: Any) -> tuple[()]:
    if value:
        raise _problem("patterns to exclude: not supported")
    return ()


Variables = Annotated[dict[str, StrictStr], AfterValidator(_variables)]
AbsolutePath = Annotated[StrictStr, AfterValidator(_absolute)]
User = Annotated[str, BeforeValidator(_user)]
NetworkMode = Annotated[Literal["public", "no-network"], BeforeValidator(_network)]
MiB = Annotated[StrictInt, Field(gt=0)]
Size = Annotated[MiB | None, BeforeValidator(_mib)]
HostList = Annotated[None, refused("a list of allowed hosts")]


Shared = Annotated[Literal["shared"], BeforeValidator(_shared)]
Linux = Annotated[Literal["linux"], BeforeValidator(_os)]
NoGpus = Annotated[Literal[0] | None, BeforeValidator(_no_gpus)]
NoPatterns = Annotated[tuple[()], BeforeValidator(_refused_patterns)]
Version = Annotated[StrictStr, AfterValidator(_schema_version)]
TaskName = Annotated[StrictStr, AfterValidator(_task_name)]
Image = Annotated[StrictStr, AfterValidator(_image)]
