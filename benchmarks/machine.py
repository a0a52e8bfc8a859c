"""What the figures were measured on and with."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.servers import RedisServer


def facts(server: RedisServer) -> dict[str, object]:
    """Return what a reader needs to compare the figures with their own."""
    with server.client() as redis:
        shown = redis.info("server")
    found = f"{server.flavour} ({shown.get('valkey_version', shown['redis_version'])})"
    return here("delayq", "hiredis", "redis", "uvloop") | {"redis": found, "against": f"Redis {found}"}


def here(*packages: str) -> dict[str, object]:
    """Return the same without the server."""
    return {
        "cpu": _line("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(int(_line("/proc/meminfo", "MemTotal").split()[0]) / 1024**2, 1),
        "kernel": platform.release(),
        "load_before": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in packages},
    }


def _line(path: str, name: str) -> str:
    lines = Path(path).read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "unknown")
