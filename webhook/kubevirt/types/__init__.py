"""The types of KubeVirt's API, as far as Go's JSON shows them (kubevirt.io/api, k8s.io/api)."""
