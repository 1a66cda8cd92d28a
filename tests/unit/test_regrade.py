"""A regrade grades what the run graded: the same data, found from anywhere, or nothing at all."""

import json
from pathlib import Path
from typing import Any

import pytest
from agentcompass.adapters.results.file_store import FileResultStore
from agentcompass.adapters.results.reading import StoredRun, read_run
from agentcompass.app.regrade import refuse_other_data, regrade_settings
from agentcompass.app.settings import Flags
from agentcompass.domain.errors import ConfigError
from agentcompass.domain.redaction import Redactor
from agentcompass.testing.result_store import run_info
from command_line import command
from swebench_fakes import columns, write_rows

FAKES = "agentcompass.testing.fakes"
COMMIT = "c" * 40


@pytest.fixture
def swebench_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run whose data set was named from the folder `data`; nop in a fake sandbox, so nothing was graded."""
    pytest.importorskip("swebench")
    (tmp_path / "data").mkdir()
    write_rows(tmp_path / "data" / "rows.jsonl", [columns("acme__adder-1"), columns("acme__adder-2")])
    monkeypatch.chdir(tmp_path / "data")
    params = json.dumps({"dataset": "rows.jsonl", "limit": 1})
    place = ("--results-dir", tmp_path / "results", "--run-name", "name", "--run-id", "id", "--max-retries", 0)
    fake = ("--env", f"{FAKES}:FakeEnvironment", "--benchmark-params", params)
    command("run", "swebench_verified", "nop", "none", *fake, *place)
    return tmp_path / "results" / "name" / "id"


def settled(run: StoredRun, **flags: Any) -> Any:
    return regrade_settings(run, None, [], Flags(**flags), {})


async def recorded(results_dir: Path, dataset: dict[str, Any], **asked: Any) -> StoredRun:
    """A run of SWE-bench Verified that has recorded `dataset`, and `asked` in its request."""
    request = {"benchmark": "swebench_verified", "environment": "docker", "model": {"name": "m"}, **asked}
    store = FileResultStore(results_dir, Redactor())
    list(await store.open(run_info(request=request, dataset=dataset)))
    folder = store.folder
    await store.close()
    return read_run(folder)


def test_the_same_data_from_another_folder_are_taken(
    swebench_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = read_run(swebench_run)
    settings = settled(run, results_dir=tmp_path / "results")
    refuse_other_data(run, settings)

    assert settings.request().benchmark_params["dataset"] == str(tmp_path / "data" / "rows.jsonl")
    assert settings.request().selection.limit == 1


def test_data_that_changed_are_refused_in_a_line_and_nothing_is_started(swebench_run: Path) -> None:
    changed = columns("acme__adder-1", PASS_TO_PASS='["test_adder.py::test_more"]')
    write_rows(Path("rows.jsonl"), [changed, columns("acme__adder-2")])
    code, out, err = command("results", "regrade", swebench_run, "--results-dir", swebench_run.parents[1])

    assert (code, out) == (2, "")
    assert "name/id: dataset.sha256, tasks_sha256 differ" in err
    assert len(err.splitlines()) == 1
    assert [folder.name for folder in swebench_run.parent.iterdir()] == ["id"]


def test_another_version_of_the_grader_is_no_other_data(swebench_run: Path) -> None:
    path = swebench_run / "run_info.json"
    document = json.loads(path.read_text())
    document["dataset"]["swebench"] = document["versions"]["swebench"] = "0.1"
    path.write_text(json.dumps(document))
    run = read_run(swebench_run)

    refuse_other_data(run, settled(run))


def test_a_run_that_does_not_tell_its_data_is_refused(swebench_run: Path) -> None:
    path = swebench_run / "run_info.json"
    document = json.loads(path.read_text())
    del document["identity"]["tasks_sha256"]
    path.write_text(json.dumps(document))
    run = read_run(swebench_run)

    with pytest.raises(ConfigError, match="does not say what its data were"):
        refuse_other_data(run, settled(run))


async def test_data_of_the_hub_are_taken_at_the_recorded_commit(tmp_path: Path) -> None:
    dataset = {"dataset": "org/name", "split": "dev", "revision": COMMIT, "sha256": "0" * 64, "swebench": "5"}
    run = await recorded(tmp_path, dataset, benchmark_params={"revision": "main", "eval_timeout_s": 60.0})
    params = settled(run).request().benchmark_params

    assert {name: params[name] for name in ("dataset", "split", "revision", "eval_timeout_s")} == {
        "dataset": "org/name",
        "split": "dev",
        "revision": COMMIT,
        "eval_timeout_s": 60.0,
    }


async def test_the_new_run_is_named_after_the_old_and_flags_go_over_it(tmp_path: Path) -> None:
    run = await recorded(tmp_path, {})
    usual, asked = settled(run), settled(run, run_id="mine", data_dir=tmp_path / "cache")

    assert (usual.request().run_name, usual.request().run_id) == ("name", "id-regrade")
    assert asked.request().run_id == "mine"
    assert asked.data_dir == tmp_path / "cache"


@pytest.mark.parametrize("recipes", [[], ["swebench"], ["my_pkg:OurImages"], None])
async def test_the_recipes_are_those_of_the_run(tmp_path: Path, recipes: list[str] | None) -> None:
    asked = settled(await recorded(tmp_path, {}, enabled_recipes=recipes)).request().enabled_recipes

    assert asked == (None if recipes is None else tuple(recipes))


async def test_only_what_was_masked_comes_from_the_usual_layers(tmp_path: Path) -> None:
    variables = {"HTTP_PROXY": "http://proxy:1", "HF_TOKEN": "***", "LANG": "C"}
    environment_params = {"image": "a:1", "volumes": ["a:/a", "***:/b"], "env_variables": variables}
    run = await recorded(tmp_path, {}, environment_params=environment_params)
    usual = tmp_path / "usual.yaml"
    usual.write_text("environments: {docker: {env_variables: {HF_TOKEN: from-the-file}}}")
    asked = regrade_settings(run, None, [usual], Flags(), {}).request().environment_params

    assert asked["env_variables"] == {**variables, "HF_TOKEN": "from-the-file"}
    assert asked["image"] == "a:1"
    assert "volumes" not in asked


def test_a_fake_run_is_regraded_from_the_command_line(tmp_path: Path) -> None:
    place = ("--results-dir", tmp_path)
    named = ("--run-name", "name", "--run-id", "id", "--env", f"{FAKES}:FakeEnvironment")
    command("run", f"{FAKES}:FakeBenchmark", f"{FAKES}:FakeHarness", "none", *named, *place)
    code, out, err = command("results", "regrade", "id", *place, "--data-dir", tmp_path / "cache")

    assert code in (0, 1), err
    assert "3 selected" in out
    assert (tmp_path / "name" / "id-regrade" / "run_info.json").is_file()
