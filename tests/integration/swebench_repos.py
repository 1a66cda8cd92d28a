"""Repositories of our own, each as SWE-bench has one: the files before and after, the hidden tests, a wrong patch."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Files = Mapping[str, str | bytes | None]
"""Path -> content; None is a file that is removed. Scripts, which begin with `#!`, are executable."""


@dataclass(frozen=True)
class Repository:
    """One instance: what its row and its image are made from."""

    name: str
    parser: str
    command: str
    files: Files
    gold: Files
    hidden: Files
    fail_to_pass: Sequence[str]
    pass_to_pass: Sequence[str]
    wrong: str
    """Bash that an agent may run, and that solves nothing."""
    install: str = "true"
    set_up: Files = field(default_factory=dict)
    """What the image's own commit changes."""

    @property
    def instance_id(self) -> str:
        """As upstream names instances."""
        return f"acme__{self.name}-1"


def _files(text: str) -> dict[str, str]:
    """Files that follow each other, each below its name: `==> path`."""
    parts = re.split(r"^==> (.*)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


ADDER = Repository(
    name="adder",
    parser="parse_log_pytest",
    command="pytest -rA tests/test_adder.py",
    files=_files("""
==> adder/__init__.py
def add(numbers):
    total = 0
    for number in numbers[1:]:
        total += number


    return total
==> tests/__init__.py
==> tests/test_adder.py
from adder import add


def test_nothing():
    assert add([]) == 0
"""),
    gold=_files("""
==> adder/__init__.py
def add(numbers):
    total = 0
    for number in numbers:
        total += number


    return total
"""),
    hidden=_files("""
==> tests/test_adder.py
import pytest

from adder import add


def test_nothing():
    assert add([]) == 0


@pytest.mark.parametrize("numbers", [[1], [2, 3]], ids=["one", "two"])
def test_all(numbers):
    assert add(numbers) == sum(numbers)
"""),
    fail_to_pass=["tests/test_adder.py::test_all[one]", "tests/test_adder.py::test_all[two]"],
    pass_to_pass=["tests/test_adder.py::test_nothing"],
    wrong="sed -i 's/total = 0/total = 1/' adder/__init__.py",
)
PAGES = Repository(
    name="pages",
    parser="parse_log_django",
    command="./tests/runtests.py --verbosity 2 pages_tests.test_urls",
    files=_files("""
==> pages/__init__.py
==> pages/urls.py
def join(root, path):
    return root + "/" + path
==> tests/runtests.py
#!/usr/bin/env python
import sys
import unittest
from pathlib import Path

tests = Path(__file__).resolve().parent
sys.path[:0] = [str(tests), str(tests.parent)]
unittest.main(module=None, argv=["runtests", *sys.argv[3:]], verbosity=int(sys.argv[2]))
==> tests/pages_tests/__init__.py
==> tests/pages_tests/test_urls.py
from unittest import TestCase

from pages.urls import join


class JoinTests(TestCase):
    def test_plain(self):
        self.assertEqual(join("a", "b"), "a/b")
"""),
    gold=_files("""
==> pages/urls.py
def join(root, path):
    return root.rstrip("/") + "/" + path
"""),
    hidden=_files("""
==> tests/pages_tests/test_urls.py
from unittest import TestCase, skip

from pages.urls import join


class JoinTests(TestCase):
    def test_plain(self):
        self.assertEqual(join("a", "b"), "a/b")

    def test_slash(self):
        self.assertEqual(join("a/", "b"), "a/b")

    @skip("not here")
    def test_elsewhere(self):
        self.fail()
"""),
    fail_to_pass=["test_slash (pages_tests.test_urls.JoinTests.test_slash)"],
    pass_to_pass=[
        "test_plain (pages_tests.test_urls.JoinTests.test_plain)",
        "test_elsewhere (pages_tests.test_urls.JoinTests.test_elsewhere)",
    ],
    wrong="""sed -i 's|root + "/"|root|' pages/urls.py""",
)
SYMBOLS = Repository(
    name="symbols",
    parser="parse_log_sympy",
    command="PYTHONWARNINGS='ignore' bin/test -C --verbose symbols/tests/test_core.py",
    files=_files("""
==> bin/test
#!/usr/bin/env python
import importlib
import sys
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
path = sys.argv[-1]
module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
failed = {}
for name, test in vars(module).items():
    if name.startswith("test_"):
        try:
            test()
        except Exception:
            failed[name] = traceback.format_exc()
        print(name, "F" if name in failed else "ok", flush=True)
for name, text in failed.items():
    print("_" * 20, f"{path}:{name}", "_" * 20)
    print(text)
sys.exit(bool(failed))
==> symbols/__init__.py
def double(symbol):
    return symbol + symbol
==> symbols/tests/__init__.py
==> symbols/tests/test_core.py
from symbols import double


def test_number():
    assert double(2) == 4
"""),
    gold=_files("""
==> symbols/__init__.py
def double(symbol):
    return f"2*{symbol}" if isinstance(symbol, str) else symbol + symbol
"""),
    hidden=_files("""
==> symbols/tests/test_core.py
from symbols import double


def test_number():
    assert double(2) == 4


def test_symbol():
    assert double("x") == "2*x"
"""),
    fail_to_pass=["test_symbol"],
    pass_to_pass=["test_number"],
    wrong="""sed -i 's/return .*/return "2*x"/' symbols/__init__.py""",
)
PLOTTER = Repository(
    name="plotter",
    parser="parse_log_astropy",
    command="pytest -rA plotter_tests/test_plotter.py",
    files=_files("""
==> .gitignore
*.egg-info
__pycache__
==> setup.py
from setuptools import setup

setup(name="plotter", packages=["plotter"])
==> plotter/__init__.py
from plotter.old import dots

__all__ = ["dots"]
==> plotter/old.py
def dots():
    return []
==> plotter_tests/test_plotter.py
import plotter


def test_import():
    assert plotter.__all__ == ["dots"]
"""),
    set_up=_files("""
==> setup.py
from setuptools import setup

setup(name="plotter", version="1", packages=["plotter"])
"""),
    gold=_files("""
==> plotter/__init__.py
from plotter.new import dots

__all__ = ["dots"]
==> plotter/new.py
from pathlib import Path


def dots():
    return list(Path(__file__).with_name("with  blanks ü.bin").read_bytes())
==> plotter/tool.sh
#!/bin/sh
exit 0
""")
    | {"plotter/old.py": None, "plotter/with  blanks ü.bin": b"\x00\x01\r\n\xff"},
    hidden=_files("""
==> plotter_tests/test_plotter.py
import os

import plotter

FOLDER = os.path.dirname(plotter.__file__)


def test_import():
    assert plotter.__all__ == ["dots"]


def test_dots():
    assert plotter.dots() == [0, 1, 13, 10, 255]


def test_files():
    assert os.access(f"{FOLDER}/tool.sh", os.X_OK)
    assert not os.path.exists(f"{FOLDER}/old.py")
"""),
    fail_to_pass=["plotter_tests/test_plotter.py::test_dots", "plotter_tests/test_plotter.py::test_files"],
    pass_to_pass=["plotter_tests/test_plotter.py::test_import"],
    wrong="printf 'def test_dots():\\n    pass\\n' > plotter_tests/test_plotter.py",
    install="python -m pip install -e .",
)
REPOSITORIES = (ADDER, PAGES, SYMBOLS, PLOTTER)
