{{- /* The image: by digest if there is one, else by tag. */}}
{{- define "kubevirt-webhook.image" -}}
{{- $repository := required "set image.repository to the image that your nodes can pull, without tag and digest" .Values.image.repository }}
{{- if .Values.image.digest }}{{ $repository }}@{{ .Values.image.digest }}
{{- else }}{{ $repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{- /* The settings file, as replicas read it. */}}
{{- define "kubevirt-webhook.settings" -}}
{{- $place := eq .Release.Namespace "kubevirt-webhook" | ternary (dict) (dict "webhooks" (dict "service" (dict "namespace" .Release.Namespace))) }}
{{- merge $place .Values.settings | toYaml }}
{{ end }}

{{- /* What cannot be said in the schema. */}}
{{- define "kubevirt-webhook.check" -}}
{{- $namespace := dig "webhooks" "service" "namespace" .Release.Namespace .Values.settings }}
{{- if ne $namespace .Release.Namespace }}
{{- fail (printf "settings.webhooks.service.namespace is %s, but the release's namespace is %s; leave the setting out, or use --namespace %s" $namespace .Release.Namespace $namespace) }}
{{- end }}
{{- if and .Values.autoscaling.enabled (gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) }}
{{- fail "autoscaling.minReplicas is larger than autoscaling.maxReplicas; correct one of them" }}
{{- end }}
{{- if and .Values.openshift (not (dig "kubevirt" "namespace" "" .Values.settings)) }}
{{- fail "settings.kubevirt.namespace is missing, and no webhook must match that namespace; set it to openshift-cnv, or where KubeVirt runs" }}
{{- end }}
{{- end }}
