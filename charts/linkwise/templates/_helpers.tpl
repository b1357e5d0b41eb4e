{{/* An image: .image with registry, repository, tag and digest, .tag by default; .global of a parent chart. */}}
{{- define "linkwise.imageName" -}}
{{- $image := .image -}}
{{- with .global.imageRegistry | default $image.registry }}{{ trimSuffix "/" . }}/{{ end -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .tag }}
{{- end -}}
{{- end }}

{{/* Secrets to pull images with: those of a parent chart, too. */}}
{{- define "linkwise.pullSecrets" -}}
{{- with uniq (concat (.Values.global.imagePullSecrets | default list) .Values.imagePullSecrets) }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- end }}

{{/* Image of the components. */}}
{{- define "linkwise.image" -}}
image: {{ include "linkwise.imageName" (dict "image" .Values.image "tag" .Chart.AppVersion "global" .Values.global) }}
{{- with .Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- end }}

{{/* Of the pod of a component in linkwise-system on which pods depend. */}}
{{- define "linkwise.podSettings" -}}
{{ include "linkwise.podBase" . }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{/* Of the pod of a component in linkwise-system: security, nodes. */}}
{{- define "linkwise.podBase" -}}
securityContext:
  {{- $context := .Values.podSecurityContext }}
  {{- if include "linkwise.idsAreAssigned" . }}
  {{- $context = omit $context "runAsUser" "runAsGroup" "fsGroup" }}
  {{- end }}
  {{- toYaml $context | nindent 2 }}
{{- include "linkwise.pullSecrets" . }}
{{- with .Values.affinity }}
affinity: {{ toJson . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- end }}

{{/* Not empty where the platform assigns the ids of users and groups, and refuses fixed ones. */}}
{{- define "linkwise.idsAreAssigned" -}}
{{- $when := .Values.openshift.assignedIds -}}
{{- if or (eq $when "always") (and (eq $when "auto") (.Capabilities.APIVersions.Has "security.openshift.io/v1")) -}}
true
{{- end -}}
{{- end }}

{{/* Labels and annotations of an object of a hook: root, component, hook, weight. */}}
{{- define "linkwise.hook" -}}
labels: {app.kubernetes.io/name: linkwise, app.kubernetes.io/component: {{ index . 1 }}{{ include "linkwise.labels" (index . 0) }}}
annotations:
  helm.sh/hook: {{ index . 2 }}
  helm.sh/hook-weight: "{{ index . 3 }}"
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{/* Probes of a component. */}}
{{- define "linkwise.probes" -}}
readinessProbe:
  httpGet: {path: /readyz, port: probe}
  periodSeconds: 2
livenessProbe:
  httpGet: {path: /healthz, port: probe}
  periodSeconds: 10
  failureThreshold: 6
{{- end }}

{{/* The rule of a NetworkPolicy for probes and metrics. Nodes reach their pods without a rule. */}}
{{- define "linkwise.monitoringIngress" -}}
{{- with .Values.networkPolicy.monitoringNamespaces -}}
- from:
    - namespaceSelector:
        matchExpressions:
          - {key: kubernetes.io/metadata.name, operator: In, values: {{ toJson . }}}
  ports:
    - {protocol: TCP, port: probe}
{{- end }}
{{- end }}

{{- define "linkwise.containerSecurity" -}}
securityContext:
  {{- toYaml .Values.containerSecurityContext | nindent 2 }}
{{- end }}

{{/*
Variables of a container: .own, which the chart sets, a list in YAML; .settings of its component, which
replace them; .root for those of all components.
*/}}
{{- define "linkwise.env" -}}
{{- $given := .settings -}}
{{- $all := list -}}
{{- range .own | fromYamlArray -}}
{{- if not (hasKey $given .name) }}{{ $all = append $all . }}{{ end -}}
{{- end -}}
{{- if and (ne .root.Values.logLevel "info") (not (hasKey $given "LINKWISE_LOG_LEVEL")) -}}
{{- $all = append $all (dict "name" "LINKWISE_LOG_LEVEL" "value" .root.Values.logLevel) -}}
{{- end -}}
{{- range $name, $value := $given -}}
{{/* Numbers of files are floats, which would be written with an exponent. */}}
{{- $number := kindIs "float64" $value -}}
{{- $text := and $number (eq $value (floor $value)) | ternary (int64 (toString $value | float64)) $value -}}
{{- $all = append $all (dict "name" $name "value" (toString $text)) -}}
{{- end -}}
{{- with concat $all .root.Values.extraEnv }}
env:
  {{- range . }}
  {{- if hasKey . "valueFrom" }}
  - name: {{ .name }}
    valueFrom:
      {{- toYaml .valueFrom | nindent 6 }}
  {{- else }}
  - {name: {{ .name }}, value: {{ .value | default "" | quote }}}
  {{- end }}
  {{- end }}
{{- end }}
{{- end }}

{{/* A port that a setting of a component changes: .settings, .name, .default. */}}
{{- define "linkwise.port" -}}
{{ get .settings .name | default .default | int }}
{{- end }}

{{- define "linkwise.probePort" -}}
{{ include "linkwise.port" (dict "settings" . "name" "LINKWISE_PROBE_PORT" "default" 8080) }}
{{- end }}

{{- define "linkwise.fitPort" -}}
{{ include "linkwise.port" (dict "settings" .Values.scorer.settings "name" "LINKWISE_FIT_PORT" "default" 8445) }}
{{- end }}

{{- define "linkwise.extenderPort" -}}
{{ include "linkwise.port" (dict "settings" .Values.scorer.settings "name" "LINKWISE_EXTENDER_PORT" "default" 8082) }}
{{- end }}

{{/* Namespaces whose pods Linkwise leaves alone. Of our own, the webhook could block its own pods. */}}
{{- define "linkwise.excludedNamespaces" -}}
[{{ join ", " (concat (list "kube-system" "kube-node-lease" "linkwise-system") .Values.excludedNamespaces) }}]
{{- end }}

{{- define "linkwise.podAnnotations" -}}
{{- with .Values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "linkwise.podLabels" -}}
{{- with .Values.podLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "linkwise.accountAnnotations" -}}
{{- with .Values.serviceAccount.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Egress of each component. */}}
{{- define "linkwise.apiServerEgress" -}}
# The API server, whose address is not known here; it is reached without DNS.
- ports:
    {{- range .Values.networkPolicy.apiServerPorts }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
{{- end }}

{{/*
The standard labels of an object beside its name and component, in the middle of a map; `make manifests`
leaves them out. The labels of pods stay, since each change would restart them.
*/}}
{{- define "linkwise.labels" -}}
{{- range $name, $value := include "linkwise.labelLines" . | fromYaml }}, {{ $name }}: {{ quote $value }}{{ end -}}
{{- end }}

{{- define "linkwise.labelLines" -}}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- end }}

{{- define "linkwise.monitoringLabels" -}}
app.kubernetes.io/name: linkwise
app.kubernetes.io/component: monitoring
{{ include "linkwise.labelLines" . }}
{{- with .Values.monitoring.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/*
The scheduler and the scorer of one pod lead together: the scheduler holds the Lease that the fence
checks, and the scorer follows it. Do not use hostNetwork: they identify each other by the pod's host
name.
*/}}
{{- define "linkwise.schedulerContainer" -}}
- name: scheduler
  {{- $image := .Values.scheduler.image }}
  {{- if not $image.repository }}
  {{- fail "scheduler.image.repository: name the image of kube-scheduler that your nodes can pull" }}
  {{- end }}
  image: {{ include "linkwise.imageName" (dict "image" $image "tag" (regexFind "^v[0-9.]+" .Capabilities.KubeVersion.Version) "global" .Values.global) }}
  command:
    - kube-scheduler
    - --config=/etc/linkwise/scheduler/config.yaml
    # The scorer requeues a refused pod once it fits. Where it does not, the pod would wait for
    # the next cluster event, or five minutes. Deprecated: a kube-scheduler after 1.37
    # may not accept it.
    - --pod-max-in-unschedulable-pods-duration=30s
  ports:
    - {name: scheduler, containerPort: 10259}
  livenessProbe:
    httpGet: {path: /livez, port: scheduler, scheme: HTTPS}
    periodSeconds: 10
    failureThreshold: 6
  # No CPU limit: throttling could cost the scheduler its Lease.
  resources:
    {{- toYaml .Values.scheduler.resources | nindent 4 }}
  {{- include "linkwise.containerSecurity" . | nindent 2 }}
  volumeMounts:
    - {name: scheduler, mountPath: /etc/linkwise/scheduler, readOnly: true}
{{- end }}
