"""The image of what holds a pod's namespaces: one program that sleeps for ever, made here from its machine code.

It needs no compiler and no registry, and is there before any other image. It reaps nothing: pods that share one
process namespace among their containers are not what these tests are about.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import struct
import tarfile
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

IMAGE: Final = "localhost/pause:test"
# pause(2) again and again; where there is none, ppoll(2) on nothing.
CODE: Final = {
    "x86_64": (62, "amd64", "b8220000000f05ebf7"),
    "aarch64": (183, "arm64", "000080d2010080d2020080d2030080d2040080d2280980d2010000d4f9ffff17"),
}
BASE: Final = 0x400000
HEADERS: Final = 64 + 56


def program(machine: str = "") -> bytes:
    """An ELF executable: its header, one segment to load, and the code."""
    number, _, code = CODE[machine or platform.machine()]
    text = bytes.fromhex(code)
    size = HEADERS + len(text)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01", 2, number, 1, BASE + HEADERS, 64, 0, 0, 64, 56, 1, 0, 0, 0,
    )  # fmt: skip
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, BASE, BASE, size, size, 0x1000)
    return header + segment + text


def write(archive: Path) -> Path:
    """Write the image as an OCI archive."""
    layer = _tar({"pause": program()}, mode=0o755)
    packed = gzip.compress(layer, mtime=0)
    config = _json(
        {
            "architecture": CODE[platform.machine()][1],
            "os": "linux",
            "config": {"Entrypoint": ["/pause"], "User": "65535:65535"},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
    )
    kind = "application/vnd.oci.image."
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": f"{kind}manifest.v1+json",
            "config": _descriptor(config, f"{kind}config.v1+json"),
            "layers": [_descriptor(packed, f"{kind}layer.v1.tar+gzip")],
        }
    )
    named = {"annotations": {"io.containerd.image.name": IMAGE}}
    index = _json(
        {"schemaVersion": 2, "manifests": [_descriptor(manifest, f"{kind}manifest.v1+json") | named]}
    )
    blobs = {f"blobs/sha256/{_digest(blob)[7:]}": blob for blob in (packed, config, manifest)}
    layout = {"oci-layout": _json({"imageLayoutVersion": "1.0.0"}), "index.json": index}
    archive.write_bytes(_tar(layout | blobs, mode=0o644))
    return archive


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _descriptor(blob: bytes, media_type: str) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(blob), "size": len(blob)}


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _tar(files: dict[str, bytes], *, mode: int) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return out.getvalue()
