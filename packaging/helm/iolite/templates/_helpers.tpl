{{- define "iolite.name" -}}
{{- $name := printf "%s-%s" .Release.Name (.Values.nameOverride | default .Chart.Name) -}}
{{- .Values.fullnameOverride | default $name | trunc 50 | trimSuffix "-" -}}
{{- end }}
{{- /* What a pod is found by. It may not change: that of a StatefulSet is for good. */ -}}
{{- define "iolite.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "iolite.labels" -}}
{{ include "iolite.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- define "iolite.secret" -}}
{{- .Values.auth.existingSecret | default (include "iolite.name" .) -}}
{{- end }}
{{- define "iolite.image" -}}
{{- with .Values.image.registry }}{{ . }}/{{ end -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- /* A value of iolite.conf: what YAML makes of yes, no, large numbers and nothing is undone. */ -}}
{{- define "iolite.directiveValue" -}}
{{- if kindIs "bool" . -}}
{{ ternary "yes" "no" . }}
{{- else if kindIs "float64" . -}}
{{ if eq (floor .) . }}{{ int64 . }}{{ else }}{{ . }}{{ end }}
{{- else if eq (toString .) "" -}}
""
{{- else -}}
{{ . }}
{{- end -}}
{{- end }}
{{- /* What no schema can say. */ -}}
{{- define "iolite.check" -}}
{{- $valueOf := dict "dir" "persistence" "bind" "networkPolicy" "port" "service.port" "http-port" "metrics.port" "http-bind" "networkPolicy" -}}
{{- $valueOf = merge $valueOf (dict "http-metrics-auth" "metrics.auth" "http-metrics-token-file" "metrics.existingTokenSecret") -}}
{{- $valueOf = merge $valueOf (dict "sentinel-port" "sentinel.port" "requirepass" "auth.existingSecret" "masterauth" "auth.existingSecret") -}}
{{- $valueOf = merge $valueOf (dict "cluster-secret" "auth.existingSecret" "cluster-group" "replicas" "join" "replicas" "replicaof" "replicas") -}}
{{- $valueOf = merge $valueOf (dict "replica-announce-ip" "replicas" "repl-port" "replicas") -}}
{{- range $directive, $_ := .Values.config -}}
{{- if hasKey $valueOf $directive -}}
{{- fail (printf "config.%s: the chart sets this directive; see the value %s" $directive (get $valueOf $directive)) -}}
{{- end -}}
{{- end -}}
{{- range $value := list "commonLabels" "podLabels" -}}
{{- range $label, $_ := get $.Values $value -}}
{{- if has $label (list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/version" "app.kubernetes.io/managed-by" "app.kubernetes.io/component" "helm.sh/chart") -}}
{{- fail (printf "%s: the chart sets the label %s itself" $value $label) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $lost := int .Values.podDisruptionBudget.maxUnavailable -}}
{{- if and .Values.podDisruptionBudget.enabled (gt (int .Values.replicas) 1) (ge (mul 2 $lost) (int .Values.replicas)) -}}
{{- fail (printf "podDisruptionBudget.maxUnavailable: without %d of %d nodes there is no majority" $lost (int .Values.replicas)) -}}
{{- end -}}
{{- if and .Values.metrics.auth .Values.metrics.serviceMonitor.enabled (not .Values.metrics.existingTokenSecret) -}}
{{- fail "metrics.auth: a ServiceMonitor needs metrics.existingTokenSecret, or it is refused" -}}
{{- end -}}
{{- $ports := list 6379 16379 (int .Values.metrics.port) -}}
{{- if gt (int .Values.replicas) 1 }}{{ $ports = append $ports (int .Values.sentinel.port) }}{{ end -}}
{{- if ne (len $ports) (len (uniq $ports)) -}}
{{- fail "metrics.port, sentinel.port: each is a port of its own, and neither 6379 nor 16379" -}}
{{- end -}}
{{- if has (int .Values.service.port) (slice $ports 2) -}}
{{- fail "service.port: it is that of metrics or of Sentinels" -}}
{{- end -}}
{{- end }}
