{{- /* The image: by digest if there is one, else by tag. */}}
{{- define "kubevirt-webhook.image" -}}
{{- $repository := required "set image.repository to the image that your nodes can pull, without tag and digest" .Values.image.repository }}
{{- if .Values.image.digest }}{{ $repository }}@{{ .Values.image.digest }}
{{- else }}{{ $repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{- /* The settings file, as replicas read it. */}}
{{- define "kubevirt-webhook.settings" -}}
{{ .Values.settings | toYaml }}
{{ end }}

{{- /* What cannot be said in the schema. */}}
{{- define "kubevirt-webhook.check" -}}
{{- if ne .Release.Namespace "kubevirt-webhook" }}
{{- fail (printf "the release's namespace is %s, but all objects are in kubevirt-webhook; use --namespace kubevirt-webhook" .Release.Namespace) }}
{{- end }}
{{- if and .Values.autoscaling.enabled (gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) }}
{{- fail "autoscaling.minReplicas is larger than autoscaling.maxReplicas; correct one of them" }}
{{- end }}
{{- if and .Values.openshift (not (dig "kubevirt" "namespace" "" .Values.settings)) }}
{{- fail "settings.kubevirt.namespace is missing, and no webhook must match that namespace; set it to openshift-cnv, or where KubeVirt runs" }}
{{- end }}
{{- end }}
