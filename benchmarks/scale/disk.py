"""What it takes Redis to write an append-only file of all that, and to read it again when it restarts."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import BusyLoadingError, RedisError
from redis.retry import Retry

from benchmarks.figures import once

if TYPE_CHECKING:
    from benchmarks.figures import Figure
    from benchmarks.scale.stage import Stage

PATIENCE_SECONDS = 600.0
MIB = 1 << 20


class Prober(threading.Thread):
    """Sends a PING every other millisecond, and keeps the longest that one took."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._port, self._ends, self.longest_ms = port, threading.Event(), 0.0

    def run(self) -> None:
        with Redis(port=self._port, socket_timeout=60) as redis:
            while not self._ends.wait(0.002):
                began = time.perf_counter()
                redis.ping()
                self.longest_ms = max(self.longest_ms, 1000 * (time.perf_counter() - began))

    def end(self) -> None:
        self._ends.set()
        self.join()


def measured(stage: Stage) -> list[Figure]:
    """Turn the file on, which writes all of it, and start the server again from it."""
    took, longest_ms = _rewritten(stage)
    info = stage.info("persistence") | stage.info("stats")
    stage.server.config["appendonly"] = "yes"
    stage.connection.close()
    stage.server.kill()
    began = time.perf_counter()
    refused = _restarted(stage)
    return [
        once("C", "AOF rewrite", "s", took),
        once("C", "  size of the file", "MiB", info["aof_base_size"] / MIB),
        once("C", "  the fork that begins it", "ms", info["latest_fork_usec"] / 1000),
        once("C", "  longest PING meanwhile", "ms", longest_ms),
        once("C", "restart until it serves", "s", time.perf_counter() - began),
        once("C", "  of that, answers LOADING for", "s", refused),
    ]


def _rewritten(stage: Stage) -> tuple[float, float]:
    prober = Prober(stage.server.port)
    with stage.server.client() as redis:
        prober.start()
        began = time.perf_counter()
        redis.config_set("appendonly", "yes")
        while stage.info("persistence")["aof_rewrite_in_progress"]:
            if time.perf_counter() - began > PATIENCE_SECONDS:
                raise TimeoutError(f"the file was not written within {PATIENCE_SECONDS:g} s")
            time.sleep(0.05)
        took = time.perf_counter() - began
    prober.end()
    return took, prober.longest_ms


def _restarted(stage: Stage) -> float:
    """Start it, and return for how many seconds it said that it was loading."""
    starter = threading.Event()
    loading: list[float] = []
    watcher = threading.Thread(target=_watch, args=(stage.server.port, starter, loading), daemon=True)
    watcher.start()
    stage.server.launch("Server initialized")
    stage.server.process.wait_line("Ready to accept connections", timeout_s=PATIENCE_SECONDS)
    starter.set()
    watcher.join()
    return loading[-1] - loading[0] if loading else 0.0


def _watch(port: int, started: threading.Event, loading: list[float]) -> None:
    while not started.wait(0.01):
        try:
            with Redis(port=port, socket_timeout=1, retry=Retry(NoBackoff(), 0)) as redis:
                redis.dbsize()
        except BusyLoadingError:
            loading.append(time.perf_counter())
        except RedisError:
            pass  # it does not listen yet, or has no time
