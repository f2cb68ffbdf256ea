{{- define "tidemark.fullname" -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if contains $name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}
{{- end }}

{{- define "tidemark.selector" -}}
app.kubernetes.io/name: tidemark
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "tidemark.labels" -}}
{{ include "tidemark.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "tidemark.image" -}}
{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end }}

{{/* The settings, with the ports that the probes ask, and with the cluster as Spark's master where the operator starts Spark. */}}
{{- define "tidemark.settings" -}}
{{- $settings := deepCopy .Values.settings }}
{{- $service := dict "host" "0.0.0.0" "port" 8080 "merge_port" 8081 }}
{{- $_ := set $settings "service" (mergeOverwrite (default (dict) $settings.service) $service) }}
{{- if and .Values.merge.enabled (eq .Values.merge.mode "operator") }}
{{- $spark := default (dict) $settings.spark }}
{{- $_ := set $settings "spark" (merge $spark (dict "master" "k8s://https://kubernetes.default.svc:443")) }}
{{- end }}
{{- toYaml $settings }}
{{- end }}

{{- define "tidemark.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "tidemark.mounts" -}}
- {name: settings, mountPath: /etc/tidemark, readOnly: true}
- {name: tmp, mountPath: /tmp}
{{- range $number, $secret := .root.Values.secrets }}
- {name: secret-{{ $number }}, mountPath: {{ printf "/run/secrets/%s" $secret | quote }}, readOnly: true}
{{- end }}
{{- if .lake }}
- {name: lake, mountPath: {{ .root.Values.lake.mountPath | quote }}, readOnly: {{ .readOnlyLake }}}
{{- end }}
{{- end }}

{{- define "tidemark.volumes" -}}
- name: settings
  configMap: {name: {{ include "tidemark.fullname" .root }}}
- name: tmp
  emptyDir: {sizeLimit: {{ .temporaryStorage | quote }}}
{{- range $number, $secret := .root.Values.secrets }}
- name: secret-{{ $number }}
  secret: {secretName: {{ $secret | quote }}}
{{- end }}
{{- if .lake }}
- name: lake
  persistentVolumeClaim: {claimName: {{ include "tidemark.claim" .root }}}
{{- end }}
{{- end }}

{{- define "tidemark.claim" -}}
{{ .Values.lake.existingClaim | default (printf "%s-lake" (include "tidemark.fullname" .)) }}
{{- end }}

{{/* What all pods have in common. enableServiceLinks: Kubernetes would set variables like TIDEMARK_PORT, which look like settings. */}}
{{- define "tidemark.podSettings" -}}
enableServiceLinks: false
automountServiceAccountToken: false
terminationGracePeriodSeconds: 30
securityContext: {{- toYaml .root.Values.podSecurityContext | nindent 2 }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .part.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .part.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
