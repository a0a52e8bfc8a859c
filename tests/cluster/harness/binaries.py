"""Where the programs of a cluster are: `make setup` puts them into .cache/kubernetes/bin."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
KUBERNETES: Final = ROOT / ".cache" / "kubernetes" / "bin"


class KubernetesMissingError(Exception):
    """A program of the cluster was asked for that `make setup` has not put in place."""


def binary(name: str) -> str:
    path = KUBERNETES / name
    if not path.exists():
        raise KubernetesMissingError(f"no {name} in {KUBERNETES}: run `make setup`")
    return str(path)
