"""`python -m benchmarks.resident.group`: memory of `delayq run` with several queues, as one group and as one run each.

All runs use one Redis, which is not counted. Pages that several processes share count once (PSS). Each number is the
median of a few starts; the first one is not counted.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import yaml

from benchmarks.handlers import LEDGER
from benchmarks.resident.__main__ import ROOT, Memory
from tests.processes import DELAYQ, Process, running
from tests.servers import PREFERRED, RedisServer


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.resident.group", description=__doc__)
    parser.add_argument("--queues", type=int, nargs="+", default=[1, 5], metavar="N", help="(%(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="starts of each (%(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer.start(PREFERRED, dir=Path(folder) / "redis")
        try:
            for queues in options.queues:
                names = [f"queue{at}" for at in range(queues)]
                for what, runs in (("one run each", [[name] for name in names]), ("one group", [names])):
                    files = [_written(Path(folder), run) for run in runs]
                    found = [_once(files, server.url) for _ in range(options.runs + 1)][1:]
                    _print(f"{queues} queues, {what}", found)
        finally:
            server.stop()
    return 0


def _written(folder: Path, names: list[str]) -> Path:
    """Write a file with the documents of these queues."""
    spec = {
        "redis": {"standalone": {"host": "not-used"}},
        "handler": {"python": {"callable": "benchmarks.handlers:noop"}},
    }
    head = {"apiVersion": "delayq.dev/v1alpha1", "kind": "DelayQueue"}
    path = folder / "-".join([*names, "queue.yaml"])
    path.write_text(yaml.safe_dump_all({**head, "metadata": {"name": name}, "spec": spec} for name in names))
    return path


def _once(files: list[Path], url: str) -> dict[str, list[float]]:
    """Return the proportional MB of each process by role."""
    env = {"PYTHONDONTWRITEBYTECODE": "", LEDGER: "/dev/null", "DELAYQ_REDIS_URL": url}
    argv = (DELAYQ, "run", "--no-api", "--log-format", "json", "--log-level", "info")
    found: dict[str, list[float]] = {}
    with ExitStack() as stack:
        runs = [stack.enter_context(running(*argv, str(file), env=env, cwd=ROOT)) for file in files]
        pids = [(role, pid) for run in runs for role, pid in _pids(run)]
        for role, pid in pids:
            found.setdefault(role, []).append(Memory.of(pid).proportional)
    return found


def _pids(run: Process) -> list[tuple[str, int]]:
    """Return role and PID of each process of a run that is ready and has been scraped; the reaper has ended."""
    run.wait_line('"event": "ready"')
    run.wait_line('"event": "stopped"')
    pids = [("run", run.pid)]
    for line in run.lines:
        event = yaml.safe_load(line) if '"event": "started"' in line else {}
        if event and not event["process"].startswith("reaper"):
            run.wait_http(f"http://127.0.0.1:{event['port']}/metrics")
            pids.append((event["process"].rpartition("/")[2].partition("-")[0], event["pid"]))
    return pids


def _print(what: str, found: list[dict[str, list[float]]]) -> None:
    parts = [
        f"{len(found[0][role])} {role} {median(sum(each[role]) for each in found):.0f}" for role in found[0]
    ]
    processes, total = (
        sum(map(len, found[0].values())),
        median(sum(map(sum, each.values())) for each in found),
    )
    print(f"{what:<24} {processes:2} processes {total:4.0f} MB: {', '.join(parts)}")


if __name__ == "__main__":
    sys.exit(main())
