"""What a Redis that cannot serve just now says, under load: MISCONF, LOADING, READONLY. All pass by.

OOM is in test_redis_restart.py. Only Redis is restarted.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from delayq import SyncClient
from delayq.errors import Unavailable

from tests.process.fleet import until
from tests.process.storm import storm
from tests.servers import RedisServer

if TYPE_CHECKING:
    from pathlib import Path

    from tests.process.fleet import NewFleet
    from tests.process.storm import Storm


def wait_refused(load: Storm, word: str) -> None:
    """Until a client gets the message of Redis, in an error that callers may retry."""
    with SyncClient(load.servers.url, queue=load.fleet.queue, shards=load.shards) as client:

        def refused() -> bool:
            try:
                client.schedule(None, delay_ms=0, if_exists="keep", task_id="refused")
            except Unavailable as error:
                return word in str(error)
            return False

        until(refused, f"a client gets {word}")


def test_a_redis_that_refuses_for_a_while_is_waited_for_and_loses_nothing(
    new_fleet: NewFleet, flavour: str, tmp_path: Path
) -> None:
    config = {"save": "3600 1", "appendfsync": "always"}
    server = RedisServer.start(flavour, dir=tmp_path / "one", appendonly=True, config=config)
    other = RedisServer.start(flavour, dir=tmp_path / "other")
    times = []

    def goes_on(what: str) -> None:
        times.append(time.time())
        load.resumed(times[-1], what, load.plain)

    try:
        with server.client() as redis:
            redis.execute_command("DEBUG", "POPULATE", 50_000, "other")
            redis.bgrewriteaof()
            until(lambda: not redis.info("persistence")["aof_rewrite_in_progress"], "rewritten")
        with storm(new_fleet, server, replicas=1) as load:
            with server.client() as redis:
                taken = tmp_path / "one" / "dump.rdb"
                taken.mkdir()  # a snapshot cannot take the place of a directory
                redis.bgsave()
                wait_refused(load, "MISCONF")
                taken.rmdir()
                redis.bgsave()
                until(lambda: redis.info("persistence")["rdb_last_bgsave_status"] == "ok", "a snapshot")
            goes_on("snapshots work again")

            times.append(time.time())
            server.kill()
            server.config |= {"key-load-delay": "60", "loading-process-events-interval-bytes": "1024"}  # µs
            server.launch(ready="Server initialized|Loading")
            wait_refused(load, "loading the dataset")
            with server.client() as redis:
                redis.config_set("key-load-delay", "0")
                until(lambda: not redis.info("persistence")["loading"], "loaded")
            goes_on("loaded")

            with server.client() as redis, other.client() as copy:
                copy.replicaof(server.host, server.port)
                until(lambda: load.safe.confirmed, "the replica confirms")
                kept = set(load.plain.confirmed)
                times.append(time.time())
                copy.replicaof("NO", "ONE")
                redis.replicaof(other.host, other.port)
                wait_refused(load, "READONLY")
                redis.replicaof("NO", "ONE")
                copy.replicaof(server.host, server.port)
            times.append(time.time())
            load.resumed(times[-1], "a primary again")
        load.check(times)
        assert load.lost(load.plain) & kept == set()
    finally:
        server.stop()
        other.stop()
