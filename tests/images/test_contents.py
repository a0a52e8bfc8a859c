"""What is in the images and what is not. Each layer is read once; a test looks at what was noted."""

from __future__ import annotations

import re
import stat
import struct
import subprocess
import tomllib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import tarfile

    from tests.images.archive import Image, Layer

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
pytestmark = pytest.mark.xdist_group("contents")  # of one process, which reads each layer once
MADE = 1580601600  # when everything was, says tools/build-images
MIB = 1 << 20
# On top of the base: compressed, as it is sent, and as it lies on a node's disk.
# The HTTP API takes 5 MiB of the worker's, 1.5 compressed.
BOUNDS_MIB = {"operator": (27, 150), "worker": (48, 148), "hello": (48, 148), "shop": (51, 160)}
TOOLS = re.compile(
    r"(^|/)(bin|sbin)/(\w+-linux-gnu-)?(gcc|g\+\+|cc|c\+\+|ld|as|make|cmake|go|rustc|cargo|git|uv|hatchling)$"
)
SETTINGS = re.compile(
    r"(^|/)(pip\.conf|uv\.toml|ca\.crt|\.netrc|\.npmrc|\.git|\.env)$|^root/(?!\.bashrc$|\.profile$).|^src(/|$)|^layers(/|$)"
)


@dataclass
class Content:
    """What a test may want to know of a layer."""

    members: list[tarfile.TarInfo] = field(default_factory=list)
    with_words: dict[str, list[str]] = field(default_factory=dict)  # of the build machine, in which files
    bytecode: dict[str, tuple[int, int]] = field(
        default_factory=dict
    )  # whether by hash, and whether that is checked
    certificates: list[str] = field(default_factory=list)


@cache
def content(layer: Layer) -> Content:
    found, words = Content(), machine()
    for member, tar in layer.members():
        found.members.append(member)
        if not member.isfile():
            continue
        body = (tar.extractfile(member) or pytest.fail(member.name)).read()
        for word in words:
            if word.encode() in body:
                found.with_words.setdefault(word, []).append(member.name)
        if member.name.endswith(".pyc"):
            flags = struct.unpack("<I", body[4:8])[0]
            found.bytecode[member.name] = (flags & 1, flags >> 1 & 1)
        if b"-----BEGIN CERTIFICATE-----\n" in body:
            found.certificates.append(member.name)
    return found


@cache
def machine() -> list[str]:
    """Words of this machine: its name, the checkout, its caches, where pip goes and with which certificates."""
    listed = subprocess.run(
        ["python3", "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    )
    settings = re.findall(r"^[\w:.-]+(?:index-url|cert|trusted-host)='(.+)'$", listed.stdout, re.MULTILINE)
    # Python's own documentation and Debian's packages name the usual place of certificates.
    common = {"/etc/ssl/certs/ca-certificates.crt"}
    return sorted({str(ROOT), str(Path.home() / ".cache"), "/delayq/images/building", *settings} - common)


def own(image: Image) -> list[Content]:
    return [content(layer) for layer in image.own]


def test_an_image_starts_its_command_itself_as_a_user_that_is_not_root(image: Image) -> None:
    config = image.config["config"]
    command = "delayq-operator" if image.name.startswith("localhost/delayq-operator:") else "delayq"
    assert (config["User"], config["Entrypoint"], config["Cmd"]) == ("65532:65532", [command], ["--help"])
    assert "Volumes" not in config
    assert "ExposedPorts" not in config
    labels = config["Labels"]
    assert image.name.rpartition(":")[2] == PROJECT["version"]
    assert labels["org.opencontainers.image.version"] == PROJECT["version"]
    assert labels["org.opencontainers.image.licenses"] == PROJECT["license"]


def test_there_is_nothing_to_build_with_but_pip_where_others_extend_the_image(
    image: Image, images: dict[str, Image]
) -> None:
    names = [member.name for layer in image.layers for member in content(layer).members]
    assert [name for name in names if TOOLS.search(name)] == []
    assert [name for name in names if re.search(r"/(hatchling|uv)(-[\d.]+\.dist-info)?/", name)] == []
    ours = [member.name for layer in own(image) for member in layer.members]
    pip = [name for name in ours if name.endswith("/site-packages/pip/__init__.py")]
    assert len(pip) == (image is not images["operator"])


def test_our_files_are_roots_and_give_no_privileges(image: Image) -> None:
    members = [member for layer in own(image) for member in layer.members]
    assert {(member.uid, member.gid) for member in members} == {(0, 0)}
    writable = stat.S_IWGRP | stat.S_IWOTH
    assert [m.name for m in members if m.mode & writable and not m.issym() and m.name != "tmp"] == []
    for member in members:
        assert not member.mode & (stat.S_ISUID | stat.S_ISGID), member.name
        assert member.isfile() or member.isdir() or member.issym(), member.name
        assert not any("capability" in key for key in member.pax_headers), member.name


def test_nothing_of_the_machine_that_built_it_is_in_an_image(image: Image) -> None:
    for layer in image.layers:
        assert content(layer).with_words == {}
        assert [member.name for member in content(layer).members if SETTINGS.search(member.name)] == []
    brought = [name for layer in own(image) for name in layer.certificates]
    assert [
        name for name in brought if not re.search(r"/(certifi|pip/_vendor/certifi)/cacert\.pem$", name)
    ] == []


def test_scanners_find_every_package_by_its_metadata(image: Image) -> None:
    """The lock's packages and delayq by their dist-info, Debian's by dpkg's list."""
    names = [member.name for layer in image.layers for member in content(layer).members]
    found = {
        name
        for each in names
        for name in re.findall(r"/site-packages/([\w.]+)-[^/]+\.dist-info/METADATA$", each)
    }
    ours = (
        ("operator",)
        if image.name.startswith("localhost/delayq-operator:")
        else ("worker", "api", "sql", "mysql")
    )
    extras = [each for extra in ours for each in PROJECT["optional-dependencies"][extra]]
    wanted = [*PROJECT["dependencies"], *extras, "delayq"]
    names_wanted = {re.split(r"[\[<>=;]", each)[0].lower().replace("-", "_") for each in wanted}
    assert names_wanted <= {name.lower() for name in found}
    assert "var/lib/dpkg/status" in names


def test_every_file_has_the_same_time_at_every_build(image: Image) -> None:
    times = {member.mtime for layer in image.layers for member in content(layer).members}
    assert times == {MADE}
    assert image.config["created"] == "2020-02-02T00:00:00Z"


def test_bytecode_does_not_depend_on_the_time_of_a_file(image: Image) -> None:
    made = {name: by_hash for layer in own(image) for name, (by_hash, _) in layer.bytecode.items()}
    assert [name for name, by_hash in made.items() if not by_hash] == []
    assert any("/asyncio/" in name for name in made), "none for Python's own modules"


def test_code_comes_in_a_small_layer_of_its_own(images: dict[str, Image]) -> None:
    """What a node pulls after a new version with the same dependencies."""
    for name in ("operator", "worker"):
        dependencies, code = images[name].own
        assert code.compressed < dependencies.compressed / 6
        assert [member.name for member in content(code).members if "/aiohttp/" in member.name] == []
        assert [member.name for member in content(dependencies).members if "/delayq/" in member.name] != []


def test_images_share_the_layers_that_they_have_in_common(images: dict[str, Image]) -> None:
    layers = {
        name: [layer.digest for layer in images[name].layers]
        for name in ("operator", "worker", "hello", "shop")
    }
    assert len({each[0] for each in layers.values()}) == 1
    assert (
        layers["hello"][: len(layers["worker"])]
        == layers["shop"][: len(layers["worker"])]
        == layers["worker"]
    )


def test_an_image_is_no_larger_than_it_has_to_be(image: Image, images: dict[str, Image]) -> None:
    [name] = [name for name, each in images.items() if each is image]
    sent = sum(layer.compressed for layer in image.own) / MIB
    stored = sum(member.size for layer in own(image) for member in layer.members) / MIB
    most_sent, most_stored = BOUNDS_MIB[name]
    assert sent <= most_sent, f"{sent:.1f} MiB"
    assert stored <= most_stored, f"{stored:.1f} MiB"
