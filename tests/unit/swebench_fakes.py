"""Rows of our own in upstream's 17 columns, and the files that hold them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PATCH = "diff --git a/adder.py b/adder.py\n--- a/adder.py\n+++ b/adder.py\n@@ -1 +1 @@\n-add = None\n+add = sum\n"
EVAL_SCRIPT = "#!/bin/bash\nset -uxo pipefail\n: '>>>>> Start Test Output'\npytest -rA\n: '>>>>> End Test Output'\n"

WITHOUT_DATASETS = """
import sys, types
sys.modules["datasets"] = types.ModuleType("datasets")
sys.modules["datasets"].__getattr__ = lambda name: None
"""
"""Before upstream's whole package is imported: more than half of what that costs is for `datasets`, which no grading
uses.
"""


def columns(instance_id: str = "acme__adder-1", **changed: Any) -> dict[str, Any]:
    """One row as upstream's file has it."""
    return {
        "repo": "acme/adder",
        "instance_id": instance_id,
        "base_commit": "0123456789abcdef0123456789abcdef01234567",
        "patch": PATCH,
        "test_patch": PATCH.replace("adder.py", "test_adder.py"),
        "problem_statement": f"Adding does not add ({instance_id}).",
        "hints_text": "",
        "created_at": "2026-01-02T03:04:05Z",
        "version": "1.0",
        "FAIL_TO_PASS": '["test_adder.py::test_add"]',
        "PASS_TO_PASS": "[]",
        "environment_setup_commit": "",
        "difficulty": "<15 min fix",
        "eval_script": EVAL_SCRIPT,
        "log_parser": "parse_log_pytest",
        "eval_type": "pass_and_fail",
        "image": f"acme/sweb.eval.x86_64.{instance_id.replace('__', '_1776_')}:latest",
    } | changed


def some_columns() -> list[dict[str, Any]]:
    """Six rows, of three repositories and two difficulties."""
    repos = ("acme/adder", "acme/adder", "acme/parser", "umbrella/web", "acme/parser", "acme/adder")
    hard = {"acme/parser": "1-4 hours"}
    return [
        columns(f"{repo.replace('/', '__')}-{number}", repo=repo, difficulty=hard.get(repo, "<15 min fix"))
        for number, repo in enumerate(repos, 1)
    ]


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """A data set file, of the format that its name says."""
    if path.suffix == ".parquet":
        import pyarrow as arrow
        import pyarrow.parquet as parquet

        parquet.write_table(arrow.Table.from_pylist([dict(row) for row in rows]), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        path.write_text(json.dumps(list(rows)))
    return path
