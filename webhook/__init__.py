"""kubevirt-webhook: admission webhooks for clusters that run virtual machines with KubeVirt."""

__version__ = "0.1.0"
