"""Serving certificates: where they come from and how they change. Knows nothing of webhooks."""

# By which a program notices that another distribution has put its package of this name in this one's place.
DISTRIBUTION = "kubevirt-webhook"
