"""What a process imports is most of its memory: it has what it runs, and nothing of what other processes run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.process.fleet import status

if TYPE_CHECKING:
    from tests.process.fleet import NewFleet

HEAVY = {
    *("aiohttp", "prometheus_client", "http.server", "urllib.request", "wsgiref"),
    *("cryptography.x509", "jsonschema", "kopf", "kubernetes", "rich", "sqlalchemy"),
    *("delayq.client.base", "delayq.connection.sync", "delayq.forecast", "delayq.local", "delayq.scaling"),
}
ROLES = {f"delayq.{package}.{package}" for package in ("worker", "scanner", "reaper")}


@pytest.mark.parametrize("role", ["worker", "scanner", "reaper"])
def test_a_process_imports_no_library_or_role_that_it_does_not_run(new_fleet: NewFleet, role: str) -> None:
    """Python says what it imports, one line each: `import time: self [us] | cumulative | module`."""
    process = new_fleet(environment={"PYTHONPROFILEIMPORTTIME": "1"}).start(role)  # type: ignore[arg-type]
    assert status(process, "metrics") == 200
    imported = {line.rpartition("|")[2].strip() for line in process.lines if line.startswith("import time:")}
    assert f"delayq.{role}.{role}" in imported
    assert imported & (HEAVY | ROLES) == {f"delayq.{role}.{role}"}
