"""Tests against a real Kubernetes control plane on loopback: etcd, kube-apiserver, schedulers, a controller manager."""
