"""Nodes whose CPU KubeVirt has labeled, and what a migration from one of them requires of its target."""

from __future__ import annotations

from tests.placement.samples import HOST, node
from webhook.placement.requirements import Label, Requirements

VENDOR = "cpu-vendor.node.kubevirt.io/"
FEATURE = "cpu-feature.node.kubevirt.io/"
MODEL = "cpu-model-migration.node.kubevirt.io/"
OBSOLETE = "node-labeller.kubevirt.io/obsolete-host-model"
INTEL = node(
    "n1",
    {
        HOST: "host-1",
        f"{VENDOR}Intel": "true",
        "host-model-cpu.node.kubevirt.io/Skylake": "true",
        "host-model-required-features.node.kubevirt.io/vmx": "true",
    },
)
HOST_MODEL = {"cpu": {"model": "host-model"}}
NAMED = {"cpu": {"model": "Westmere"}}


def asked(requirements: Requirements) -> dict[str, list[str]]:
    """The requirements on labels, by origin."""
    by_origin: dict[str, list[str]] = {}
    for each in requirements:
        if isinstance(each, Label):
            by_origin.setdefault(each.origin, []).append(str(each.expression))
    return by_origin
