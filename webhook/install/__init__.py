"""The installation: what a cluster needs to call the webhooks."""
