"""What the kubelet puts around a container: files of volumes, and variables. On this host they have other paths."""

from __future__ import annotations

import base64
import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tests.cluster.harness.rest import Refused
from tests.upgrade.baselines import naming

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.cluster.harness.cluster import Cluster
    from tests.cluster.harness.rest import Object

TOKENS = "/var/run/secrets/kubernetes.io/serviceaccount"


class NotYetError(Exception):
    """Something that the pod refers to does not exist: the pod waits for it."""


class Mounts:
    """Volumes of one pod as directories, read once, but for optional sources: other edits reach no running pod here."""

    def __init__(self, cluster: Cluster, pod: Object, directory: Path, images: Mapping[str, Path]) -> None:
        """`images`: the builds that some images stand for; all others are the build under test."""
        self._cluster, self._images = cluster, images
        self._pod = pod
        self._dir = directory
        self._namespace: str = pod["metadata"]["namespace"]

    @property
    def has_optional_sources(self) -> bool:
        return '"optional": true' in json.dumps(self._pod["spec"].get("volumes", ()))

    def write(self) -> None:
        for volume in self._pod["spec"].get("volumes", ()):
            at = self._dir / volume["name"]
            at.mkdir(parents=True, exist_ok=True)
            for path, content in self._files(volume):
                (at / path).parent.mkdir(parents=True, exist_ok=True)
                new = (at / path).with_name(f"..{(at / path).name}")
                new.write_bytes(content)
                new.replace(at / path)  # whole, as in a pod

    def paths(self, container: Object) -> dict[str, str]:
        """Path in the container → path on this host, of volumes that are written for it.

        Not of empty directories: a test's own files are below /tmp too, and are named in variables as they are.
        """
        empty = {each["name"] for each in self._pod["spec"].get("volumes", ()) if "emptyDir" in each}
        return {
            mount["mountPath"]: str(self._dir / mount["name"])
            for mount in container.get("volumeMounts", ())
            if mount["name"] not in empty
        }

    def environment(self, container: Object, address: str) -> dict[str, str]:
        """The container's variables, and those that tell programs where on this host their files are."""
        paths = self.paths(container)
        found = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(self._dir),
            "TMPDIR": str(self._dir),
            "PYTHONUNBUFFERED": "1",
        }
        if config := paths.get("/etc/delayq"):
            found["DELAYQ_SECRETS_DIR"] = f"{config}/secrets"
        if TOKENS in paths:  # programs look for these files at their usual path only
            found["KUBECONFIG"] = str(self._cluster.kubeconfig_for(self._namespace, self._account))
        else:
            server = urlsplit(self._cluster.url)
            found["KUBERNETES_SERVICE_HOST"] = str(server.hostname)
            found["KUBERNETES_SERVICE_PORT"] = str(server.port)
        for variable in container.get("env", ()):
            value = variable.get("value", "")
            if "valueFrom" in variable:  # of the pod: nothing that runs here asks for a key of a Secret
                path = variable["valueFrom"]["fieldRef"]["fieldPath"]
                value = address if path == "status.podIP" else str(_walk(self._pod, path))
            found[variable["name"]] = translated(expanded(value, found), paths)
        if build := self._images.get(container["image"]):
            found["PYTHONPATH"] = f"{build / 'worker'}:{found.get('PYTHONPATH', '')}"
        return found

    @property
    def _account(self) -> str:
        return str(self._pod["spec"].get("serviceAccountName", "default"))

    def _files(self, volume: Object) -> Iterator[tuple[str, bytes]]:
        sources = volume["projected"]["sources"] if "projected" in volume else [volume]
        for source in sources:
            if "serviceAccountToken" in source:
                yield (
                    source["serviceAccountToken"]["path"],
                    self._cluster.token(self._namespace, self._account).encode(),
                )
            for item in source.get("downwardAPI", {}).get("items", ()):
                yield item["path"], str(_walk(self._pod, item["fieldRef"]["fieldPath"])).encode()
            content = self._source(source)
            chosen = next((part["items"] for part in source.values() if "items" in part), None)
            if chosen is None:
                yield from content.items()
            elif (
                missing := [item["key"] for item in chosen if "key" in item and item["key"] not in content]
            ) and not any(part.get("optional") for part in source.values()):
                raise NotYetError(f"references non-existent keys: {missing}")
            else:
                yield from (
                    (item["path"], content[item["key"]]) for item in chosen if item.get("key") in content
                )

    def _source(self, source: Object) -> dict[str, bytes]:
        """The content of a ConfigMap or Secret, as volumes refer to them; nothing for other kinds."""
        for field, kind in (("configMap", "configmaps"), ("secret", "secrets")):
            if (reference := source.get(field)) is not None:
                name = reference.get("name") or reference["secretName"]
                return self._content(kind, name, optional=reference.get("optional", False))
        return {}

    def _content(self, kind: str, name: str, *, optional: bool) -> dict[str, bytes]:
        try:
            found = self._cluster.rest.get(f"/api/v1/namespaces/{self._namespace}/{kind}/{name}")
        except Refused as error:
            if error.code == 404 and optional:
                return {}
            raise NotYetError(str(error)) from None
        plain = found.get("data", {})
        if kind == "secrets":
            return {key: base64.b64decode(value) for key, value in plain.items()}
        return {key: value.encode() for key, value in plain.items()}


def command(container: Object, address: str, paths: Mapping[str, str], env: Mapping[str, str]) -> list[str]:
    """The command line on this host: it listens on the pod's address only, and reads where its files really are."""
    words = [*container["command"], *container.get("args", ())]
    found = [listening(translated(expanded(word, env), paths), address) for word in words]
    if found[0] == "delayq" and "/etc/delayq" in paths:
        found += naming(f"{paths['/etc/delayq']}/queue.yaml", env)
    return found


def listening(word: str, address: str) -> str:
    """On this host, every address of a pod is the one it has."""
    return re.sub(r"^(--host=)?(\*|0\.0\.0\.0)$", rf"\g<1>{address}", word)


def expanded(text: str, env: Mapping[str, str]) -> str:
    return re.sub(r"\$\((\w+)\)", lambda found: env.get(found[1], found[0]), text)


def translated(text: str, paths: Mapping[str, str]) -> str:
    for inside, here in paths.items():
        if text == inside or text.startswith(f"{inside}/"):
            return here + text[len(inside) :]
    return text


def _walk(value: Object, path: str) -> object:
    quoted = re.fullmatch(r"(.*)\['(.*)'\]", path)
    steps = [*quoted[1].split("."), quoted[2]] if quoted else path.split(".")
    found: object = value
    for step in steps:
        found = found.get(step, "") if isinstance(found, dict) else ""
    return found
