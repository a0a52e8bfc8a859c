"""The image that holds a pod's namespaces: one program that sleeps for ever, made here from its machine code.

It needs no compiler and no registry, and is there before any other image. It reaps nothing: pods that share one
process namespace among their containers are not what these tests are about.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import struct
import tarfile
from typing import TYPE_CHECKING, Final

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
    """Write the image as an archive of Docker's."""
    layer = _tar({"pause": program()}, mode=0o755)
    config = {
        "architecture": CODE[platform.machine()][1],
        "os": "linux",
        "config": {"Entrypoint": ["/pause"], "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]
    described = {"config.json": json.dumps(config).encode(), "manifest.json": json.dumps(manifest).encode()}
    archive.write_bytes(_tar(described | {"layer.tar": layer}, mode=0o644))
    return archive


def _tar(files: dict[str, bytes], *, mode: int) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return out.getvalue()
