"""`make bench-shop`: processes and memory of a shop with five kinds of task, with delayq and with Celery.

Both run the same tasks on the same Redis: of each kind so many, of which `push` calls an HTTP service. Then the memory
of all their processes is read, without that of Redis and of the service. delayq has one queue, run by `delayq run` with
one worker and one scanner; Celery has a worker with the default pool and as many children as it says.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml
from delayq import NewTask, SyncClient

from benchmarks.resident.__main__ import Memory
from tests.processes import running
from tests.servers import PREFERRED, RedisServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.processes import Process

ROOT = Path(__file__).parents[2]
KINDS: dict[str, dict[str, Any]] = {
    "cancel_unpaid": {"order": 7},
    "remind": {"order": 7},
    "report": {"day": "2026-11-25"},
    "refund": {"order": 7, "cents": 995},
    "push": {"order": 7},
}
PATIENCE_SECONDS = 120


class Stage(NamedTuple):
    """What both shops use."""

    url: str  # of Redis
    push_url: str
    folder: Path
    service: Process  # behind `push`
    tasks: int  # of each kind
    children: int  # of Celery's pool

    @property
    def calls(self) -> int:
        """How often the service was called."""
        return self.service.output.count("push about")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shop", description=__doc__)
    parser.add_argument("--tasks", type=int, default=200, help="of each kind (%(default)s)")
    parser.add_argument("--children", type=int, default=2, help="processes of Celery's pool (%(default)s)")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = RedisServer.start(PREFERRED, dir=folder / "redis")
        stack.callback(server.stop)
        service = stack.enter_context(running(sys.executable, "-u", str(ROOT / "examples/shop/push.py"), "0"))
        push_url = f"http://{service.wait_line('listening').split()[-1]}/push"
        stage = Stage(server.open_url, push_url, folder, service, options.tasks, options.children)
        for name, measure in (("delayq", _delayq), ("Celery", _celery)):
            memory = measure(stage)
            resident, proportional, _ = (sum(each) for each in zip(*memory, strict=True))
            print(
                f"{name:<8}{len(memory)} processes {proportional:6.1f} MB proportional {resident:6.1f} MB resident",
                flush=True,
            )
    return 0


def _delayq(stage: Stage) -> list[Memory]:
    spec = {
        "redis": {"standalone": {"host": "127.0.0.1"}},
        "handler": {
            "python": {"app": "benchmarks.shop.delayq_shop:app"},
            "kinds": {"push": {"http": {"url": stage.push_url}}},
        },
    }
    head = {"apiVersion": "delayq.dev/v1alpha1", "kind": "DelayQueue", "metadata": {"name": "shop"}}
    document = stage.folder / "queue.yaml"
    document.write_text(yaml.safe_dump({**head, "spec": spec}))
    with running(
        sys.executable, "-m", "delayq", "run", str(document), "--no-api", "--redis", stage.url, cwd=ROOT
    ) as run:
        run.wait_line("due 0", timeout_s=PATIENCE_SECONDS)
        calls = stage.calls
        with SyncClient.from_document(document, url=stage.url) as client:
            client.schedule_many(
                NewTask(payload, delay_ms=0, kind=kind)
                for kind, payload in KINDS.items()
                for _ in range(stage.tasks)
            )

            def done() -> bool:
                counts = client.counts()
                left = counts.waiting + counts.retrying + counts.in_flight + counts.dead
                return left == 0 and not any(map(_is_reaper, _tree(run.pid)))  # it runs once in five minutes

            _wait(stage, calls, done)
        return _memory(run)


def _celery(stage: Stage) -> list[Memory]:
    env = {"DELAYQ_REDIS_URL": stage.url, "SHOP_PUSH_URL": stage.push_url}
    argv = ("-A", "benchmarks.shop.celery_shop", "worker", f"--concurrency={stage.children}", "-l", "INFO")
    with running(sys.executable, "-m", "celery", *argv, env=env, cwd=ROOT) as worker:
        worker.wait_line("ready", timeout_s=PATIENCE_SECONDS)
        calls = stage.calls
        program = (
            "from benchmarks.shop import celery_shop\n"
            f"for kind, payload in {KINDS!r}.items():\n"
            f"    for _ in range({stage.tasks}):\n"
            "        getattr(celery_shop, kind).apply_async(kwargs=payload)\n"
        )
        with running(sys.executable, "-c", program, env=env, cwd=ROOT) as scheduler:
            if scheduler.wait(timeout_s=PATIENCE_SECONDS):
                raise RuntimeError(scheduler.output)
        _wait(stage, calls, lambda: worker.output.count(" succeeded in ") == stage.tasks * len(KINDS))
        return _memory(worker)


def _wait(stage: Stage, calls: int, done: Callable[[], bool]) -> None:
    """Wait until all tasks are done, and the service was called for each of its tasks."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not done() or stage.calls < calls + stage.tasks:
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"not done within {PATIENCE_SECONDS} s, {stage.calls - calls} calls of the service"
            )
        time.sleep(0.1)


def _is_reaper(pid: int) -> bool:
    return b"\0reaper\0" in Path(f"/proc/{pid}/cmdline").read_bytes()


def _memory(process: Process) -> list[Memory]:
    return [Memory.of(pid) for pid in _tree(process.pid)]


def _tree(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in _tree(int(child)))]


if __name__ == "__main__":
    sys.exit(main())
