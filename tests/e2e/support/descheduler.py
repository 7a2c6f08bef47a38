"""The upstream descheduler with the shipped policy, which looks at one namespace's VMs only."""

from __future__ import annotations

from pathlib import Path

import yaml

from .kube import Json
from .manifests import MANIFESTS
from .pki import service_account
from .processes import Process, free_port

ACCOUNT = service_account("kube-system", "descheduler")
# What the shipped policy needs of VMs.
BACKGROUND = "--feature-gates=EvictionsInBackground=true"
_POLICY = MANIFESTS / "descheduler" / "upstream" / "policy.yaml"


def policy_of(namespace: str, points: int | None = None) -> Json:
    """The shipped policy for one namespace; ``points``: from how far above the mean nodes give VMs away."""
    policy: Json = yaml.safe_load(_POLICY.read_text())
    (profile,) = policy["profiles"]
    evictor = profile["pluginConfig"][0]
    assert evictor["name"] == "DefaultEvictor"
    evictor["args"]["namespaceLabelSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    if points is not None:
        utilization = profile["pluginConfig"][1]
        assert utilization["name"] == "LowNodeUtilization"
        utilization["args"]["targetThresholds"] = {"cpu": points, "memory": points}
    return policy


def process(binary: Path, policy: Json, kubeconfig: Path, directory: Path, *options: str) -> Process:
    """A descheduler that has not been started; it writes into a directory."""
    file = directory / "policy.yaml"
    file.write_text(yaml.safe_dump(policy))
    command = [
        str(binary),
        *(f"--policy-config-file={file}", f"--kubeconfig={kubeconfig}", f"--cert-dir={directory}"),
        *(f"--secure-port={free_port()}", "--bind-address=127.0.0.1", "--v=3"),
        *options,
    ]
    return Process("descheduler", command, directory / "descheduler.log")
