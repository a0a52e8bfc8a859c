"""Write the CRDs, crds/*.yaml and the chart's copies: `make crds`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tools.crds.written import CRDS, text

ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = ("crds", "charts/delayq/files")


def wanted() -> dict[Path, str]:
    """Return the text that each file should have."""
    return {ROOT / folder / name: text(crd) for folder in FOLDERS for name, crd in CRDS.items()}


if __name__ == "__main__":
    for path, made in wanted().items():
        path.write_text(made)
