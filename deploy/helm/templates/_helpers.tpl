{{- define "deepencoder.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end }}

{{- define "deepencoder.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "deepencoder.labels" -}}
{{ include "deepencoder.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "deepencoder.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "deepencoder.name" .) "default" .Values.serviceAccount.create) -}}
{{- end }}

{{- define "deepencoder.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
capabilities:
  drop: [ALL]
{{- end }}

{{/* Not empty where the server listens on a unix socket too. */}}
{{- define "deepencoder.socket" -}}
{{- if or .Values.sidecar.enabled .Values.tls.secret }}true{{ end -}}
{{- end }}

{{/* Kubernetes' own gRPC probe speaks no TLS; the program beside the server asks over the socket. */}}
{{- define "deepencoder.healthProbe" -}}
{{- if .Values.tls.secret -}}
exec:
  command: [deepencoder, health, "--server=unix:/run/deepencoder/grpc.sock"]
{{- else -}}
grpc: {port: 50051}
{{- end -}}
{{- end }}
