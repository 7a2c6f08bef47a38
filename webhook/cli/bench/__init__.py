"""`kubevirt-webhook bench`: what admission costs in a user's own cluster."""
