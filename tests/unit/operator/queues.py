"""DelayQueues for tests of the operator's pure parts: the least, a rich one, and one whose names are a nuisance."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import TYPE_CHECKING, Any

import yaml
from delayq.contract import DelayQueue, parse
from delayq_operator.desired.facts import Facts, Setting

if TYPE_CHECKING:
    from collections.abc import Mapping

Document = dict[str, Any]

UID = "5f8c1d2e-0000-4000-8000-000000000001"
SETTING = Setting(
    worker_image="registry.example/delayq-worker:1.2.3",
    own_namespace="delayq-system",
    own_labels={"app.kubernetes.io/name": "delayq", "app.kubernetes.io/component": "operator"},
)
KINDS = frozenset({"PodMonitor", "PrometheusRule"})

MINIMAL = """
apiVersion: delayq.dev/v1alpha1
kind: DelayQueue
metadata: {name: orders, namespace: shop}
spec:
  redis: {standalone: {host: redis}}
  handler: {python: {callable: "shop.orders:cancel_unpaid"}}
"""

RICH = """
apiVersion: delayq.dev/v1alpha1
kind: DelayQueue
metadata: {name: orders, namespace: shop}
spec:
  queueName: unpaid-orders
  deletionPolicy: Delete
  shards: 4
  redis:
    sentinel:
      masterName: mymaster
      nodes: [{host: sentinel-0}, {host: sentinel-1}]
      auth: {passwordSecretRef: {name: sentinel-auth}}
    tls:
      caSecretRef: {name: redis-tls}
      certSecretRef: {name: redis-tls}
      keySecretRef: {name: redis-tls}
    auth: {usernameSecretRef: {name: shop-redis, key: user}, passwordSecretRef: {name: shop-redis}}
    timeoutSeconds: 300
  handler:
    http:
      url: https://shop.example/remind
      signingSecretRef: {name: signing}
  guard: {sqlUnique: {databaseSecretRef: {name: shop-db}}}
  scanner:
    replicas: 3
    template:
      metadata: {annotations: {cluster-autoscaler.kubernetes.io/safe-to-evict: "true"}}
      spec: {priorityClassName: system-cluster-critical}
  worker:
    image: registry.example/shop:7
    concurrency: 8
    terminationGracePeriodSeconds: 130
    drainTimeoutSeconds: 120
    template:
      metadata:
        labels: {team: checkout}
        annotations: {example.com/note: 'mind the "quotes" – and ünicode'}
      spec:
        nodeSelector: {kubernetes.io/arch: arm64}
        tolerations: [{key: spot, operator: Exists, effect: NoSchedule}]
        topologySpreadConstraints: []
        hostNetwork: false
        securityContext: {fsGroup: 1000}
        imagePullSecrets: [{name: registry}]
        initContainers:
        - name: migrate
          image: registry.example/shop:7
          command: [migrate]
          envFrom: [{secretRef: {name: shop-db}}]
          securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
        containers:
        - name: worker
          env:
          - {name: EMPTY, value: ""}
          - {name: MODE, valueFrom: {configMapKeyRef: {name: app-env, key: mode}}}
          - name: CPUS
            valueFrom: {resourceFieldRef: {resource: limits.cpu, containerName: worker}}
          - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
          envFrom: [{configMapRef: {name: app-env, optional: true}}]
          resources: {requests: {cpu: "0.5", memory: 1024Mi}, limits: {cpu: 1000m, memory: 1073741824}}
          livenessProbe: null
          startupProbe: {tcpSocket: {port: 8080}}
          volumeMounts: [{name: models, mountPath: /models, readOnly: true}]
          ports: [{name: debug, containerPort: 9000}]
        - name: proxy
          image: registry.example/proxy:2
          securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
        volumes:
        - {name: tmp, emptyDir: {sizeLimit: 1Gi, medium: Memory}}
        - {name: models, configMap: {name: models}}
  autoscaling: {minReplicas: 1, maxReplicas: 40}
  reaper: {schedule: "*/5 * * * *"}
  api:
    replicas: 3
    tokensSecretRef: {name: shop-tokens}
    tls: {certSecretRef: {name: api-tls}, keySecretRef: {name: api-tls}}
    access:
    - {serviceAccount: {namespace: web, name: shop}, verbs: [schedule, cancel], kinds: [remind]}
    - {token: php, verbs: [schedule]}
    - {token: php, verbs: [read]}
  schedules: {}
  recovery: {check: {guard: {}}}
  objective: {latenessMilliseconds: 5000}
  podDisruptionBudget: {maxUnavailable: 2}
  networkPolicy:
    enabled: true
    metricsFrom:
    - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}
    - podSelector: {}
    apiFrom:
    - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: web}}
  monitoring:
    podMonitor: {enabled: true, intervalSeconds: 15, labels: {release: prometheus}}
    prometheusRule: {enabled: true, labels: {release: prometheus}}
"""

HOSTILE = f"""
apiVersion: delayq.dev/v1alpha1
kind: DelayQueue
metadata: {{name: "{"0.9-x." * 10}end", namespace: "{"9" * 63}"}}
spec:
  redis:
    standalone: {{host: redis}}
    auth:
      usernameSecretRef: {{name: {"s" * 252}1, key: .hidden}}
      passwordSecretRef: {{name: {"s" * 252}1, key: {"k" * 253}}}
    tls: {{caSecretRef: {{name: {"s" * 252}2}}}}
  handler: {{exec: {{command: [sh, -c, "echo '\\u00fc\\n: {{}} # %'"], env: {{A: "no", B: "1e3", C: ""}}}}}}
  suspend: true
  worker: {{replicas: 0}}
  scanner: {{replicas: 0}}
  podDisruptionBudget: {{enabled: false}}
  schedules: {{}}
  api:
    allowPlainHttp: true
    tokensSecretRef: {{name: {"s" * 252}1}}
    access: [{{token: {"k" * 253}, verbs: [read]}}]
"""

DOCUMENTS: Mapping[str, str] = {"minimal": MINIMAL, "rich": RICH, "hostile": HOSTILE}


_loaded = cache(yaml.safe_load)


def document(text: str = MINIMAL, /, **spec: object) -> Document:
    """A document, with these fields of its spec instead."""
    found: Document = deepcopy(_loaded(text))
    found["spec"].update(spec)
    return found


def queue(text: str = MINIMAL, /, **spec: object) -> DelayQueue:
    return parse(document(text, **spec))


def facts(of: DelayQueue, **more: Any) -> Facts:  # noqa: ANN401 -- the fields of Facts
    """Facts in which everything exists that the queue refers to."""
    given: dict[str, Any] = {
        "uid": UID,
        "namespace": of.metadata.namespace or "default",
        "kinds": KINDS,
    }
    return Facts(**{**given, **more})
