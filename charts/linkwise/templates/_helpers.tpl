{{/* An image: .image with repository, tag and digest, .tag by default. */}}
{{- define "linkwise.imageName" -}}
{{- $image := .image -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .tag }}
{{- end -}}
{{- end }}

{{/* Image of the components. */}}
{{- define "linkwise.image" -}}
image: {{ include "linkwise.imageName" (dict "image" .Values.image "tag" .Chart.AppVersion) }}
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
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
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

{{/* The variable of the log level, where it is not the default. */}}
{{- define "linkwise.logLevel" -}}
{{- if ne .Values.logLevel "info" -}}
- {name: LINKWISE_LOG_LEVEL, value: {{ .Values.logLevel }}}
{{- end }}
{{- end }}

{{/* The variable of the CAs of API servers, where client certificates are required. */}}
{{- define "linkwise.clientCA" -}}
{{- if .Values.webhook.clientCAConfigMap -}}
- {name: LINKWISE_CLIENT_CA, value: /etc/linkwise/clients/ca.crt}
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

{{- define "linkwise.monitoringLabels" -}}
app.kubernetes.io/name: linkwise
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
  image: {{ include "linkwise.imageName" (dict "image" $image "tag" (regexFind "^v[0-9.]+" .Capabilities.KubeVersion.Version)) }}
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
