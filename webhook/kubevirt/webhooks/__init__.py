"""KubeVirt's own admission webhooks (KubeVirt, pkg/virt-api/webhooks)."""
