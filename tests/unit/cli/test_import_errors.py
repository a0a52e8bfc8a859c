"""An error of code that a document names has the line of the document, and that of the code."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest
from delayq.client.document import named, read_all
from delayq.errors import InvalidDocument

from tests.unit.cli.runner import run

if TYPE_CHECKING:
    from pathlib import Path

FAULTY = """\
apiVersion: delayq.dev/v1alpha1
kind: DelayQueue
metadata: {name: %s}
spec:
  redis: {standalone: {host: 127.0.0.1, port: 7}}
  handler:
    python:
      %s
"""


@pytest.mark.parametrize(
    ("handler", "field"),
    [
        ('app: "broken:app"', "spec.handler.python.app"),
        ('callable: "broken:run"', "spec.handler.python.callable"),
        ('callable: "json:dump"', "spec.handler.python.callable"),
    ],
)
def test_an_error_of_an_import_names_the_line_of_the_document_that_asked_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handler: str, field: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "broken", raising=False)
    path = tmp_path / "queue.yaml"
    path.write_text(
        "---\n".join([FAULTY % ("orders", 'callable: "json:dumps"'), FAULTY % ("mails", handler)])
    )
    (tmp_path / "broken.py").write_text("import os\n\nundefined\n")
    broken = "NameError: name 'undefined' is not defined (broken.py line 3)" if "broken" in handler else ""
    found = run("doctor", "mails")
    assert f"queue.yaml, line 17: {field}: " in found.stdout
    assert broken in found.stdout
    checks = json.loads(run("doctor", "mails", "-o", "json").stdout)
    assert {(each["path"], each["line"]) for each in checks if each["check"] == "handler"} == {(field, 17)}
    assert {each["line"] for each in checks if each["check"] != "handler"} == {None}
    [served] = [each for each in read_all([path]) if each.queue.queue == "mails"]
    error = named(InvalidDocument(f"{field}: broken"), served)
    assert str(error) == f"{path}, document 2, line 17: {field}: broken"


def test_validate_gives_the_line_and_the_field_of_an_app_that_cannot_be_imported_as_keys_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "broken", raising=False)
    path = tmp_path / "queue.yaml"
    path.write_text(
        "---\n".join([FAULTY % ("orders", 'callable: "json:dumps"'), FAULTY % ("mails", 'app: "broken:app"')])
    )
    (tmp_path / "broken.py").write_text("undefined\n")
    message = "importing \"broken\" failed: NameError: name 'undefined' is not defined (broken.py line 1)"
    [file] = json.loads(run("validate", "queue.yaml", "-o", "json").stdout)
    assert file["problems"] == [
        {"where": "document 2", "line": 17, "path": "spec.handler.python.app", "message": message}
    ]
    said = run("validate", "queue.yaml").stdout
    assert said == f"queue.yaml: document 2, line 17: spec.handler.python.app: {message}\n"


def test_a_field_that_is_not_written_has_the_line_of_what_is_around_it_and_a_changed_file_none(
    tmp_path: Path,
) -> None:
    path = tmp_path / "queue.yaml"
    path.write_text(FAULTY % ("orders", "callable: 'a:b'"))
    [served] = read_all([path])
    error = InvalidDocument("spec.redis.auth.passwordSecretRef: not there")
    assert str(named(error, served)).startswith(f"{path}, line 5: spec.redis.auth")
    path.write_text("[")
    assert str(named(error, served)) == f"{path}: {error}"
    other = InvalidDocument("no field: here")
    assert named(other, served) is other


@pytest.mark.parametrize(
    ("code", "cure"),
    [
        ("import no_such_library.orm", "install the package of the module no_such_library where they run"),
        ("raise ModuleNotFoundError(name='watchfiles')", "install delayq[reload] where they run"),
        ("raise TypeError('install delayq[pydantic] for it')", "install delayq[pydantic] where they run"),
        ("undefined", "correct the code"),
        ("def runs(): ...", "run this where they run, with the code beside the document or on PYTHONPATH"),
    ],
)
def test_doctor_says_whether_workers_need_a_package_or_other_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, cure: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "broken", raising=False)
    (tmp_path / "queue.yaml").write_text(FAULTY % ("orders", 'callable: "broken:run"'))
    (tmp_path / "broken.py").write_text(f"{code}\n")
    found = run("doctor", "queue.yaml")
    sys.modules.pop("broken", None)
    assert f"workers cannot start: {cure}" in found.stdout
