"""Runs cases that KubeVirt's and kube-scheduler's own functions have answered, and compares. See `__main__`."""
