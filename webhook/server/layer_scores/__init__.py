"""Scores of nodes by the layers of images that they have, for kube-scheduler."""
