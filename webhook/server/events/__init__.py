"""Kubernetes Events of decisions that users should see."""
