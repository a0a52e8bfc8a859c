"""Whole processes with a user, a password and TLS from mounted Secrets, all of which rotate while they run."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import trustme
from delayq import SyncClient

from tests.process.fleet import Fleet, said
from tests.servers import PASSWORD, PREFERRED, USER, RedisServer
from tests.topologies.certificates import Tls
from tests.topologies.secured import LOGIN, SHOWN, cut, mounted
from tests.unit.connection.mounted import mount

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

NEW = "s3cret-of-tomorrow"


@contextmanager
def secured(tmp_path: Path, queue: str, tls: Tls) -> Iterator[Fleet]:
    server = RedisServer.start(PREFERRED, dir=tmp_path / "redis", tls=tls)
    standalone = {"host": server.host, "port": server.port}
    spec = {"redis": {"standalone": standalone, "auth": LOGIN, "tls": SHOWN}}
    fleet = Fleet(server, tmp_path, queue, spec, {"DELAYQ_SECRETS_DIR": str(tmp_path / "secrets")})
    try:
        yield fleet
    finally:
        fleet.kill_all()
        server.stop()


def test_workers_and_scanners_take_up_new_secrets_without_a_restart(
    tmp_path: Path, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls, secrets = Tls(tmp_path / "authority"), tmp_path / "secrets"
    secrets.mkdir()
    mounted(secrets, tls)
    monkeypatch.setenv("DELAYQ_SECRETS_DIR", str(secrets))
    with (
        secured(tmp_path, queue_name, tls) as fleet,
        SyncClient.from_document(fleet.config) as client,
        fleet.server.client() as redis,
    ):
        processes = fleet.start_all("scanner", "worker")
        client.schedule(None, delay_ms=0, task_id="before")
        fleet.wait_entry("start", "before")
        tls.renew(trustme.CA())
        redis.config_set("tls-ca-cert-file", str(tls.ca), "tls-cert-file", str(tls.server.cert))
        redis.execute_command("ACL", "SETUSER", USER, "resetpass", f">{NEW}")
        cut(fleet.server)
        mounted(secrets, tls)
        mount(secrets, "login", password=NEW.encode())
        client.schedule(None, delay_ms=0, task_id="after", if_exists="keep")
        fleet.wait_entry("start", "after")
        assert all(process.alive for process in processes)
        assert all(len(said(process, "started")) == 1 for process in processes)
        lines = "".join(line for process in processes for line in process.lines)
        assert PASSWORD not in lines
        assert NEW not in lines
