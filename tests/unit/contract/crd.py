"""The CRDs, read from their files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

Schema = dict[str, Any]

CRDS: Final = Path(__file__).parents[3] / "crds"
CRD: Schema = yaml.load((CRDS / "delayqueue.yaml").read_text(), yaml.CSafeLoader)
SCHEDULE_CRD: Schema = yaml.load((CRDS / "delayschedule.yaml").read_text(), yaml.CSafeLoader)


def root(crd: Schema) -> Schema:
    """The schema of the whole document."""
    found: Schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


ROOT: Schema = root(CRD)
SPEC: Schema = ROOT["properties"]["spec"]
