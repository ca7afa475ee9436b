{{- /* SPDX-License-Identifier: MIT */ -}}
{{- /* What selects a component's pods: its root and its name. */ -}}
{{- define "cgpu.selector" -}}
app.kubernetes.io/name: cgpu-{{ .component }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end }}
{{- /* All labels that Kubernetes and Helm recommend. */ -}}
{{- define "cgpu.labels" -}}
{{ include "cgpu.selector" . }}
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/part-of: cgpu
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}
{{- define "cgpu.image" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ $tag }}
{{- end -}}
{{- end }}
{{- /* An option of the programs that publish a node's cards; nothing leaves the cards as they are. */ -}}
{{- define "cgpu.overcommit" -}}
{{- with (.Values.cards).overcommitRatio -}}
--overcommit-ratio={{ int . }}
{{- end -}}
{{- end }}
{{- define "cgpu.pullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- /*
On which nodes a component runs: those that somebody has installed and labelled, or, where the chart
installs, those that NFD's or GFD's labels say have a card. A node of the DRA driver is not the
plugin's, because each counts all its cards.
*/ -}}
{{- define "cgpu.affinity" -}}
{{- $labels := list "cgpu.io/node" -}}
{{- if ne .root.Values.install.mode "none" -}}
{{- $labels = concat $labels .root.Values.install.nodeLabels -}}
{{- end -}}
{{- if and (eq .name "dra-driver") (or .root.Values.devicePlugin.enabled (eq .root.Values.install.mode "none")) -}}
{{- $labels = list "cgpu.io/dra" -}}
{{- end -}}
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
      {{- range $labels }}
      - matchExpressions:
          - key: {{ . }}
            operator: In
            values: ["true"]
          - key: cgpu.io/node
            operator: NotIn
            values: ["false"]
          {{- if eq $.name "device-plugin" }}
          - key: cgpu.io/dra
            operator: NotIn
            values: ["true"]
          {{- end }}
      {{- end }}
{{- end }}
