"""KubeVirt's releases: what each can do, by name, and which fields each knows."""
