"""`make guests`: a real KubeVirt on two real nodes, whose guests boot and migrate, beside the webhook's image."""
