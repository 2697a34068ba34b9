{{- define "iolite.name" -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end }}
{{- define "iolite.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "iolite.secret" -}}
{{- .Values.existingSecret | default (include "iolite.name" .) -}}
{{- end }}
