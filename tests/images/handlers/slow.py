"""Handlers for a worker in a container, where this is /app/slow.py. As a command, it may leave a daemon behind."""

from __future__ import annotations

import os
import time


def slow(_task: object) -> None:
    """Take so long that SIGTERM comes in between."""
    print("slow begins", flush=True)
    time.sleep(1)
    print("slow ends", flush=True)


def __getattr__(name: str) -> object:
    """Let a worker that asks for `never` wait while it sets up its handler."""
    if name == "never":
        print("importing", flush=True)
        time.sleep(120)
    raise AttributeError(name)


def daemon() -> None:
    """Leave the group, and end after the command: a child of process 1 then."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 3)  # the command's pipes: it would be waited for otherwise
            time.sleep(0.2)
        os._exit(0)


if __name__ == "__main__" and os.environ["DELAYQ_TASK_ID"].startswith("daemon-"):
    daemon()
