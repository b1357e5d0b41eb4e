{{/* The pod of a replica of the webhook: .root, .role (first or standby), .secret of its certificate. */}}
{{- define "linkwise.webhookTemplate" -}}
{{- $root := .root -}}
{{- with $root }}
{{- $settings := .Values.webhook.settings -}}
strategy:
  {{- /* On the network of its node, a replica needs a node without another one. */}}
  {{- if .Values.webhook.hostNetwork }}
  rollingUpdate: {maxUnavailable: 1, maxSurge: 0}
  {{- else }}
  rollingUpdate: {maxUnavailable: 0, maxSurge: 1}
  {{- end }}
template:
  metadata:
    labels:
      app.kubernetes.io/name: linkwise
      app.kubernetes.io/component: webhook
      linkwise.dev/webhook: {{ $.role }}
      {{- with include "linkwise.podLabels" . | trim }}{{ . | nindent 6 }}{{- end }}
    {{- with include "linkwise.podAnnotations" . | trim }}{{ . | nindent 4 }}{{- end }}
  spec:
    serviceAccountName: linkwise-webhook
    terminationGracePeriodSeconds: 90
    {{- include "linkwise.podSettings" . | nindent 4 }}
    {{- if .Values.webhook.hostNetwork }}
    hostNetwork: true
    dnsPolicy: ClusterFirstWithHostNet
    {{- end }}
    topologySpreadConstraints:
      - maxSkew: 1
        topologyKey: kubernetes.io/hostname
        whenUnsatisfiable: {{ .Values.spread }}
        labelSelector:
          matchLabels: {app.kubernetes.io/name: linkwise, app.kubernetes.io/component: webhook}
    containers:
      - name: webhook
        {{- include "linkwise.image" . | nindent 8 }}
        command: [python, -m, webhook]
        {{- $own := "" }}
        {{- if .Values.webhook.clientCAConfigMap }}
        {{- $own = "[{name: LINKWISE_CLIENT_CA, value: /etc/linkwise/clients/ca.crt}]" }}
        {{- end }}
        {{- with include "linkwise.env" (dict "root" . "settings" $settings "own" $own) | trim }}{{ . | nindent 8 }}{{- end }}
        ports:
          - {name: admission, containerPort: {{ include "linkwise.port" (dict "settings" $settings "name" "LINKWISE_PORT" "default" 8443) }}}
          - {name: dry-run, containerPort: {{ include "linkwise.port" (dict "settings" $settings "name" "LINKWISE_DRY_RUN_PORT" "default" 8444) }}}
          - {name: probe, containerPort: {{ include "linkwise.probePort" $settings }}}
        {{- include "linkwise.probes" . | nindent 8 }}
        # No CPU limit: throttling would delay admission.
        resources:
          {{- toYaml .Values.webhook.resources | nindent 10 }}
        {{- include "linkwise.containerSecurity" . | nindent 8 }}
        volumeMounts:
          - {name: tls, mountPath: /etc/linkwise/tls, readOnly: true}
          - {name: scorer, mountPath: /etc/linkwise/scorer, readOnly: true}
          {{- if .Values.webhook.clientCAConfigMap }}
          - {name: clients, mountPath: /etc/linkwise/clients, readOnly: true}
          {{- end }}
    volumes:
      - name: tls
        secret:
          secretName: {{ $.secret }}
          defaultMode: 0440
          items:
            - {key: tls.crt, path: tls.crt}
            - {key: tls.key, path: tls.key}
      # Token for the scorer's fit API, and the CA of the scorer's certificate.
      - name: scorer
        projected:
          sources:
            - serviceAccountToken: {audience: linkwise-scorer, path: token}
            - secret:
                name: {{ $.secret }}
                optional: true
                items:
                  - {key: ca.crt, path: ca.crt}
      {{- with .Values.webhook.clientCAConfigMap }}
      - name: clients
        configMap: {name: {{ . }}}
      {{- end }}
{{- end }}
{{- end }}
