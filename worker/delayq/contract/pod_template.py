"""Pod templates: the fields of a Pod by name and type, so that a typo is refused before anything is stored.

tools/crds makes the CRD's schema from the same table. A test holds the table against Kubernetes' own
definition of a Pod. What is rarely written stays open: the terms of affinities, and most sources of volumes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from delayq.contract.freeform import Freeform
from delayq.contract.problems import INVALID, type_name
from delayq.contract.record import refuse_unknown

if TYPE_CHECKING:
    from delayq.contract.problems import Place

DELETE: Final = "$patch"
"""Every typed mapping may contain `$patch: delete`, which deletes the operator's value."""

PLAIN: Final = {
    "text": "text",
    "int": "a whole number",
    "bool": "true or false",
    "port": "a whole number or text",
    "open": "a mapping",
    "amount": "a quantity, such as 500m or 1Gi",
}
"""Types without fields of their own, with what they expect. Kubernetes takes a quantity as number or text."""

QUANTITY: Final = r"\s*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,3})?\s*"
"""A quantity as text: number and unit. The API server's own message about another text has no path."""

_TYPES: Final = {
    "PodTemplate": "metadata:Metadata spec:Pod",
    "Metadata": "annotations:{text} labels:{text}",
    "Pod": """activeDeadlineSeconds:int affinity:Affinity automountServiceAccountToken:bool containers:[Container]
        dnsConfig:DNSConfig dnsPolicy:text enableServiceLinks:bool ephemeralContainers:[open] hostAliases:[HostAlias]
        hostIPC:bool hostNetwork:bool hostPID:bool hostUsers:bool hostname:text hostnameOverride:text
        imagePullSecrets:[Named] initContainers:[Container] nodeName:text nodeSelector:{text} os:Named
        overhead:{amount} preemptionPolicy:text priority:int priorityClassName:text readinessGates:[open]
        resourceClaims:[PodResourceClaim] resources:Resources restartPolicy:text runtimeClassName:text
        schedulerName:text schedulingGates:[Named] schedulingGroup:open securityContext:PodSecurity
        serviceAccount:text serviceAccountName:text setHostnameAsFQDN:bool shareProcessNamespace:bool subdomain:text
        terminationGracePeriodSeconds:int tolerations:[Toleration] topologySpreadConstraints:[TopologySpread]
        volumes:[Volume]""",
    "Affinity": "nodeAffinity:open podAffinity:open podAntiAffinity:open",
    "Container": """args:[text] command:[text] env:[Variable] envFrom:[VariablesFrom] image:text imagePullPolicy:text
        lifecycle:Lifecycle livenessProbe:Probe name!:text ports:[Port] readinessProbe:Probe resizePolicy:[open]
        resources:Resources restartPolicy:text restartPolicyRules:[open] securityContext:Security startupProbe:Probe
        stdin:bool stdinOnce:bool terminationMessagePath:text terminationMessagePolicy:text tty:bool
        volumeDevices:[Device] volumeMounts:[Mount] workingDir:text""",
    "Variable": "name!:text value:text valueFrom:VariableSource",
    "VariableSource": """configMapKeyRef:KeyOf fieldRef:FieldOf fileKeyRef:open resourceFieldRef:ResourceOf
        secretKeyRef:KeyOf""",
    "KeyOf": "key:text name:text optional:bool",
    "FieldOf": "apiVersion:text fieldPath:text",
    "ResourceOf": "containerName:text divisor:amount resource:text",
    "VariablesFrom": "configMapRef:AllOf prefix:text secretRef:AllOf",
    "AllOf": "name:text optional:bool",
    "Lifecycle": "postStart:Hook preStop:Hook stopSignal:text",
    "Hook": "exec:Exec httpGet:HTTPGet sleep:Sleep tcpSocket:Socket",
    "Exec": "command:[text]",
    "HTTPGet": "host:text httpHeaders:[Header] path:text port:port scheme:text",
    "Header": "name:text value:text",
    "Sleep": "seconds:int",
    "Socket": "host:text port:port",
    "Probe": """exec:Exec failureThreshold:int grpc:GRPC httpGet:HTTPGet initialDelaySeconds:int periodSeconds:int
        successThreshold:int tcpSocket:Socket terminationGracePeriodSeconds:int timeoutSeconds:int""",
    "GRPC": "port:int service:text",
    "Port": "containerPort!:int hostIP:text hostPort:int name:text protocol:text",
    "Resources": "claims:[Claim] limits:{amount} requests:{amount}",
    "Claim": "name:text request:text",
    "Security": """allowPrivilegeEscalation:bool appArmorProfile:Profile capabilities:Capabilities privileged:bool
        procMount:text readOnlyRootFilesystem:bool runAsGroup:int runAsNonRoot:bool runAsUser:int seLinuxOptions:open
        seccompProfile:Profile windowsOptions:open""",
    "Profile": "localhostProfile:text type:text",
    "Capabilities": "add:[text] drop:[text]",
    "Device": "devicePath!:text name:text",
    "Mount": """mountPath!:text mountPropagation:text name:text readOnly:bool recursiveReadOnly:text subPath:text
        subPathExpr:text""",
    "DNSConfig": "nameservers:[text] options:[Header] searches:[text]",
    "HostAlias": "hostnames:[text] ip!:text",
    "Named": "name!:text",
    "PodResourceClaim": "name!:text resourceClaimName:text resourceClaimTemplateName:text",
    "PodSecurity": """appArmorProfile:Profile fsGroup:int fsGroupChangePolicy:text runAsGroup:int runAsNonRoot:bool
        runAsUser:int seLinuxChangePolicy:text seLinuxOptions:open seccompProfile:Profile supplementalGroups:[int]
        supplementalGroupsPolicy:text sysctls:[Header] windowsOptions:open""",
    "Toleration": "effect:text key:text operator:text tolerationSeconds:int value:text",
    "TopologySpread": """labelSelector:Selector matchLabelKeys:[text] maxSkew:int minDomains:int
        nodeAffinityPolicy:text nodeTaintsPolicy:text topologyKey:text whenUnsatisfiable:text""",
    "Selector": "matchExpressions:[Expression] matchLabels:{text}",
    "Expression": "key:text operator:text values:[text]",
    "Volume": """awsElasticBlockStore:open azureDisk:open azureFile:open cephfs:open cinder:open configMap:ConfigFiles
        csi:open downwardAPI:open emptyDir:EmptyDir ephemeral:open fc:open flexVolume:open flocker:open
        gcePersistentDisk:open gitRepo:open glusterfs:open hostPath:HostPath image:open iscsi:open name!:text nfs:open
        persistentVolumeClaim:VolumeClaim photonPersistentDisk:open portworxVolume:open projected:open quobyte:open
        rbd:open scaleIO:open secret:SecretFiles storageos:open vsphereVolume:open""",
    "ConfigFiles": "defaultMode:int items:[File] name:text optional:bool",
    "SecretFiles": "defaultMode:int items:[File] optional:bool secretName:text",
    "File": "key:text mode:int path:text",
    "EmptyDir": "medium:text sizeLimit:amount",
    "HostPath": "path:text type:text",
    "VolumeClaim": "claimName:text readOnly:bool",
}
"""Fields as `name:type`; `name!` is required, because it is the key of a list; `[type]` a list, `{type}` a map."""

FIELDS: Final = {
    name: {field: kind for field, _, kind in (each.partition(":") for each in fields.split())}
    for name, fields in _TYPES.items()
}
"""The fields of each type, in the notation above."""


@dataclass(frozen=True, slots=True)
class PodTemplate(Freeform):
    """A pod template; all fields are optional."""

    def read(self, value: object, place: Place) -> object:
        """Return a copy of the template, if it is limited JSON with fields of a Pod only."""
        found = Freeform.read(self, value, place)
        before = len(place.problems)
        read = found if found is INVALID else _read("PodTemplate", found, place)
        return read if len(place.problems) == before else INVALID


def _read(kind: str, value: object, place: Place) -> object:
    if kind in PLAIN:
        return value if _fits(kind, value) else _refuse(PLAIN[kind], value, place)
    inner = kind.strip("[]{}")
    if kind.startswith("["):
        if not isinstance(value, list):
            return _refuse("a list", value, place)
        return [_read(inner, item, place.item(index)) for index, item in enumerate(value)]
    if not isinstance(value, Mapping):
        return _refuse("a mapping", value, place)
    if kind.startswith("{"):
        return {
            key: item if item is None else _read(inner, item, place.key(key)) for key, item in value.items()
        }
    return _read_fields(FIELDS[kind], value, place)


def _read_fields(fields: Mapping[str, str], value: Mapping[str, object], place: Place) -> object:
    known = {DELETE: "text"} | {field.rstrip("!"): kind for field, kind in fields.items()}
    refuse_unknown([key for key in value if key not in known], [*known][1:], place)
    for field in [field.rstrip("!") for field in fields if field.endswith("!")]:
        if value.get(field) is None:
            place.field(field).refuse("required, but missing")
    # null deletes the operator's value.
    return {
        key: item if item is None else _read(known[key], item, place.field(key))
        for key, item in value.items()
        if key in known and not (key == DELETE and item is None)  # the API server drops that null
    }


def _fits(kind: str, value: object) -> bool:
    # The API server rejects whole numbers beyond 64 bits.
    whole = isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
    match kind:
        case "text":
            return isinstance(value, str)
        case "int":
            return whole
        case "bool":
            return isinstance(value, bool)
        case "port":
            return whole or isinstance(value, str)
        case "open":
            return isinstance(value, Mapping)
        case _:
            return _is_quantity(value)


def _is_quantity(value: object) -> bool:
    if isinstance(value, str):
        return re.fullmatch(QUANTITY, value) is not None
    return isinstance(value, int | float) and not isinstance(value, bool)


def _refuse(expected: str, value: object, place: Place) -> object:
    # The value may be a secret by mistake: name only its type.
    return place.refuse(f"expected {expected}, got {type_name(value)}")
