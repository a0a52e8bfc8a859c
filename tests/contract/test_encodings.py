"""Files are read and written as UTF-8 in every locale: each call that takes an encoding names it."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ("worker", "operator", "charts", "examples")
DOCUMENT = """\
apiVersion: delayq.dev/v1alpha1
kind: DelayQueue
metadata: {name: orders, annotations: {owner: "Björn"}}
spec:
  redis: {standalone: {host: redis}}
  handler: {exec: {command: [echo, "Grüße"]}}
"""
LOAD_SCRIPTS = """
import delayq.testing
from pathlib import Path
from delayq.protocol import scripts
for path in Path(str(scripts._LUA)).glob("*.lua"): scripts.load(path.stem)
"""


def unnamed(source: str) -> Iterator[int]:
    """Yield the lines of calls that would take the encoding of the locale."""
    for call in ast.walk(ast.parse(source)):
        if isinstance(call, ast.Call) and not {each.arg for each in call.keywords} & {"encoding", None}:
            name = getattr(call.func, "id", getattr(call.func, "attr", ""))
            if (
                (name, len(call.args)) in {("read_text", 0), ("write_text", 1)}
                or _opens_text(name, call)
                or _decodes(call)
            ):
                yield call.lineno


def _decodes(call: ast.Call) -> bool:
    """subprocess' text=True means the encoding of the locale."""
    words = {
        each.arg
        for each in call.keywords
        if isinstance(each.value, ast.Constant) and each.value.value is True
    }
    return bool(words & {"text", "universal_newlines"})


def _opens_text(name: str, call: ast.Call) -> bool:
    """open(file, …), os.fdopen(file, …) and file.open("r"); os.open, and other objects with an open(), take no mode."""
    given = [*call.args, *(each.value for each in call.keywords if each.arg == "mode")]
    constants = [str(each.value) for each in given if isinstance(each, ast.Constant)]
    modes = [mode for mode in constants if mode and set(mode) <= set("rwaxtb+")]
    text = not any("b" in mode for mode in modes)
    if name == "open" and isinstance(call.func, ast.Attribute):
        return text and bool(modes)
    return text and name in {"open", "fdopen"}


@pytest.mark.parametrize(
    "source",
    [
        *("open(f)", 'open(f, "w")', 'path.open("r")', 'path.open(mode="a")', 'os.fdopen(f, "w")'),
        *("path.read_text()", "path.write_text(text)", "subprocess.run(argv, text=True)"),
    ],
)
def test_a_call_without_an_encoding_is_found(source: str) -> None:
    assert list(unnamed(source)) == [1]


@pytest.mark.parametrize(
    "source", ['open(f, "rb")', "client.open()", "os.open(f, flags)", 'open(f, encoding="ascii")']
)
def test_other_calls_are_not(source: str) -> None:
    assert list(unnamed(source)) == []


def test_every_shipped_file_names_the_encoding_of_files_that_it_opens() -> None:
    files = [path for folder in SHIPPED for path in (ROOT / folder).rglob("*.py")]
    assert len(files) > 100
    assert [
        f"{path.relative_to(ROOT)}:{line}" for path in files for line in unnamed(path.read_text("utf-8"))
    ] == []


def test_the_scripts_and_documents_of_the_package_load_in_an_ascii_locale(tmp_path: Path) -> None:
    (tmp_path / "queue.yaml").write_text(DOCUMENT, encoding="utf-8")
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PATH": os.environ["PATH"]}
    for argv in (["-c", LOAD_SCRIPTS], ["-m", "delayq", "validate", "queue.yaml"], ["-m", "delayq", "crd"]):
        ended = subprocess.run(
            [sys.executable, *argv], env=ascii_only, cwd=tmp_path, capture_output=True, check=False
        )
        assert (ended.returncode, ended.stderr) == (0, b""), argv
