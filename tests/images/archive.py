"""An OCI archive, as tools/build-images leaves it: what it says of the image, and the image's files.

Not here: running one (`container.py`).
"""

from __future__ import annotations

import gzip
import json
import tarfile
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

BUILT = Path(__file__).parents[2] / ".cache" / "images"
WHITEOUT = ".wh."  # how a layer says that a file of those below is gone


@dataclass(frozen=True)
class Layer:
    """One layer: its place in the archive, and how large it is as it is sent and as it lies on a disk."""

    archive: Path = field(compare=False)  # of any image that has the layer
    digest: str
    compressed: int

    def members(self) -> Iterator[tuple[tarfile.TarInfo, tarfile.TarFile]]:
        """Each file with the tar to read it from, which is valid until the next."""
        with (
            tarfile.open(self.archive) as outer,
            _blob(outer, self.digest) as blob,
            gzip.open(blob) as plain,
            tarfile.open(fileobj=plain, mode="r|") as tar,
        ):
            for member in tar:
                yield member, tar

    @cached_property
    def size(self) -> int:
        """All of its files."""
        return sum(member.size for member, _ in self.members())

    def unpack(self, folder: Path) -> None:
        """Put its files above those of the layers before it."""
        for member, tar in self.members():
            assert not Path(member.name).name.startswith(WHITEOUT), (
                f"{member.name}: a file is taken away again"
            )
            tar.extract(member, folder, numeric_owner=True, filter="fully_trusted")


@dataclass(frozen=True)
class Image:
    """What the archive says."""

    name: str
    digest: str
    config: dict[str, Any]
    layers: tuple[Layer, ...]

    @classmethod
    def read(cls, archive: Path) -> Image:
        with tarfile.open(archive) as outer:
            [entry] = json.load(_file(outer, "index.json"))["manifests"]
            manifest = _json(outer, entry["digest"])
            config = _json(outer, manifest["config"]["digest"])
        layers = tuple(Layer(archive, each["digest"], each["size"]) for each in manifest["layers"])
        return cls(entry["annotations"]["org.opencontainers.image.ref.name"], entry["digest"], config, layers)

    @property
    def own(self) -> tuple[Layer, ...]:
        """The layers on top of the base."""
        return self.layers[1:]

    @property
    def environment(self) -> dict[str, str]:
        return dict(each.split("=", 1) for each in self.config["config"]["Env"])

    def unpack(self, folder: Path) -> None:
        """Its root file system."""
        folder.mkdir(parents=True)
        for layer in self.layers:
            layer.unpack(folder)


def _blob(outer: tarfile.TarFile, digest: str) -> IO[bytes]:
    return _file(outer, "blobs/" + digest.replace(":", "/"))


def _json(outer: tarfile.TarFile, digest: str) -> dict[str, Any]:
    found: dict[str, Any] = json.load(_blob(outer, digest))
    return found


def _file(outer: tarfile.TarFile, name: str) -> IO[bytes]:
    file = outer.extractfile(name)
    assert file is not None, f"{name} is not a file"
    return file
