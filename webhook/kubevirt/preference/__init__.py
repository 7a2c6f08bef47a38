"""Preferences (KubeVirt, pkg/instancetype/preference)."""
