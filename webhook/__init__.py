"""kubevirt-webhook: admission webhooks for clusters that run virtual machines with KubeVirt."""

__version__ = "0.1.0"
# By which the program notices that another distribution has put its package of this name in this one's place.
DISTRIBUTION = "kubevirt-webhook"
