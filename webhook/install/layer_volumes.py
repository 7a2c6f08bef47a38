"""The volumes of replicas that score image layers, as ``manifests/components/layers`` has them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final

from webhook.install.registration import Manifest
from webhook.settings.address import is_loopback
from webhook.settings.layers_snapshot import LayersSettings

_VOLUMES: Final[list[dict[str, Any]]] = [
    {"name": "layers-clients", "secret": {"secretName": "kubevirt-webhook-layers"}},
    {"name": "layers-cache", "emptyDir": {"sizeLimit": "128Mi"}},
]
_MOUNTS: Final[list[dict[str, Any]]] = [
    {"name": "layers-clients", "mountPath": "/etc/kubevirt-webhook-layers", "readOnly": True},
    {"name": "layers-cache", "mountPath": "/var/cache/kubevirt-webhook"},
]


def with_layers(deployment: Manifest, settings: LayersSettings) -> Manifest:
    """The Deployment with the client CA and the cache, if others than the own pod may ask for scores.

    Args:
        deployment: the Deployment; it is not changed.
        settings: the section ``layers``.
    """
    if not settings.listen or is_loopback(settings.listen):
        return deployment
    result = deepcopy(deployment)
    spec = result["spec"]["template"]["spec"]
    spec["volumes"] += deepcopy(_VOLUMES)
    spec["containers"][0]["volumeMounts"] += deepcopy(_MOUNTS)
    return result
