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

{{- define "delayq.redisName" -}}
{{ include "delayq.fullname" . }}-redis
{{- end }}

{{- define "delayq.testName" -}}
{{ include "delayq.fullname" . }}-test
{{- end }}

{{- define "delayq.serviceAccountName" -}}
{{- default (ternary (include "delayq.operatorName" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name }}
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

{{/* What may be empty is included by `with … | trim`. */}}
{{- define "delayq.imagePullSecrets" }}
{{- with .Values.imagePullSecrets }}
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

{{/* The spec.redis of the test's DelayQueue; empty when there is no Redis to test with. */}}
{{- define "delayq.testRedis" -}}
{{- if .Values.test.redis }}
{{- toJson .Values.test.redis }}
{{- else if .Values.redis.enabled }}
{{- $secret := include "delayq.redisSecret" . }}
{{- toJson (dict "standalone" (dict "host" (include "delayq.redisHost" .)) "authSecretRef" (dict "name" $secret)) }}
{{- else -}}
{}
{{- end }}
{{- end }}

{{- define "delayq.redisHost" -}}
{{ include "delayq.redisName" . }}.{{ .Release.Namespace }}.svc
{{- end }}

{{/* What cannot work together, with what to do about it. */}}
{{- define "delayq.check" -}}
{{- if and (gt (int .Values.replicas) 1) (not .Values.leaderElection.enabled) }}
{{- fail "replicas: more than 1 needs leaderElection.enabled, or several operators work against each other" }}
{{- end }}
{{- if and .Values.podMonitor.enabled .Values.serviceMonitor.enabled }}
{{- fail "podMonitor and serviceMonitor: both would scrape the operator twice; enable one" }}
{{- end }}
{{- range list "appendonly" "dir" "maxmemory" "maxmemory-policy" "port" "protected-mode" "requirepass" }}
{{- if hasKey $.Values.redis.config . }}
{{- fail (printf "redis.config: %s is set by the chart, or queues would lose tasks or their way to Redis" .) }}
{{- end }}
{{- end }}
{{- end }}
