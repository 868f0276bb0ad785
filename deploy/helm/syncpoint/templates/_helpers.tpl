{{- define "syncpoint.fullname" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "syncpoint.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "syncpoint.labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{ include "syncpoint.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "syncpoint.account" -}}
{{- if .Values.serviceAccount.create }}{{ default (include "syncpoint.fullname" .) .Values.serviceAccount.name }}
{{- else }}{{ default "default" .Values.serviceAccount.name }}{{ end }}
{{- end }}

{{- define "syncpoint.image" -}}
{{- if .Values.image.digest }}{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else }}{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}{{ end }}
{{- end }}

{{/* The domain of the pods' own names: (dict "root" $). */}}
{{- define "syncpoint.domain" -}}
{{ include "syncpoint.fullname" .root }}-internal.{{ .root.Release.Namespace }}.svc.{{ .root.Values.clusterDomain }}
{{- end }}

{{/* What is the same for every pod: (dict "root" $ "part" "storage"). */}}
{{- define "syncpoint.pod" -}}
{{- $values := .root.Values -}}
serviceAccountName: {{ include "syncpoint.account" .root }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with $values.image.pullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ $values.runAsUser }}
  runAsGroup: {{ $values.runAsUser }}
  fsGroup: {{ $values.runAsUser }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "syncpoint.container-security" -}}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
readOnlyRootFilesystem: true
{{- end }}

{{/* A process opens its port for metrics once it can be called, and closes it when it begins to stop. */}}
{{- define "syncpoint.probes" -}}
startupProbe: # reading the log after a crash may take minutes
  httpGet: {path: /metrics, port: metrics}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 450
livenessProbe:
  httpGet: {path: /metrics, port: metrics}
  periodSeconds: 15
  timeoutSeconds: 10
  failureThreshold: 4
readinessProbe:
  {{- if and .clients (not .root.Values.publicTls.secretName) }}
  grpc: {port: 8085}
  {{- else }}
  httpGet: {path: /metrics, port: metrics} # the kubelet cannot ask grpc.health.v1 by TLS
  {{- end }}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 3
{{- end }}

{{/* Secrets as files: (dict "root" $). */}}
{{- define "syncpoint.secret-mounts" -}}
{{- $values := .root.Values -}}
{{- with $values.publicTls.secretName }}
- {name: public-tls, mountPath: /etc/syncpoint/public-tls, readOnly: true}
{{- end }}
{{- with $values.auth.secretName }}
- {name: auth, mountPath: /etc/syncpoint/auth, readOnly: true}
{{- end }}
{{- end }}

{{- define "syncpoint.secret-volumes" -}}
{{- $values := .root.Values -}}
{{- with $values.publicTls.secretName }}
- {name: public-tls, secret: {secretName: {{ . }}, defaultMode: 0440}}
{{- end }}
{{- with $values.auth.secretName }}
- {name: auth, secret: {secretName: {{ . }}, defaultMode: 0440}}
{{- end }}
{{- end }}

{{/* One disk or folder as a claim: (dict "name" "disk-1" "size" "20Gi" "class" ""). */}}
{{- define "syncpoint.claim" -}}
- metadata: {name: {{ .name }}}
  spec:
    accessModes: [ReadWriteOnce]
    {{- with .class }}
    storageClassName: {{ . }}
    {{- end }}
    resources: {requests: {storage: {{ .size }}}}
{{- end }}
