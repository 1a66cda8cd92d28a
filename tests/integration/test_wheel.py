"""The wheel, built and installed into a fresh environment, works from any folder and holds what it should."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("src", "config", "pyproject.toml", "setup.py", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the sources, so that no stale build folder takes part."""
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, tree / name)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(out), str(tree)]
    subprocess.run(build, check=True, cwd=tree)
    (built,) = out.glob("agentcompass-*.whl")
    return built


@pytest.fixture(scope="module")
def command(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`agentcompass` in a new virtual environment: the wheel is installed, its dependencies are lent by a .pth file.

    The .pth adds a folder, whose own .pth files (an editable install of this project) are then not followed.
    """
    home = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    python = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)], check=True)
    purelib = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    Path(purelib, "lent_dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return home / "bin" / "agentcompass"


def called(command: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the installed command in `folder`, with none of this process's own settings."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("AGENTCOMPASS_", "PYTHON"))}
    return subprocess.run([command, *arguments], cwd=folder, env=kept, capture_output=True, text=True, check=False)


def names_in(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_the_installed_package_is_the_wheel_not_the_source_tree(command: Path, tmp_path: Path) -> None:
    python = command.with_name("python")
    code = "import agentcompass; print(agentcompass.__file__)"
    place = subprocess.run([python, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    assert Path(place.strip()).is_relative_to(command.parents[1])


def test_every_module_and_data_file_of_the_source_is_in_the_wheel(wheel: Path) -> None:
    modules = {f"agentcompass/{path.relative_to(ROOT / 'src')}" for path in (ROOT / "src").rglob("*.py")}
    tasks = ROOT / "src" / "adapters" / "benchmarks" / "quickstart"
    data = {f"agentcompass/{path.relative_to(ROOT / 'src')}" for path in tasks.rglob("*") if path.is_file()}
    data = {name for name in data if "__pycache__" not in name}
    wanted = modules | data | {"agentcompass/py.typed", "agentcompass/config/defaults.yaml"}

    assert wanted - set(names_in(wheel)) == set()


def test_nothing_else_leaks_into_the_wheel(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in names_in(wheel)}
    tests = [name for name in names_in(wheel) if name.split("/")[1] in {"tests", "docs", "performance"}]

    assert {top.rpartition(".")[2] for top in tops} == {"agentcompass", "dist-info"}
    assert tests == []


def test_the_licence_is_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("licenses/LICENSE"))
        text = archive.read(name).decode()

    assert "Apache License" in text


def test_the_version_is_shown(command: Path, tmp_path: Path) -> None:
    result = called(command, tmp_path, "--version")

    assert (result.returncode, result.stderr) == (0, "")
    assert "0.1.0" in result.stdout


def test_the_settings_are_shown_with_the_defaults_of_the_wheel(command: Path, tmp_path: Path) -> None:
    result = called(command, tmp_path, "config", "show")

    assert result.returncode == 0, result.stderr
    assert "task_concurrency" in result.stdout


def test_the_benchmarks_are_listed(command: Path, tmp_path: Path) -> None:
    result = called(command, tmp_path, "list", "benchmarks", "--json")

    assert result.returncode == 0, result.stderr
    assert "quickstart" in json.dumps(json.loads(result.stdout))


def test_the_quickstart_runs_from_another_folder(command: Path, tmp_path: Path) -> None:
    arguments = ("run", "quickstart", "oracle", "none", "--env", "host_process")
    result = called(command, tmp_path, *arguments, "--results-dir", "out")
    summaries = list((tmp_path / "out").glob("*/*/summary.json"))

    assert result.returncode == 0, result.stderr
    assert [json.loads(path.read_text())["accuracy_selected"]["value"] for path in summaries] == [1.0]
