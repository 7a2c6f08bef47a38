"""Kubernetes without any KubeVirt: views of objects, YAML, quantities, and a client of the API server."""
