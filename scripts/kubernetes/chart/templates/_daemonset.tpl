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
  namespace: {{ .root.Values.namespace }}
spec:
  selector:
    matchLabels:
      app.kubernetes.io/name: cgpu-{{ .name }}
  template:
    metadata:
      labels:
        app.kubernetes.io/name: cgpu-{{ .name }}
    spec:
      {{- if .account }}
      serviceAccountName: {{ .name }}
      {{- end }}
      automountServiceAccountToken: false
      nodeSelector:
        {{- toYaml .of.nodeSelector | nindent 8 }}
      priorityClassName: system-node-critical
      hostPID: true
      hostNetwork: true
      tolerations:
        {{- toYaml .of.tolerations | nindent 8 }}
      containers:
        - name: {{ .name }}
          image: {{ .root.Values.image }}
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
