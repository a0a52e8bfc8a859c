"""The ConfigMap with the document that the pods read when they start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

import yaml
from delayq.contract import Problem, SpecError, to_document
from delayq.contract.files import CONFIG_FILE
from delayq.contract.scalars import plain

from delayq_operator.base import names
from delayq_operator.base.objects import mapping
from delayq_operator.cache.places import joined, places
from delayq_operator.desired.child import child

if TYPE_CHECKING:
    from delayq.contract import DelayQueue
    from delayq.kube.objects import Object
    from yaml import SafeDumper

    from delayq_operator.desired.facts import Facts
else:
    SafeDumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # per reconciliation: 1 ms instead of 15 ms

MOST_BYTES: Final = 192 << 10
"""A ConfigMap holds 1 MiB; annotations of the pod that erases the queue, the document among them, 256 KiB together."""
KEY: Final = PurePosixPath(CONFIG_FILE).name
SHARDS: Final = "spec.shards"


class Dumper(SafeDumper):
    """Quotes each text that Kubernetes, and so delayq, would read as something else, such as 1e3."""


def _text_node(dumper: SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, None if plain(text) == text else "'")


Dumper.add_representer(str, _text_node)


def config_map(queue: DelayQueue, facts: Facts) -> Object:
    """Return the ConfigMap with the document as readable YAML: all defaults, fields in the model's order."""
    document, spec = text(stamped(queue, facts)), mapping(to_document(queue)["spec"])
    if (size := len(document.encode())) > MOST_BYTES:
        problem = f"expected at most {MOST_BYTES:,} bytes as YAML, pod templates not counted, got {size:,}"
        raise SpecError((Problem("spec", problem),))
    return child(
        names.CONFIG_MAP,
        "config",
        queue,
        facts,
        annotations={
            names.PLACES: joined(places(queue.queue, mapping(spec["redis"]), facts.namespace)),
            **({names.INSTALLATION: facts.installation} if facts.installation else {}),
        },
        data={KEY: document},
    )


def generation(queue: DelayQueue, facts: Facts) -> int:
    """Return the generation of the last change of spec.shards: it orders documents.

    metadata.generation counts every change, and each would rewrite the ConfigMap. This one is stored in the scanners'
    inputs. An edit there is harmless: an older one requests nothing, a newer one the current number.
    """
    number, _, since = facts.inputs.get("scanner", {}).get(SHARDS, "").partition(" since ")
    known = number == str(queue.spec.shards) and since.isdecimal() and since.isascii()
    return min(int(since[:18]), facts.generation) if known else facts.generation


def asked_shards(queue: DelayQueue, facts: Facts) -> dict[str, str]:
    """Return the input of scanners: a new number rolls them out, and the first new scanner starts the resharding."""
    return {SHARDS: f"{queue.spec.shards} since {generation(queue, facts)}"}


def stamped(queue: DelayQueue, facts: Facts) -> DelayQueue:
    """Add the generation: of two documents, scanners use the shards of the newer one."""
    of = replace(queue.metadata, uid=facts.uid, generation=generation(queue, facts))
    return replace(queue, metadata=of)


def text(queue: DelayQueue) -> str:
    """Return the document for pods as YAML."""
    found: str = yaml.dump(
        to_document(for_pods(queue)), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=1_000_000
    )
    return found


def for_pods(queue: DelayQueue) -> DelayQueue:
    """Remove what only the operator reads.

    Pod templates may exceed the size of a ConfigMap, and only their own pods may read their env. With worker.replicas
    at its default, a scale change writes one object, not two.
    """
    spec = queue.spec
    return replace(
        queue,
        spec=replace(
            spec,
            scanner=replace(spec.scanner, template=None, revision_history_limit=None, annotations=None),
            worker=replace(
                spec.worker, template=None, revision_history_limit=None, annotations=None, replicas=1
            ),
            reaper=replace(spec.reaper, template=None, annotations=None),
        ),
    )
