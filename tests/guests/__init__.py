"""Tests beside a real KubeVirt whose guests run; `make guests` starts them in the namespaces of hack.guests."""
