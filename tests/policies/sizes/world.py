"""VMs and VMIs of any size, and what the sizes policy decides of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

from tests.builders import Json, changed, installed, review, vm
from tests.policies.decisions import evaluate
from webhook.admission.decision import Decision
from webhook.facts import Facts, Key, KubeVirtKey
from webhook.policies.sizes.settings import SizeSettings, read_limits

OWNER = "alice"
KUBEVIRT: dict[Key[Any], object] = {KubeVirtKey(): installed()}


def sized(domain: Json, **spec: Any) -> Json:
    """A VM whose template has a domain."""
    made = vm()
    made["spec"] |= spec
    made["spec"]["template"]["spec"]["domain"] = {"devices": {}, **domain}
    return made


def of_cpus(cpus: int, memory: str = "4Gi") -> Json:
    """A VM with so many CPUs."""
    return sized({"cpu": {"cores": cpus}, "memory": {"guest": memory}})


def sized_vmi(domain: Json, **metadata: Any) -> Json:
    """A VMI that no VM stands behind."""
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "web01", "namespace": "demo", **metadata},
        "spec": {"domain": {"devices": {}, **domain}},
    }


def limits(text: str, **more: Any) -> SizeSettings:
    """The settings with limits as YAML has them."""
    return changed(SizeSettings(), limits=read_limits(json.dumps(yaml.safe_load(text))), **more)


def decide(
    obj: Json,
    settings: SizeSettings,
    old: Json | None = None,
    user: str = OWNER,
    facts: Mapping[Any, object] | None = None,
) -> Decision:
    """The decision on a new object, or where there is an old one on the update."""
    resource = f"{obj['kind'].lower()}s"
    body = review(obj, user) if old is None else review(obj, user, operation="UPDATE", oldObject=old)
    known = Facts.of(KUBEVIRT if facts is None else dict(facts))
    return evaluate(f"/validate/sizes/{resource}/enforce", body, known, settings)
