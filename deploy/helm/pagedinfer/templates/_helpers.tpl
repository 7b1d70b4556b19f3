{{- define "pagedinfer.labels" -}}
app.kubernetes.io/name: pagedinfer
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "pagedinfer.claim" -}}
{{ .Values.storage.existingClaim | default (printf "%s-models" .Release.Name) }}
{{- end }}
