"""The CRDs as the text of their files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import yaml
from delayq.contract.queue import GROUP, VERSION, DelayQueue
from delayq.contract.schedule import DelaySchedule

from tools.crds import status
from tools.crds.kubernetes_schema import Line, Template
from tools.crds.schema import document

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from tools.crds.parts import Part

Schema = dict[str, Any]

HEAD: Final = "# Made by `make crds` from delayq.contract and tools/crds: change these instead.\n"


class Dumper(yaml.SafeDumper):
    """Writes the first pod template, to which the others refer."""

    def ignore_aliases(self, data: object) -> bool:
        """Repeat everything else."""
        return not isinstance(data, Template)

    def generate_anchor(self, node: yaml.Node) -> str:  # noqa: ARG002 -- its signature
        """Return the name of the only anchor."""
        return "podTemplate"


Dumper.add_representer(Template, lambda dumper, template: dumper.represent_dict(template))
Dumper.add_representer(
    Line,
    lambda dumper, line: dumper.represent_mapping("tag:yaml.org,2002:map", line.items(), flow_style=True),
)


def crd(model: type[DataclassInstance], short: str, part: Part) -> Schema:
    """Return the CRD of a document."""
    kind, names = model.__name__, model.__name__.lower()
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}, **part.subresources},
        "additionalPrinterColumns": part.columns,
        "schema": {"openAPIV3Schema": document(model, part.status)},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names}s.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": f"{names}s",
                "singular": names,
                "shortNames": [short],
                "categories": ["delayq"],
            },
            "versions": [version],
        },
    }


def text(crd: Schema) -> str:
    """Return the text of a file."""
    return HEAD + yaml.dump(crd, Dumper=Dumper, sort_keys=False, width=10**6, allow_unicode=True)


CRDS: Final = {
    "delayqueue.yaml": crd(DelayQueue, "dq", status.QUEUE),
    "delayschedule.yaml": crd(DelaySchedule, "dsched", status.SCHEDULE),
}
