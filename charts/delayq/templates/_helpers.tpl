{{/* Names and labels. Each is made here once. */}}

{{- define "delayq.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* 40 characters leave room for every suffix within the 63 of a label. */}}
{{- define "delayq.fullname" -}}
{{- $name := include "delayq.name" . }}
{{- $both := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) }}
{{- default $both .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "delayq.operatorName" -}}
{{ include "delayq.fullname" . }}-operator
{{- end }}

{{- define "delayq.scannerRole" -}}
{{ include "delayq.fullname" . }}-scanner
{{- end }}

{{- define "delayq.redisName" -}}
{{ include "delayq.fullname" . }}-redis
{{- end }}

{{- define "delayq.testName" -}}
{{ include "delayq.fullname" . }}-test
{{- end }}

{{- define "delayq.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "delayq.operatorName" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name: name the ServiceAccount, as serviceAccount.create is false; default would give the operator's rights to every pod of the namespace" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* Call with (list $ component). These select pods, so they never change. */}}
{{- define "delayq.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "delayq.name" $root | quote }}
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* The operator's selector as an argument. */}}
{{- define "delayq.ownLabels" -}}
{{- $pairs := list }}
{{- range $key, $value := include "delayq.selector" (list . "operator") | fromYaml }}
{{- $pairs = append $pairs (printf "%s=%s" $key $value) }}
{{- end }}
{{- join "," $pairs }}
{{- end }}

{{/* Labels of pods, without versions: an upgrade that changes nothing else must not replace them. */}}
{{- define "delayq.podLabels" -}}
{{ include "delayq.selector" . }}
{{- with (index . 0).Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Call with (list $ component). */}}
{{- define "delayq.labels" -}}
{{- $root := index . 0 -}}
{{ include "delayq.selector" . }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | quote }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Call with (list $ image). */}}
{{- define "delayq.image" -}}
{{- $root := index . 0 }}{{ $image := index . 1 -}}
{{- with $root.Values.imageRegistry }}{{ trimSuffix "/" . }}/{{ end }}{{ $image.repository -}}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default $root.Chart.AppVersion }}{{ end }}
{{- end }}

{{/* Call with a list of Secrets, each a name or {name: NAME}: their names, as JSON. */}}
{{- define "delayq.secretNames" -}}
{{- $names := list }}
{{- range . }}
{{- if kindIs "map" . }}{{ $names = append $names .name }}{{ else }}{{ $names = append $names . }}{{ end }}
{{- end }}
{{- uniq $names | toJson }}
{{- end }}

{{/* What may be empty is included by `with … | trim`. */}}
{{- define "delayq.imagePullSecrets" }}
{{- with include "delayq.secretNames" .Values.imagePullSecrets | fromJsonArray }}
imagePullSecrets:
{{- range . }}
- name: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* Where a pod may run: call with the values that say so. */}}
{{- define "delayq.placement" }}
{{- with .priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 0 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "delayq.redisSecret" -}}
{{- default (include "delayq.redisName" .) .Values.redis.existingSecret }}
{{- end }}

{{/* The namespace in which DelayQueues are refused: the operator's own, unless it serves no other. Empty: none. */}}
{{- define "delayq.closedNamespace" -}}
{{- if not (or .Values.policy.ownNamespace (eq (uniq .Values.watchNamespaces | join ",") .Release.Namespace)) }}
{{- .Release.Namespace }}
{{- end }}
{{- end }}

{{/* A namespace for a DelayQueue of ours. */}}
{{- define "delayq.someNamespace" -}}
{{- $open := without (default (list "default") .Values.watchNamespaces) (include "delayq.closedNamespace" .) }}
{{- first $open | default .Release.Namespace }}
{{- end }}

{{- define "delayq.testNamespace" -}}
{{- .Values.test.namespace | default (include "delayq.someNamespace" .) }}
{{- end }}

{{/* The spec.redis of the test's DelayQueue; empty when there is no Redis to test with. */}}
{{- define "delayq.testRedis" -}}
{{- if .Values.test.redis }}
{{- toJson .Values.test.redis }}
{{- else if .Values.redis.enabled }}
{{- $secret := include "delayq.redisSecret" . }}
{{- toJson (dict "standalone" (dict "host" (include "delayq.redisHost" .)) "auth" (dict "passwordSecretRef" (dict "name" $secret))) }}
{{- else -}}
{}
{{- end }}
{{- end }}

{{/* Where the pods of a queue have its document; a test compares it with theirs. */}}
{{- define "delayq.document" -}}
/etc/delayq/queue.yaml
{{- end }}

{{- define "delayq.redisHost" -}}
{{ include "delayq.redisName" . }}.{{ .Release.Namespace }}.svc
{{- end }}

{{/* What cannot work together, with what to do about it. */}}
{{- define "delayq.check" -}}
{{- if and (gt (int .Values.replicas) 1) (not .Values.leaderElection.enabled) }}
{{- fail "replicas: more than 1 needs leaderElection.enabled, or several operators work against each other: --set replicas=1" }}
{{- end }}
{{- if not (or .Values.imageRegistry .Values.localImages) }}
{{- range $path, $image := dict "image" .Values.image "worker.image" .Values.worker.image }}
{{- if not (contains "/" $image.repository) }}
{{- fail (printf "imageRegistry is empty and %s.repository is %s, a name without a registry: no registry serves this image. Build both images, push them to a registry of yours (docs/how-to/images.md), and give its name: --set imageRegistry=registry.example.com/tools. If the nodes have the images already: --set localImages=true" $path $image.repository) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and .Values.podMonitor.enabled .Values.serviceMonitor.enabled }}
{{- fail "podMonitor and serviceMonitor: both would scrape the operator twice; enable one" }}
{{- end }}
{{- $users := .Values.redis.users | keys }}
{{- range .Values.redis.queues }}
{{- $user := printf "delayq-%s" .name }}
{{- if has $user $users }}
{{- fail (printf "redis: more than one user %s, from redis.queues or redis.users; two queues of one name would share their tasks, in any namespace" $user) }}
{{- end }}
{{- $users = append $users $user }}
{{- end }}
{{- range list "appendonly" "dir" "maxmemory" "maxmemory-policy" "port" "protected-mode" "requirepass" }}
{{- if hasKey $.Values.redis.config . }}
{{- fail (printf "redis.config: %s is set by the chart, or queues would lose tasks or their way to Redis" .) }}
{{- end }}
{{- end }}
{{- end }}
