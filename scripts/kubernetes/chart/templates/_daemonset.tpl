{{- /* SPDX-License-Identifier: MIT */ -}}
{{- /*
A command of the host's cgpu on every node of a component: its name, and what values say of it. With
an account it asks the API server, by a token in a volume of the pod that it finds from the host.
*/ -}}
{{- define "cgpu.daemonset" -}}
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "cgpu.labels" (dict "root" .root "component" .name) | nindent 4 }}
spec:
  selector:
    matchLabels:
      {{- include "cgpu.selector" (dict "root" .root "component" .name) | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "cgpu.labels" (dict "root" .root "component" .name) | nindent 8 }}
    spec:
      serviceAccountName: {{ .name }}
      automountServiceAccountToken: false
      {{- include "cgpu.pullSecrets" .root | nindent 6 }}
      {{- with .of.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      affinity:
        {{- .of.affinity | default (include "cgpu.affinity" . | fromYaml) | toYaml | nindent 8 }}
      priorityClassName: system-node-critical
      hostPID: true
      hostNetwork: true
      tolerations:
        {{- toYaml .of.tolerations | nindent 8 }}
      {{- if ne .root.Values.install.mode "none" }}
      initContainers:
        # The node's own cgpu, from what this image carries; nothing if the node has it.
        - name: install
          image: {{ include "cgpu.image" .root }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          command:
            - /usr/lib/cgpu/install-on-node
            - /host
            {{- if eq .root.Values.install.mode "module" }}
            - --no-runtimes
            {{- else }}
            - {{ ternary "--agent" "--or-agent" (eq .root.Values.install.mode "agent") }}
            # The runtime that pods name under the agent.
            - --restart
            {{- end }}
            {{- range .root.Values.install.options }}
            - {{ . | quote }}
            {{- end }}
          securityContext:
            privileged: true
          volumeMounts:
            - name: host
              mountPath: /host
              mountPropagation: HostToContainer
      {{- end }}
      containers:
        - name: {{ .name }}
          {{- if eq .root.Values.install.mode "none" }}
          image: {{ .root.Values.chrootImage }}
          {{- else }}
          image: {{ include "cgpu.image" .root }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          {{- end }}
          command:
            - chroot
            - /host
            - cgpu
            - {{ .name }}
            {{- if .account }}
            - --node=$(NODE_NAME)
            # The volume below, as the host sees it.
            - --token=$(ACCOUNT)/token
            - --ca=$(ACCOUNT)/ca.crt
            {{- end }}
            {{- range .arguments }}
            - {{ . }}
            {{- end }}
          {{- with .port }}
          ports:
            - name: metrics
              containerPort: {{ . }}
          {{- end }}
          env:
            - name: PATH
              value: /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
            {{- if .account }}
            - name: NODE_NAME
              valueFrom:
                fieldRef:
                  fieldPath: spec.nodeName
            - name: POD_UID
              valueFrom:
                fieldRef:
                  fieldPath: metadata.uid
            - name: ACCOUNT
              value: /var/lib/kubelet/pods/$(POD_UID)/volumes/kubernetes.io~projected/account
            {{- end }}
          securityContext:
            privileged: true
          resources:
            {{- toYaml .of.resources | nindent 12 }}
          volumeMounts:
            - name: host
              mountPath: /host
              mountPropagation: HostToContainer
            {{- if .account }}
            - name: account
              mountPath: /account
              readOnly: true
            {{- end }}
      volumes:
        - name: host
          hostPath:
            path: /
        {{- if .account }}
        - name: account
          projected:
            sources:
              - serviceAccountToken:
                  path: token
              - configMap:
                  name: kube-root-ca.crt
                  items:
                    - key: ca.crt
                      path: ca.crt
        {{- end }}
{{- end }}
