"""The upstream descheduler with the shipped policy, which looks at one namespace's VMs only."""

from __future__ import annotations

import os
from pathlib import Path

import yaml

from hack.controlplane.build import location
from hack.controlplane.bundles import DESCHEDULER

from .access import Access
from .kube import Json
from .manifests import MANIFESTS
from .pki import ADMIN, service_account
from .processes import Process, free_port

ACCOUNT = service_account("kube-system", "descheduler")
# What the shipped policy needs of VMs.
BACKGROUND = "--feature-gates=EvictionsInBackground=true"
_POLICY = MANIFESTS / "descheduler" / "upstream" / "policy.yaml"


def policy_of(namespace: str) -> Json:
    policy: Json = yaml.safe_load(_POLICY.read_text())
    (profile,) = policy["profiles"]
    evictor = profile["pluginConfig"][0]
    assert evictor["name"] == "DefaultEvictor"
    evictor["args"]["namespaceLabelSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
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


def evicting_every_vm(access: Access, namespace: str, directory: Path) -> Process:
    """One with a plugin that evicts every VM, every three seconds: two idle nodes are not out of balance."""
    policy = policy_of(namespace)
    (profile,) = policy["profiles"]
    every = {"name": "PodLifeTime", "args": {"maxPodLifeTimeSeconds": 1}}
    profile["pluginConfig"] = [profile["pluginConfig"][0], every]
    profile["plugins"] = {"deschedule": {"enabled": [every["name"]]}}
    binary = location(os.environ, bundle=DESCHEDULER) / "descheduler"
    options = ("--descheduling-interval=3s", BACKGROUND)
    return process(binary, policy, access.kubeconfig_for(*ADMIN), directory, *options)
