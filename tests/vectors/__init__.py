"""Runs cases that KubeVirt's own functions have answered, and compares. See `__main__`."""
