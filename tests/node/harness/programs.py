"""Where the programs of a node are: on PATH, or where tools/setup-node has put what was missing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from tests.cluster.harness.binaries import ROOT

FETCHED: Final = ROOT / ".cache" / "node"
FOLDERS: Final = ("/usr/sbin", "/sbin", str(FETCHED / "usr" / "sbin"), str(FETCHED / "usr" / "bin"))
CNI_FOLDERS: Final = (Path("/usr/lib/cni"), Path("/opt/cni/bin"), FETCHED / "usr" / "lib" / "cni")
CNI: Final = ("host-local", "ptp")


def environment() -> dict[str, str]:
    """Ours, with a PATH on which all of them are found."""
    return {**os.environ, "PATH": os.pathsep.join([os.environ.get("PATH", os.defpath), *FOLDERS])}


def there(name: str) -> bool:
    return shutil.which(name, path=environment()["PATH"]) is not None


def cni() -> Path | None:
    """The folder with the programs for the network of pods."""
    return next((folder for folder in CNI_FOLDERS if all((folder / name).exists() for name in CNI)), None)
