"""KubeVirt's own rules, ported: pure functions over what the API server shows."""
