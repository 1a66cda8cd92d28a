"""Finding the data set: a local file, or one of a hub that is a server of our own here."""

import errno
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import huggingface_hub
import huggingface_hub.constants
import pytest
from agentcompass.adapters.benchmarks.swebench import dataset as module
from agentcompass.adapters.benchmarks.swebench.dataset import DataSet, find_dataset
from agentcompass.adapters.benchmarks.swebench.parameters import SweBenchParameters
from agentcompass.domain.errors import ConfigError
from swebench_fakes import columns, write_rows

OWN = "acme/benchmark"
FIRST, SECOND = "1" * 40, "2" * 40
TOKEN = "hf_0123456789abcdefghij"
DATA = "data/test-00000-of-00001.parquet"


class Hub(ThreadingHTTPServer):
    """Answers the two calls: what is in a revision, and a file of a commit."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), HubHandler)
        self.revisions = {"main": FIRST, "v1": FIRST, FIRST: FIRST}
        self.files = {DATA: b"one", "README.md": b"read me"}
        self.asked: list[str] = []
        self.tokens: set[str | None] = set()
        self.lost: set[str] = set()
        self.refuse_with: int | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class HubHandler(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        hub = self.server
        hub.asked.append(f"{self.command} {self.path}")
        hub.tokens.add(self.headers.get("Authorization"))
        if hub.refuse_with:
            self.answer(hub.refuse_with, str(self.headers).encode(), {"X-Error-Message": f"refused {TOKEN}"})
        elif self.path.startswith(f"/api/datasets/{OWN}"):
            self.tell(self.path.partition("/revision/")[2].partition("?")[0] or "main")
        elif self.path.startswith(f"/datasets/{OWN}/resolve/"):
            commit, _, name = self.path.removeprefix(f"/datasets/{OWN}/resolve/").partition("/")
            headers = {"ETag": f'"{hashlib.sha256(hub.files[name]).hexdigest()}"', "X-Repo-Commit": commit}
            self.answer(404 if name in hub.lost else 200, hub.files[name], headers)
        else:
            self.answer(404, b"", {"X-Error-Code": "RepoNotFound"})

    def tell(self, revision: str) -> None:
        commit = self.server.revisions.get(revision)
        if commit is None:
            self.answer(404, b"", {"X-Error-Code": "RevisionNotFound"})
            return
        siblings = [{"rfilename": name} for name in self.server.files]
        self.answer(200, json.dumps({"id": OWN, "sha": commit, "siblings": siblings}).encode(), {})

    def answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    server = Hub()
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"{server.url}/")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_TELEMETRY", True)
    yield server
    server.shutdown()
    server.server_close()


async def found(folder: Path, **parameters: Any) -> DataSet:
    return await find_dataset(SweBenchParameters(**parameters), OWN, folder)


async def refusal(folder: Path, **parameters: Any) -> ConfigError:
    with pytest.raises(ConfigError) as raised:
        await found(folder, **parameters)
    return raised.value


async def test_a_local_file_is_its_path_and_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_rows(tmp_path / "rows.jsonl", [columns()])
    monkeypatch.chdir(tmp_path)
    data = [await found(tmp_path / "data", dataset=name) for name in (str(file), "./rows.jsonl", "rows.jsonl")]

    assert {each.files for each in data} == {(file,)}
    assert {str(each.identity) for each in data} == {str(data[0].identity)}
    assert data[0].identity.keys() == {"dataset", "sha256"}
    assert not (tmp_path / "data").exists()


async def test_a_local_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    assert "no data set file" in str(await refusal(tmp_path, dataset="none.parquet"))


async def test_a_local_file_that_may_not_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_rows(tmp_path / "rows.jsonl", [columns()])

    def refused(path: Path) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refused)
    error = await refusal(tmp_path, dataset=str(file))

    assert error.message == f"cannot read the data set {str(file)!r}: Permission denied"


async def test_a_local_file_of_a_user_who_is_not_there_is_told(tmp_path: Path) -> None:
    assert "no data set file" in str(await refusal(tmp_path, dataset="~no-such-user/rows.jsonl"))


async def test_a_revision_of_a_local_file_is_refused(tmp_path: Path) -> None:
    assert "revision belongs to" in str(await refusal(tmp_path, dataset="./x.jsonl", revision="v1"))


@pytest.mark.parametrize("name", ["verified", "a/b/c", "a b/c", "rows.csv", "https://x/y"])
async def test_what_is_neither_a_file_nor_a_hub_id_is_refused(tmp_path: Path, name: str) -> None:
    assert f"{name!r} is no data set" in str(await refusal(tmp_path, dataset=name))


async def test_a_data_set_of_the_hub_is_fetched_with_its_commit(tmp_path: Path, hub: Hub) -> None:
    data = await found(tmp_path)

    assert [file.read_bytes() for file in data.files] == [b"one"]
    assert data.identity["revision"] == FIRST
    assert (data.identity["dataset"], data.identity["split"]) == (OWN, "test")


async def test_a_copy_that_is_there_needs_no_network(tmp_path: Path, hub: Hub) -> None:
    first = await found(tmp_path)
    hub.asked.clear()
    hub.revisions["main"] = SECOND
    again = [await found(tmp_path), await found(tmp_path, revision=FIRST), await found(tmp_path, dataset=OWN)]

    assert again == [first, first, first]
    assert hub.asked == []


async def test_a_copy_is_for_all_who_may_use_the_data_folder(tmp_path: Path, hub: Hub) -> None:
    (tmp_path / "usual").mkdir()
    (tmp_path / "usual" / "file").write_text("")
    await found(tmp_path / "data")
    usual = {path.stat().st_mode for path in (tmp_path / "usual", tmp_path / "usual" / "file")}

    assert {path.stat().st_mode for path in (tmp_path / "data").rglob("*")} == usual


async def test_a_data_folder_that_cannot_be_written_to_is_told(tmp_path: Path, hub: Hub) -> None:
    (tmp_path / "data").write_text("")

    assert "cannot be kept in" in str(await refusal(tmp_path / "data"))


async def test_a_disk_that_is_full_is_told_as_such_and_not_as_a_network_that_fails(
    tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", full)
    error = await refusal(tmp_path)

    assert "cannot be kept in" in error.message
    assert error.message.endswith("No space left on device")
    assert "--data-dir" in error.hint
    assert list((tmp_path / "hub" / "acme--benchmark").iterdir()) == []


async def test_a_tag_or_branch_is_asked_for_each_time(tmp_path: Path, hub: Hub) -> None:
    first = await found(tmp_path, revision="v1")
    hub.revisions["v1"] = SECOND
    hub.files[DATA] = b"two"
    second = await found(tmp_path, revision="v1")

    assert [data.identity["revision"] for data in (first, second)] == [FIRST, SECOND]
    assert second.files[0].read_bytes() == b"two"
    assert first.files[0].read_bytes() == b"one"


async def test_another_revision_does_not_become_the_default_copy(tmp_path: Path, hub: Hub) -> None:
    hub.revisions["old"] = SECOND
    await found(tmp_path, revision="old")

    assert (await found(tmp_path)).identity["revision"] == FIRST


async def test_a_split_in_several_files_is_taken_whole_and_in_order(tmp_path: Path, hub: Hub) -> None:
    hub.files = {f"data/dev-0000{n}-of-00003.parquet": b"%d" % n for n in (2, 0, 1)} | {DATA: b"other"}
    data = await found(tmp_path, split="dev")

    assert [file.read_bytes() for file in data.files] == [b"0", b"1", b"2"]


async def test_parquet_is_preferred_and_a_plain_name_will_do(tmp_path: Path, hub: Hub) -> None:
    hub.files = {"test.jsonl": b"lines", "test.parquet": b"table", "latest.parquet": b"other"}
    data = await found(tmp_path)

    assert [file.read_bytes() for file in data.files] == [b"table"]


async def test_a_split_that_is_not_there_is_told(tmp_path: Path, hub: Hub) -> None:
    assert "has no file of a split 'dev'" in str(await refusal(tmp_path, split="dev"))


async def test_a_split_in_several_folders_is_refused(tmp_path: Path, hub: Hub) -> None:
    hub.files = {"a/test.parquet": b"", "b/test.parquet": b""}

    assert "in several folders" in str(await refusal(tmp_path))


async def test_a_data_set_or_revision_that_is_not_there_is_told(tmp_path: Path, hub: Hub) -> None:
    assert "no data set 'acme/none'" in str(await refusal(tmp_path, dataset="acme/none"))
    assert "has no revision 'v9'" in str(await refusal(tmp_path, revision="v9"))


async def test_the_token_is_sent_and_never_told(
    tmp_path: Path, hub: Hub, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    hub.refuse_with = 403
    error = await refusal(tmp_path)

    assert hub.tokens == {f"Bearer {TOKEN}"}
    assert "HTTP 403" in str(error)
    assert error.__cause__ is None
    assert TOKEN not in f"{error}{capfd.readouterr()}{caplog.text}"


async def test_without_a_network_the_mend_is_told_and_nothing_is_left(tmp_path: Path, hub: Hub) -> None:
    hub.refuse_with = 400
    error = await refusal(tmp_path)

    assert "cannot fetch the data set 'acme/benchmark'" in error.message
    assert "`dataset`" in error.hint
    assert list((tmp_path / "hub" / "acme--benchmark").iterdir()) == []


async def test_an_endpoint_that_does_not_answer_is_told(
    tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://user:password@127.0.0.1:1")
    error = await refusal(tmp_path)

    assert "cannot fetch the data set 'acme/benchmark': " in str(error)
    assert "password" not in str(error)


async def test_a_file_store_out_of_reach_behind_a_hub_that_answers_is_told(
    tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreached(*_: object, **__: object) -> str:
        raise RuntimeError(f"Data processing error: CAS service error : ReqwestMiddleware Error: {TOKEN}")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", unreached)  # as hf_xet does
    error = await refusal(tmp_path)

    assert error.message == "cannot fetch the data set 'acme/benchmark': RuntimeError"
    assert "`dataset`" in error.hint


async def test_a_file_that_fails_leaves_no_half_copy(tmp_path: Path, hub: Hub) -> None:
    names = [f"data/test-0000{n}-of-00002.parquet" for n in range(2)]
    hub.files = {name: name.encode() for name in names}
    hub.lost = {names[1]}
    error = await refusal(tmp_path)
    hub.lost = set()
    data = await found(tmp_path)

    assert "cannot fetch the data set 'acme/benchmark'" in str(error)
    assert [file.read_bytes() for file in data.files] == [name.encode() for name in names]


async def test_without_the_hubs_package_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "import_module", absent)

    assert (await refusal(tmp_path)).hint == "pip install 'agentcompass[swebench]'"


def absent(name: str) -> None:
    raise ModuleNotFoundError(name)
