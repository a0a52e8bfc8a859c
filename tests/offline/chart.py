"""The chart as Helm renders it, for the tests about it. No cluster is asked."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import yaml

from tests.cluster.harness.binaries import ROOT, binary

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CHART: Final = ROOT / "charts" / "delayq"
RELEASE: Final = "delayq"
NAMESPACE: Final = "delayq-system"

Values = dict[str, Any]
Object = dict[str, Any]

MONITORS: Final[Values] = {
    "serviceMonitor": {"enabled": True},
    "prometheusRule": {"enabled": True},
}
"""What needs the Prometheus operator."""

EVERYTHING: Final[Values] = {
    **MONITORS,
    "dashboard": {"enabled": True},
    "redis": {"enabled": True, "networkPolicy": {"enabled": True}},
}
"""All toggles on, but for the PodMonitor: it excludes the ServiceMonitor."""


LOCAL: Final[Values] = {"localImages": True}
"""The nodes have the images, as far as a test of the chart goes: by itself it refuses to guess a registry."""


DIGEST: Final = f"sha256:{'0123456789abcdef' * 4}"


def released(folder: Path, registry: str, version: str) -> Path:
    """The chart of a release. A registry cannot be reached here: the look-up of digests alone is a stand-in.

    Each image that was looked up is in folder/asked.
    """
    chart = folder / "charts" / "delayq"
    shutil.copytree(CHART, chart)
    (folder / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "pin-images", folder / "tools")
    docker = folder / "docker"
    docker.write_text(f'#!/bin/sh\necho "$4" >> {folder}/asked; echo \'"{DIGEST}"\'\n')
    docker.chmod(0o755)
    subprocess.run(
        [folder / "tools" / "pin-images", registry, version],
        env=os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"},
        check=True,
    )
    return chart


class Rejected(Exception):
    """Helm refused; its words are the message."""


def helm(*args: str, values: Mapping[str, Any] | None = None) -> str:
    """What Helm prints, with values on stdin; those of LOCAL are given to `helm template`, for values to override."""
    if args[0] == "template":
        values = {**LOCAL, **(values or {})}
    return _helm(args, "" if values is None else json.dumps(values))


@cache
def _helm(args: tuple[str, ...], values: str) -> str:
    done = subprocess.run(
        [binary("helm"), *args, *(["--values=-"] if values else [])],
        input=values,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode != 0:
        raise Rejected(done.stdout + done.stderr)
    return done.stdout


def manifest(values: Mapping[str, Any] | None = None, *args: str) -> str:
    """Everything that the chart makes, hooks included, as YAML."""
    return helm("template", RELEASE, str(CHART), f"--namespace={NAMESPACE}", *args, values=values or {})


def rendered(values: Mapping[str, Any] | None = None, *args: str) -> list[Object]:
    """The same as objects."""
    return objects_of(manifest(values, *args))


def objects_of(text: str) -> list[Object]:
    """What YAML says, read by libyaml: the CRD alone has 4,000 lines."""
    return [each for each in yaml.load_all(text, Loader=yaml.CSafeLoader) if each]


def find(objects: list[Object], kind: str, name: str) -> Object:
    """The one object of that kind and name."""
    (one,) = [each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return one


def operator_pod(objects: list[Object]) -> Object:
    """The spec of the operator's pod."""
    deployment = find(objects, "Deployment", f"{RELEASE}-operator")
    spec: Object = deployment["spec"]["template"]["spec"]
    return spec


def kinds(objects: list[Object]) -> set[str]:
    return {each["kind"] for each in objects}


def nested(path: str, value: object) -> Values:
    """{"a": {"b": value}} for a.b."""
    for key in reversed(path.split(".")):
        value = {key: value}
    assert isinstance(value, dict)
    return value


def merged(*layers: Mapping[str, Any]) -> Values:
    """Values over values, as Helm lays them."""
    result: Values = {}
    for layer in layers:
        for key, value in layer.items():
            both = isinstance(value, dict) and isinstance(result.get(key), dict)
            result[key] = merged(result[key], value) if both else value
    return result
