"""What a machine must have for a node, found out before anything is started."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from typing import Final

from tests.cluster.harness.binaries import KUBERNETES
from tests.node.harness import cgroups, pause, programs

NEEDED: Final = (
    *("containerd", "containerd-shim-runc-v2", "ctr", "runc", "iptables", "conntrack", "ip"),
    *("mount", "nsenter", "openssl", "setpriv", "unshare"),
)
BUILT: Final = ("kubelet", "kube-proxy", "kube-scheduler")


class UnfitError(Exception):
    """This machine cannot have a node; the message says why, and what to do."""


def hopeless() -> str | None:
    """Why there is no node on this machine and none of our tools would help; None when one would, or is not needed."""
    if sys.platform != "linux":
        return f"a node runs on Linux, and this is {sys.platform}"
    if platform.machine() not in pause.CODE:
        return f"no pause image for {platform.machine()}, only for {' and '.join(pause.CODE)}"
    if (missing := absent()) and shutil.which("apt-get") is None:
        return f"a node takes {', '.join(missing)}, which tools/setup-node can install on Debian only"
    return _forbidden()


def _forbidden() -> str | None:
    if os.geteuid() != 0:
        return "a node takes root: run as root, or in a container with --privileged"
    if not _may_make_namespaces():
        return "a node takes namespaces, which we may not make here: a container needs --privileged"
    return cgroups.hopeless()


def _may_make_namespaces() -> bool:
    command = ["unshare", "--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--mount-proc", "true"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def absent() -> list[str]:
    missing = [name for name in NEEDED if not programs.there(name)]
    return missing + ([] if programs.cni() else [f"CNI's {name}" for name in programs.CNI])


def check() -> None:
    """Raise UnfitError unless all is there."""
    if reason := hopeless():
        raise UnfitError(reason)
    if missing := absent():
        raise UnfitError(f"not installed: {', '.join(missing)}: run tools/setup-node")
    if missing := [name for name in BUILT if not (KUBERNETES / name).exists()]:
        raise UnfitError(f"not built: {', '.join(missing)}: run `make setup`")
