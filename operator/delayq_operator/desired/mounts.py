"""Keys of Secrets and ConfigMaps that a part of the document names, and the volume that contains them.

One projected volume contains the document and these keys. It mounts only the keys in use: a private key next to a CA
certificate is not mounted.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from delayq.contract.files import CONFIG_FILE, ISSUER_FILE, SECRETS_DIR
from delayq.contract.references import references

from delayq_operator.base import names
from delayq_operator.desired.config import KEY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delayq.contract.files import Reference
    from delayq.kube.objects import Object


VOLUME: Final = "delayq"
DIRECTORY: Final = str(Path(CONFIG_FILE).parent)
_SECRETS = Path(SECRETS_DIR).relative_to(DIRECTORY)
# Readable by any user that the image runs as. A group would need an fsGroup, which a cluster's policies may forbid.
_MODE = 0o444


def volume(
    queue_name: str, sections: Iterable[object], annotation: str = "", *, issuer: bool = False
) -> Object:
    """Return the volume at /etc/delayq, with the files that these parts of the document refer to.

    A missing object or key keeps no pod from starting: the process waits for it, and its metrics name it. The document
    is in the ConfigMap, or in an annotation of the pod. `issuer`: with the keys of ServiceAccount tokens.
    """
    config: Object = {"configMap": {"name": names.config(queue_name), "items": [{"key": KEY, "path": KEY}]}}
    if annotation:
        field = {"path": KEY, "fieldRef": {"fieldPath": f"metadata.annotations['{annotation}']"}}
        config = {"downwardAPI": {"items": [field]}}
    found = sorted({each for part in sections for _, each in references(part)}, key=itemgetter(1, 0, 2))
    sources = [_source(kind, name, list(keys)) for (kind, name), keys in groupby(found, key=itemgetter(0, 1))]
    sources += [_issuer(queue_name)] if issuer else []
    return {"name": VOLUME, "projected": {"defaultMode": _MODE, "sources": [config, *sources]}}


def _issuer(queue_name: str) -> Object:
    path = str(Path(ISSUER_FILE).relative_to(DIRECTORY))
    items = [{"key": names.ISSUER_KEY, "path": path}]
    return {"configMap": {"name": names.api(queue_name), "items": items, "optional": True}}


def _source(kind: str, name: str, keys: list[Reference]) -> Object:
    items = [{"key": each.key, "path": str(each.file(_SECRETS))} for each in keys]
    return {"secret" if kind == "Secret" else "configMap": {"name": name, "items": items, "optional": True}}
