"""What a machine must have for a node, found out before anything is started."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from pathlib import Path
from typing import Final

from tests.cluster.harness.binaries import KUBERNETES
from tests.node.harness import pause
from tests.node.harness.components import CNI_PROGRAMS

PROGRAMS: Final = (
    *("containerd", "ctr", "runc", "iptables", "conntrack", "ip"),
    *("mount", "nsenter", "openssl", "setpriv", "unshare"),
)
KUBERNETES_PROGRAMS: Final = ("kubelet", "kube-proxy", "kube-scheduler")


class UnfitError(Exception):
    """This machine cannot have a node; the message says why, and what to do."""


def hopeless() -> str | None:
    """Why nothing that could be installed would help; None when there is no such reason."""
    if sys.platform != "linux":
        return f"a node runs on Linux, and this is {sys.platform}"
    if platform.machine() not in pause.CODE:
        return f"no pause image for {platform.machine()}, only for {' and '.join(pause.CODE)}"
    if os.geteuid() != 0:
        return "a node takes root: run as root, or in a container with --privileged"
    return None


def check() -> None:
    """Raise UnfitError unless all is there."""
    if reason := hopeless():
        raise UnfitError(reason)
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    missing += [
        f"{CNI_PROGRAMS}/{name}" for name in ("ptp", "host-local") if not (Path(CNI_PROGRAMS) / name).exists()
    ]
    if missing:
        raise UnfitError(f"not installed: {', '.join(missing)}: run tools/setup-node")
    if missing := [name for name in KUBERNETES_PROGRAMS if not (KUBERNETES / name).exists()]:
        raise UnfitError(f"not built: {', '.join(missing)}: run `make setup`")
