"""Tests on a real node: kubelets, containerd, kube-proxy and the image of the Dockerfile (`make e2e-node`)."""
