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

{{/* Fails if a setting has a secret: the settings are a ConfigMap. `path` is what stands before, with a dot at its end. */}}
{{- define "tidemark.refuseSecrets" -}}
{{- $path := .path }}
{{- range $key, $value := .node }}
{{- $here := printf "%s%v" $path $key }}
{{- $isSecret := has $key (list "password" "key_password" "token" "salt") }}
{{- if or (hasSuffix ".kafka.options." $path) (hasSuffix ".spark.conf." $path) }}
{{- $isSecret = regexMatch "(?i)password|passwd|secret|token|jaas|credential|(access|account|private|ssl\\.key)[._]?key|\\.pem$" $key }}
{{- end }}
{{- if or (kindIs "map" $value) (kindIs "slice" $value) }}
{{- include "tidemark.refuseSecrets" (dict "node" $value "path" (printf "%s." $here)) }}
{{- else if and $isSecret $value }}
{{- fail (printf "%s: settings are stored in a ConfigMap, which is no place for secrets. Put the value into a Secret, and name its file (%s_file: /run/secrets/<name>/<key>) if there is such a setting; else set it as a variable: env of producer, merge, page or tasks with valueFrom.secretKeyRef" $here $key) }}
{{- else if and (kindIs "string" $value) (regexMatch "://[^/@\\s]*:[^/@\\s]*@" $value) }}
{{- fail (printf "%s: the address has a password in it, and settings are stored in a ConfigMap: give the user and the file of the password as settings of their own" $here) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Fails if pods on several nodes would need a volume that one node can mount. */}}
{{- define "tidemark.refuseVolumes" -}}
{{- if and .Values.lake.enabled (not (has "ReadWriteMany" .Values.lake.accessModes)) }}
{{- if .Values.producer.mountLake }}
{{- fail "producer.mountLake: the producers run on several nodes; it needs lake.accessModes: [ReadWriteMany]" }}
{{- end }}
{{- if and .Values.merge.enabled (eq .Values.merge.mode "operator") }}
{{- fail "merge.mode: the executors of the operator run on several nodes and share the lake; it needs lake.accessModes: [ReadWriteMany], or lake.enabled: false" }}
{{- end }}
{{- if and (eq .Values.page.mountLake "always") (not (has "ReadWriteOnce" .Values.lake.accessModes)) }}
{{- fail "page.mountLake: always: one pod only can mount a lake of ReadWriteOncePod" }}
{{- end }}
{{- end }}
{{- end }}

{{/* "true" if the page mounts the lake. */}}
{{- define "tidemark.pageMountsLake" -}}
{{- $isShared := has "ReadWriteMany" .Values.lake.accessModes }}
{{- if and .Values.lake.enabled (or (eq .Values.page.mountLake "always") (and (eq .Values.page.mountLake "auto") $isShared)) }}true{{ end }}
{{- end }}

{{/* The settings, with the ports that the probes ask, and with the cluster as Spark's master where the operator starts Spark. */}}
{{- define "tidemark.settings" -}}
{{- include "tidemark.refuseSecrets" (dict "node" .Values.settings "path" "settings.") }}
{{- include "tidemark.refuseVolumes" . }}
{{- $settings := deepCopy .Values.settings }}
{{- $service := dict "host" "0.0.0.0" "port" 8080 "merge_port" 8081 }}
{{- $_ := set $settings "service" (mergeOverwrite (default (dict) $settings.service) $service) }}
{{- $master := printf "local[%d]" (int .Values.merge.cores) }}
{{- if eq .Values.merge.mode "operator" }}{{ $master = "k8s://https://kubernetes.default.svc:443" }}{{ end }}
{{- $_ := set $settings "spark" (merge (default (dict) $settings.spark) (dict "master" $master)) }}
{{- $limits := default (dict) .Values.merge.resources.limits }}
{{- if and .Values.merge.enabled (eq $settings.spark.master "local[*]") (not $limits.cpu) }}
{{- fail "settings.spark.master: local[*] takes every core of the node: set merge.resources.limits.cpu, or leave it out and set merge.cores" }}
{{- end }}
{{- toYaml $settings }}
{{- end }}

{{/* The name of a task, as Kubernetes lets it be part of a name. */}}
{{- define "tidemark.taskName" -}}
{{- if not .settings.task }}{{ fail (printf "tasks.settings.%d.task: name the task" .number) }}{{ end }}
{{- .settings.task | lower | replace "_" "-" | replace "." "-" | trunc 50 | trimAll "-" }}
{{- end }}

{{/* The settings of a task, with the port that the probes ask. */}}
{{- define "tidemark.taskSettings" -}}
{{- include "tidemark.refuseSecrets" (dict "node" .settings "path" (printf "tasks.settings.%d." .number)) }}
{{- $settings := deepCopy .settings }}
{{- $_ := set $settings "service" (mergeOverwrite (default (dict) $settings.service) (dict "host" "0.0.0.0" "port" 8082)) }}
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
{{- with .part.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "tidemark.volumes" -}}
- name: settings
  configMap: {name: {{ .settings | default (include "tidemark.fullname" .root) }}}
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
{{- with .part.extraVolumes }}
{{ toYaml . }}
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
