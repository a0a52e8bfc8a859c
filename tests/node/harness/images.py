"""Images of a node: archives brought into its containerd, and seen by its kubelet."""

from __future__ import annotations

import json
import tarfile
from typing import TYPE_CHECKING, Any, Final

from tests.cluster.harness.binaries import ROOT
from tests.cluster.harness.waiting import eventually
from tests.node.harness.sandbox import SandboxError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.node.harness.sandbox import Sandbox

NAME: Final = "io.containerd.image.name"
REFERENCE: Final = "org.opencontainers.image.ref.name"
CTR: Final = ("ctr", "--namespace=k8s.io", "images")


BUILT: Final = ROOT / ".cache" / "images"
"""Where tools/build-images leaves the archives."""


def built() -> list[Path]:
    """The archives of this project's own images."""
    archives = sorted(BUILT.glob("*.tar"))
    if not archives:
        raise SandboxError(f"no images in {BUILT}: run tools/build-images")
    return archives


def names(archive: Path) -> list[str]:
    """What an archive calls its images, an OCI archive or Docker's."""
    with tarfile.open(archive) as tar:
        members = set(tar.getnames())
        if "index.json" in members:
            manifests = _read(tar, "index.json")["manifests"]
            found = [each.get("annotations", {}) for each in manifests]
            called = [each.get(NAME) or each.get(REFERENCE) for each in found]
        elif "manifest.json" in members:
            called = [tag for each in _read(tar, "manifest.json") for tag in each["RepoTags"] or ()]
        else:
            raise SandboxError(f"{archive}: no image archive: neither index.json nor manifest.json in it")
    if not called or not all(called):
        raise SandboxError(f"{archive}: an image without a name: save it as oci-archive:FILE:NAME:TAG")
    return called


def _read(tar: tarfile.TarFile, name: str) -> Any:  # noqa: ANN401  any JSON value
    member = tar.extractfile(name)
    assert member is not None
    return json.load(member)


def load(sandbox: Sandbox, archive: Path, snapshotter: str) -> list[str]:
    """Import an archive; returns the images' names, once pods can be made of them."""
    found = names(archive)
    with archive.open("rb") as content:
        # A name that another image in there has already becomes that of this one.
        sandbox.run(
            *CTR, "import", f"--snapshotter={snapshotter}", "--base-name=localhost", "-", stdin=content
        )
    for name in found:
        eventually(lambda name=name: _seen(sandbox, name), what=f"the kubelet can use {name}")  # type: ignore[misc]
    return found


def _seen(sandbox: Sandbox, name: str) -> bool:
    """containerd's interface for the kubelet hears of images a moment after their import, and marks them."""
    listed = sandbox.run(*CTR, "list", f"name=={name}").stdout
    if name not in listed:
        raise SandboxError(
            f"{name} is not in containerd after its import:\n{sandbox.run(*CTR, 'list').stdout}"
        )
    return "io.cri-containerd.image=managed" in listed
