"""Upstream's grading code: loaded lightly, the right version, and built as upstream builds it."""

import json
import subprocess
import sys
import textwrap
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
from agentcompass.adapters.benchmarks.swebench import upstream
from agentcompass.adapters.benchmarks.swebench.rows import Row
from agentcompass.domain.errors import ConfigError
from swebench_fakes import WITHOUT_DATASETS, columns

PARSERS = ("django", "sympy", "sphinx", "pytest", "requests", "seaborn", "redis", "gotest", "maven", "jest", "cargo")
SCRIPTS = {
    "as upstream writes it": columns()["eval_script"],
    "without an end marker": "#!/bin/bash\nset -uxo pipefail\npytest\n",
    "with blank lines at its ends": "\n\n#!/bin/bash\nset -uxo pipefail\npytest\n: '>>>>> End Test Output'\n\n\n",
    "with a heredoc and a reset": "#!/bin/bash\nset -uxo pipefail\ngit apply -v - <<'EOF'\n+a\n\n \nEOF\n"
    ": '>>>>> Start Test Output'\npytest 'a b'\n: '>>>>> End Test Output'\ngit checkout x\n",
    "with two end markers": "pytest\n: '>>>>> End Test Output'\n: '>>>>> End Test Output'\n",
    "with its header in the middle": "echo\n#!/bin/bash\nset -uxo pipefail\n: '>>>>> End Test Output'",
}


def run_python(code: str, *, stdin: str = "", paths: tuple[Path, ...] = ()) -> str:
    """What a fresh interpreter prints."""
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(map(str, paths))}
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)]
    return subprocess.run(command, input=stdin, env=env, check=True, capture_output=True, text=True).stdout


def run_with_upstream(code: str, *, stdin: str = "") -> str:
    """What a fresh interpreter prints that may import upstream's whole package."""
    return run_python(WITHOUT_DATASETS + textwrap.dedent(code), stdin=stdin)


def synthetic_rows() -> list[dict[str, Any]]:
    rows = [columns(f"acme__{n}-1", eval_script=script) for n, script in enumerate(SCRIPTS.values())]
    rows += [columns(f"acme__{name}-2", log_parser=f"parse_log_{name}") for name in PARSERS]
    rows.append(columns("acme__lists-3", FAIL_TO_PASS=["a", "b[c"], PASS_TO_PASS=[], eval_type="fail_only"))
    return rows


def test_the_test_spec_is_the_one_that_upstream_makes():
    rows = synthetic_rows()
    theirs = run_with_upstream(
        """
        import dataclasses, json, sys
        from swebench.harness.utils import make_test_spec
        specs = [make_test_spec(row) for row in json.load(sys.stdin)]
        print(json.dumps([dataclasses.asdict(spec) | {"script": spec.eval_script} for spec in specs]))
        """,
        stdin=json.dumps(rows),
    )

    ours = [upstream.test_spec(Row.model_validate(row)) for row in rows]

    assert [vars(spec) | {"script": spec.eval_script} for spec in ours] == json.loads(theirs)


def test_loading_it_brings_none_of_the_heavy_packages():
    loaded = run_python(
        """
        import sys
        from agentcompass.adapters.benchmarks.swebench.rows import Row
        from agentcompass.adapters.benchmarks.swebench import upstream
        upstream._upstream()
        print(*sys.modules)
        """
    ).split()

    heavy = {"datasets", "docker", "modal", "pandas", "pyarrow", "torch", "numpy", "dotenv"}
    assert heavy & set(loaded) == set()
    assert "swebench" in loaded


def test_a_module_that_only_names_it_loads_nothing_of_it():
    loaded = run_python("import sys, agentcompass.adapters.benchmarks.swebench.upstream; print(*sys.modules)").split()

    assert not {"swebench", "unidiff"} & set(loaded)


def test_the_whole_package_can_be_imported_afterwards():
    said = run_with_upstream(
        """
        import sys
        from agentcompass.adapters.benchmarks.swebench import upstream
        ours = upstream._upstream().grading
        assert not [name for name in sys.modules if name.startswith("swebench.harness")]
        import swebench, swebench.harness
        from swebench.harness.utils import make_test_spec
        assert swebench.harness.docker_utils and swebench.harness.reporting
        assert swebench.harness.grading is sys.modules["swebench.harness.grading"] is not ours
        assert swebench.get_eval_report is swebench.harness.grading.get_eval_report
        assert "open" not in vars(swebench.harness.grading)
        print(sorted(swebench.harness.__all__))
        """
    )

    assert "grading" in said


def test_the_whole_package_that_is_imported_already_stays_as_it_is():
    run_with_upstream(
        """
        import sys
        import swebench.harness
        before = {name: module for name, module in sys.modules.items() if name.startswith("swebench")}
        from agentcompass.adapters.benchmarks.swebench import upstream
        upstream._upstream()
        after = {name: module for name, module in sys.modules.items() if name.startswith("swebench")}
        assert before == after, set(before) ^ set(after)
        """
    )


def test_another_version_is_refused_naming_both(tmp_path: Path):
    info = tmp_path / "swebench-4.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: swebench\nVersion: 4.1.0\n")

    said = run_python(
        """
        from agentcompass.adapters.benchmarks.swebench import upstream
        from agentcompass.domain.errors import ConfigError
        try:
            upstream.swebench_version()
        except ConfigError as exc:
            print(exc)
        """,
        paths=(tmp_path,),
    )

    assert "'4.1.0'" in said
    assert "'5.0.2'" in said
    assert "pip install 'agentcompass[swebench]'" in said


def test_a_missing_package_is_refused_with_the_extra_to_install(monkeypatch: pytest.MonkeyPatch):
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(upstream, "version", missing)

    with pytest.raises(ConfigError, match=r"pip install 'agentcompass\[swebench\]'"):
        upstream.swebench_version()


def test_a_parser_that_upstream_lacks_is_refused_by_name():
    with pytest.raises(ConfigError, match="acme__adder-1: .*'parse_log_acme'"):
        upstream.test_spec(Row.model_validate(columns(log_parser="parse_log_acme")))


def test_the_pinned_version_is_the_one_that_the_extra_installs():
    project = Path(__file__).parents[2] / "pyproject.toml"

    assert f"swebench=={upstream.PINNED}" in project.read_text()
