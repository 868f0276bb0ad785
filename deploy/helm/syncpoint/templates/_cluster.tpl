{{/* cluster.yaml: the one file of all processes. Pods are called by their own names, which last longer than addresses. */}}
{{- define "syncpoint.cluster-file" -}}
{{- $cluster := .Values.cluster }}
{{- $name := include "syncpoint.fullname" . }}
{{- $domain := include "syncpoint.domain" (dict "root" .) }}
cluster: {{ $cluster.name }}
metadata:
  etcd: {{ toJson $cluster.etcd.endpoints }}
  {{- with $cluster.etcd.user }}
  user: {{ . }}
  {{- end }}
  {{- if $cluster.etcd.passwordSecret }}
  password_file: /etc/syncpoint/etcd-password/password
  {{- end }}
  {{- if $cluster.etcd.tlsSecret }}
  ca_file: /etc/syncpoint/etcd-tls/ca.crt
  {{- if $cluster.etcd.clientCertificate }}
  cert_file: /etc/syncpoint/etcd-tls/tls.crt
  key_file: /etc/syncpoint/etcd-tls/tls.key
  {{- end }}
  {{- end }}
replication: {{ toJson (merge (dict "clusters" $cluster.storage.clusters "disks" $cluster.storage.disks) $cluster.replication) }}
insecure: {{ .Values.insecure }}
{{- if .Values.auth.secretName }}
auth: /etc/syncpoint/auth/{{ .Values.auth.key }}
{{- end }}
{{- if $cluster.sealingSecret }}
sealing: {key_file: /etc/syncpoint/sealing/kek}
{{- end }}
{{- if $cluster.tlsSecret }}
tls:
  ca: /etc/syncpoint/tls/ca.crt
  certificate: /etc/syncpoint/tls/tls.crt
  key: /etc/syncpoint/tls/tls.key
{{- end }}
{{- with .Values.tracing.otlp }}
tracing: {otlp: {{ . | quote }}, ratio: {{ $.Values.tracing.ratio }}}
{{- end }}
{{- with .Values.metrics.otlp }}
metrics: {otlp: {{ . | quote }}, interval_s: {{ $.Values.metrics.otlpIntervalSeconds }}}
{{- end }}
{{- if $cluster.monitor.enabled }}
monitor:
  process: {{ $name }}-monitor-0
  data: /var/lib/syncpoint
  {{- if $cluster.monitor.secretName }}
  file: /etc/syncpoint/monitor/monitor.yaml
  {{- end }}
{{- end }}
{{- range $key, $value := $cluster.config }}
{{ $key }}: {{ toJson $value }}
{{- end }}
processes:
  {{- range $index := until (int $cluster.storage.clusters) }}
  {{ $name }}-storage-{{ $index }}:
    roles: [storage]
    listen: {{ $name }}-storage-{{ $index }}.{{ $domain }}:7000
    disks_listen: {{ $name }}-storage-{{ $index }}.{{ $domain }}:7001
    metrics: {{ $name }}-storage-{{ $index }}.{{ $domain }}:9100
    region: {{ $cluster.region }}
    rack: domain-{{ $index }}
    cluster: domain-{{ $index }}
    {{- if $cluster.storage.requireDisks }}
    require_disks: true
    {{- end }}
    disks:
      {{- range $disk := until (int $cluster.storage.disks) }}
      d{{ add1 $disk }}: /disks/{{ add1 $disk }}/syncpoint
      {{- end }}
  {{- end }}
  {{- range $part, $role := include "syncpoint.parts" . | fromJson }}
  {{- range $index := until (int (include "syncpoint.replicas" (dict "root" $ "part" $part))) }}
  {{ $name }}-{{ $part }}-{{ $index }}:
    roles: [{{ $role }}]
    listen: {{ $name }}-{{ $part }}-{{ $index }}.{{ $domain }}:7000
    metrics: {{ $name }}-{{ $part }}-{{ $index }}.{{ $domain }}:9100
    region: {{ $cluster.region }}
    {{- if eq $role "proxy" }}
    public: 0.0.0.0:8085
    {{- if $.Values.publicTls.secretName }}
    tls_cert: /etc/syncpoint/public-tls/tls.crt
    tls_key: /etc/syncpoint/public-tls/tls.key
    {{- if $.Values.publicTls.clientCa }}
    tls_client_ca: /etc/syncpoint/public-tls/ca.crt
    {{- end }}
    {{- end }}
    {{- end }}
  {{- end }}
  {{- end }}
{{- end }}

{{/* The parts beside storage, and the role that each has. */}}
{{- define "syncpoint.parts" -}}
{"publish": "publish-forwarder", "subscribe": "subscribe-forwarder", "router": "router", "proxy": "proxy"
{{- if .Values.cluster.monitor.enabled }}, "monitor": "router"{{ end }}}
{{- end }}

{{- define "syncpoint.replicas" -}}
{{- if eq .part "monitor" }}1{{ else }}{{ index .root.Values.cluster .part "replicas" }}{{ end }}
{{- end }}
