"""Instancetypes (KubeVirt, pkg/instancetype)."""
