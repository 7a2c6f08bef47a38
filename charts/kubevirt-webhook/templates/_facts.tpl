{{- /* What the settings ask of the objects. The defaults are those of the settings' model. */}}
{{- define "kubevirt-webhook.facts" -}}
{{- include "kubevirt-webhook.check" . }}
{{- $settings := .Values.settings }}
{{- $onlyByWebhook := list }}
{{- range $name, $scheduler := dig "schedulers" (dict) $settings }}
{{- if dig "onlyByWebhook" false $scheduler }}{{ $onlyByWebhook = append $onlyByWebhook $name }}{{ end }}
{{- end }}
{{- $requesters := dig "eviction" "requesters" (list "sigs.k8s.io/descheduler") $settings }}
{{- $kubevirt := (dig "kubevirt" "namespace" "" $settings) | default "kubevirt" }}
{{- $own := list "kube-system" .Release.Namespace $kubevirt }}
{{- $excluded := concat $own (dig "excludedNamespaces" (list "kube-system" "kube-public" "kube-node-lease") $settings) }}
{{- $callers := list }}
{{- range .Values.networkPolicy.callers }}
{{- $callers = append $callers (dict "ipBlock" (dict "cidr" .)) }}
{{- end }}
{{- $selector := list }}
{{- range dig "webhooks" "namespaceSelector" "matchExpressions" (list) $settings }}
{{- $selector = append $selector (empty .values | ternary (omit . "values") .) }}
{{- end }}
schedulingClusterWide: {{ (dig "scheduling" "clusterWide" false $settings) }}
instancetypesClusterWide: {{ (dig "instancetypes" "clusterWide" false $settings) }}
migrationClusterWide: {{ (dig "migration" "clusterWide" false $settings) }}
evictionClusterWide: {{ (dig "eviction" "clusterWide" false $settings) }}
namingClusterWide: {{ (dig "naming" "clusterWide" false $settings) }}
sizesClusterWide: {{ (dig "sizes" "clusterWide" false $settings) }}
defaultsClusterWide: {{ (dig "defaults" "clusterWide" false $settings) }}
groupsClusterWide: {{ (dig "groups" "clusterWide" false $settings) }}
preemptionClusterWide: {{ (dig "preemption" "clusterWide" false $settings) }}
headroomClusterWide: {{ (dig "headroom" "clusterWide" false $settings) }}
instancetypesFail: {{ eq (dig "instancetypes" "failurePolicy" "Ignore" $settings) "Fail" }}
migrationFail: {{ eq (dig "migration" "failurePolicy" "Fail" $settings) "Fail" }}
sizesFail: {{ eq (dig "sizes" "failurePolicy" "Ignore" $settings) "Fail" }}
inboundLimit: {{ gt (int (dig "migration" "maxInboundPerNode" 0 $settings)) 0 }}
protectedTransfers: {{ gt (int (dig "eviction" "protectTransfersSeconds" 0 $settings)) 0 }}
virtualMachines: {{ (dig "scheduling" "virtualMachines" true $settings) }}
virtualMachineInstances: {{ (dig "scheduling" "virtualMachineInstances" false $settings) }}
spread: {{ ne (dig "scheduling" "spread" "off" $settings) "off" }}
spreadVirtualMachines: {{ (dig "scheduling" "spreadVirtualMachines" false $settings) }}
spreadVirtualMachineInstances: {{ (dig "scheduling" "spreadVirtualMachineInstances" false $settings) }}
instancetypesVirtualMachines: {{ (dig "instancetypes" "virtualMachines" true $settings) }}
instancetypesVirtualMachineInstances: {{ (dig "instancetypes" "virtualMachineInstances" true $settings) }}
headroom: {{ (dig "headroom" "enabled" false $settings) }}
inKnownNamespace: {{ ne (dig "kubevirt" "namespace" "" $settings) "" }}
onlyByWebhook: {{ not (empty $onlyByWebhook) }}
events: {{ has (toString (dig "events" "off" $settings)) (list "on" "true") }}
openshift: {{ .Values.openshift }}
certManager: {{ eq .Values.certificates "cert-manager" }}
kubevirtPlugin: {{ .Values.kubevirtPlugin }}
autoscaling: {{ .Values.autoscaling.enabled }}
monitoring: {{ .Values.monitoring.enabled }}
dashboard: {{ .Values.dashboard.enabled }}
networkPolicy: {{ .Values.networkPolicy.enabled }}
callers: {{ not (empty .Values.networkPolicy.callers) }}
podDisruptionBudget: {{ .Values.podDisruptionBudget.enabled }}
fidelity: {{ gt (int (dig "instancetypes" "fidelityCheck" "sample" 0 $settings)) 0 }}
preemption: {{ (dig "preemption" "requestMigrations" false $settings) }}
drift: {{ gt (int (dig "driftScan" "everyMinutes" 0 $settings)) 0 }}
policyReports: {{ and (gt (int (dig "driftScan" "everyMinutes" 0 $settings)) 0) (dig "driftScan" "policyReports" true $settings) }}
admin: {{ and (ne (dig "admin" "listen" "" $settings) "") (not (has (regexReplaceAll ":[0-9]*$" (dig "admin" "listen" "" $settings) "") (list "127.0.0.1" "[::1]" "localhost"))) }}
adminPort: {{ (splitList ":" (dig "admin" "listen" "" $settings) | last) | default 0 }}
metrics: {{ and (and (ne (dig "admin" "listen" "" $settings) "") (not (has (regexReplaceAll ":[0-9]*$" (dig "admin" "listen" "" $settings) "") (list "127.0.0.1" "[::1]" "localhost")))) (dig "admin" "metrics" false $settings) }}
layers: {{ and (ne (dig "layers" "listen" "" $settings) "") (not (has (regexReplaceAll ":[0-9]*$" (dig "layers" "listen" "" $settings) "") (list "127.0.0.1" "[::1]" "localhost"))) }}
layersPort: {{ (splitList ":" (dig "layers" "listen" "" $settings) | last) | default 0 }}
shutdownSeconds: {{ (dig "server" "shutdownSeconds" 10 $settings) }}
timeoutSeconds: {{ (dig "webhooks" "timeoutSeconds" 3 $settings) }}
kubevirtNamespace: {{ (dig "kubevirt" "namespace" "" $settings) | quote }}
onlyByWebhookNames: {{ $onlyByWebhook | toJson | trimPrefix "[" | trimSuffix "]" | replace "," ", " | squote }}
requesters: {{ $requesters | toJson | trimPrefix "[" | trimSuffix "]" | replace "," ", " | squote }}
callerBlocks: {{ $callers | toJson }}
excludedNamespaces: {{ $excluded | uniq | sortAlpha | toJson }}
namespaceSelector: {{ $selector | toJson }}
{{- end }}
