"""Kubernetes' kinds as they are decoded: each once, with all fields that a reader of them needs, all optional."""
