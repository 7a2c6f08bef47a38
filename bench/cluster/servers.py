"""Webhooks in Go that know pods and VMs alone: an empty one, one with a fixed patch, and one of controller-runtime."""

from __future__ import annotations

import base64
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench.cluster.plane import CreationPlane
from bench.reviews import certificate
from tests.e2e.support.processes import Process, free_port

# The label of the namespaces whose pods and VMs one is called for, by its name.
LABEL: Final = "bench/webhook"
_CONFIGURATIONS: Final = "admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
_RESOURCES: Final = (("", "pods", "/mutate/pods"), ("kubevirt.io", "virtualmachines", "/mutate/virtualmachines"))


@contextmanager
def serving(plane: CreationPlane, binary: Path, name: str, *patches: str) -> Iterator[Process]:
    """Run one for as long as the context lasts; its configuration is there as long.

    Args:
        plane: the control plane.
        binary: the program, from `bench.reviews.golang.build`.
        name: its own, and that of its configuration.
        patches: options of the empty one that have patches for all pods and for all VMs.
    """
    directory = plane.directory / name
    directory.mkdir(exist_ok=True)
    port, pair = free_port(), certificate.make(directory)
    command = [
        *(str(binary), "-listen", f"127.0.0.1:{port}"),
        *("-tls-cert", str(pair.certificate), "-tls-key", str(pair.key), *patches),
    ]
    process = plane.process(f"{name} webhook", command)
    process.start()
    try:
        process.wait_ready(lambda: _accepts(port))
        plane.admin.create(_CONFIGURATIONS, _configuration(name, port, pair.certificate))
        try:
            yield process
        finally:
            plane.admin.delete(_CONFIGURATIONS, name)
    finally:
        process.stop()


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def _configuration(name: str, port: int, ca: Path) -> dict[str, Any]:
    """An entry for each kind, as those of kubevirt-webhook are."""
    bundle = base64.b64encode(ca.read_bytes()).decode()
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [
            {
                "name": f"{resource}.{name}.bench",
                "clientConfig": {"url": f"https://127.0.0.1:{port}{path}", "caBundle": bundle},
                "rules": [
                    {"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [resource]}
                ],
                "namespaceSelector": {"matchLabels": {LABEL: name}},
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Ignore",
                "timeoutSeconds": 3,
            }
            for group, resource, path in _RESOURCES
        ],
    }
