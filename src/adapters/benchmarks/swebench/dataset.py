"""Where the rows come from: a local file, or a data set of the hub that is fetched once and kept."""

import asyncio
import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import JsonValue

from ....domain.errors import ConfigError
from ....domain.local_path import local_path
from ..data_folder import beside, cannot_be_written, keeping, publish
from .parameters import SweBenchParameters
from .rows import INSTALL, SUFFIXES

_HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_INFO_TIMEOUT_S = 60
_ELSEWHERE = "fetch it where there is a network, and give the file as the benchmark parameter `dataset`"


@dataclass(frozen=True)
class DataSet:
    """Files on disk, and what they are: `dataset`, `sha256`, and of the hub `split` and `revision`, a commit."""

    files: tuple[Path, ...]
    identity: dict[str, JsonValue]


async def find_dataset(parameters: SweBenchParameters, own: str, data_dir: Path) -> DataSet:
    """The files of `parameters.dataset`, or of `own` of the hub. No network for a local file, nor for a copy in
    `data_dir` unless a tag or branch is asked for.

    Raises:
        ConfigError: no such file, data set, revision or split; a file that cannot be read; no network; the hub's
            package is not installed; `data_dir` cannot be written to.
    """
    name = parameters.dataset or own
    if name.endswith(SUFFIXES) or name.startswith((".", "/", "~")):
        return await asyncio.to_thread(_local, Path(name), parameters)
    if not _HUB_ID.fullmatch(name):
        raise ConfigError(
            f"{name!r} is no data set", hint=f"give a file that ends in {' or '.join(SUFFIXES)}, or a hub id org/name"
        )
    return await asyncio.to_thread(_of_hub, name, parameters, data_dir / "hub" / name.replace("/", "--"))


def _local(path: Path, parameters: SweBenchParameters) -> DataSet:
    file = local_path(path).absolute()
    if parameters.revision is not None:
        raise ConfigError("revision belongs to a data set of the hub, not to a local file", hint="leave it out")
    try:
        if not file.is_file():
            raise ConfigError(f"no data set file {str(file)!r}")
        return DataSet((file,), {"dataset": str(file), "sha256": _sha256([file])})
    except OSError as exc:
        raise ConfigError(f"cannot read the data set {str(file)!r}: {exc.strerror}") from exc


def _of_hub(name: str, parameters: SweBenchParameters, home: Path) -> DataSet:
    split, revision = parameters.split, parameters.revision
    newest = home / f"{split}.commit"
    with keeping(f"the data set {name!r}", home):
        commit = _kept_commit(newest, revision)
        if commit is None or not (home / commit / split).is_dir():
            commit = _Hub(name).fetch(revision, split, home)
            if revision is None:
                _write_whole(newest, commit)
        files = sorted((home / commit / split).iterdir())
        sha256 = _sha256(files)
    identity: dict[str, JsonValue] = {"dataset": name, "split": split, "revision": commit, "sha256": sha256}
    return DataSet(tuple(files), identity)


def _kept_commit(newest: Path, revision: str | None) -> str | None:
    if revision is None:
        return newest.read_text() if newest.exists() else None
    return revision if _COMMIT.fullmatch(revision) else None


def _write_whole(path: Path, text: str) -> None:
    with beside(path.parent) as work:
        file = work / path.name
        file.write_text(text)
        file.replace(path)


def _sha256(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()


class _Hub:
    """One data set of the hub. Its messages tell status codes only: replies and addresses may hold credentials."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._endpoint = os.environ.get("HF_ENDPOINT") or None
        try:
            self._hub, self._errors = import_module("huggingface_hub"), import_module("huggingface_hub.errors")
        except ModuleNotFoundError as exc:
            what = f"the data set {name!r} is on the hub, which needs the package huggingface_hub"
            raise ConfigError(what, hint=INSTALL) from exc

    def fetch(self, revision: str | None, split: str, home: Path) -> str:
        """The files of `split`, whole or not at all, to `home`/COMMIT/`split`; returns the commit."""
        with beside(home) as work:
            commit, names = self._asked(self._listed, revision)
            self._asked(self._download, commit, _files_of(split, names, self._name), work)
            (home / commit).mkdir(exist_ok=True)
            publish(work / "files", home / commit / split)
        return str(commit)

    def _asked(self, call: Any, *arguments: Any) -> Any:
        errors = self._errors
        try:
            return call(*arguments)
        except errors.RevisionNotFoundError:
            raise ConfigError(f"the data set {self._name!r} has no revision {arguments[0]!r}") from None
        except errors.RepositoryNotFoundError as exc:
            hint = "check the id; for a private or gated one set HF_TOKEN"
            raise ConfigError(f"the hub has no data set {self._name!r} for us{_status(exc)}", hint=hint) from None
        except (errors.HTTPError, errors.EntryNotFoundError, OSError, ValueError, RuntimeError) as exc:
            if isinstance(exc, OSError) and cannot_be_written(exc):
                raise
            reason = f"{type(exc).__name__}{_status(exc)}"
            raise ConfigError(f"cannot fetch the data set {self._name!r}: {reason}", hint=_ELSEWHERE) from None

    def _listed(self, revision: str | None) -> tuple[str, list[str]]:
        api = self._hub.HfApi(endpoint=self._endpoint)
        info = api.dataset_info(self._name, revision=revision, timeout=_INFO_TIMEOUT_S)
        if not _COMMIT.fullmatch(info.sha or ""):
            raise ValueError("the hub tells no commit")
        return info.sha, [sibling.rfilename for sibling in info.siblings or ()]

    def _download(self, commit: str, names: list[str], work: Path) -> None:
        (work / "files").mkdir()
        for name in names:
            kept = self._hub.hf_hub_download(
                self._name, name, repo_type="dataset", revision=commit, endpoint=self._endpoint, local_dir=work / "hub"
            )
            Path(kept).rename(work / "files" / PurePosixPath(name).name)


def _files_of(split: str, names: Iterable[str], dataset: str) -> list[str]:
    found: dict[tuple[int, str], list[str]] = {}
    shard = re.compile(rf"{re.escape(split)}(-\d+-of-\d+)?")
    for name in sorted(names):
        path = PurePosixPath(name)
        if path.suffix in SUFFIXES and shard.fullmatch(path.stem):
            found.setdefault((SUFFIXES.index(path.suffix), str(path.parent)), []).append(name)
    best = [key for key in found if key[0] == min(found)[0]]
    if len(best) == 1:
        return found[best[0]]
    what = f"has its split {split!r} in several folders" if best else f"has no file of a split {split!r}"
    raise ConfigError(f"the data set {dataset!r} {what}", hint=_ELSEWHERE)


def _status(error: BaseException) -> str:
    status = getattr(getattr(error, "response", None), "status_code", None)
    return f" (HTTP {status})" if status else ""
