"""Which pod is a virt-launcher pod, the one that carries a virtual machine.

Any user can put the label on any pod. What makes a launcher pod is the label, a VMI as its controller, and
virt-controller's account as its creator (KubeVirt, pkg/virt-controller/services/template.go). Pods that look similar
and are none: hotplug attachment pods (label ``hotplug-disk``, owned by a Pod), exporters, and KubeVirt's own
components. Temporary provisioning pods are launcher pods like others: their placement decides where a volume is made.
"""

from __future__ import annotations

from typing import Final

from webhook import names
from webhook.admission.decision import Reason
from webhook.admission.reasons import common
from webhook.k8s.types.meta import Object, OwnerReference

# What the user names of all service accounts begin with.
ACCOUNTS: Final = "system:serviceaccount:"


def account(namespace: str, name: str) -> str:
    """The user name of a service account of KubeVirt's where it runs in ``namespace``."""
    return f"{ACCOUNTS}{namespace}:{name}"


def controller_account(namespace: str) -> str:
    """The user name of virt-controller's service account."""
    return account(namespace, names.CONTROLLER_ACCOUNT)


def vmi_owner(pod: Object) -> OwnerReference | Reason:
    """The VMI that controls a launcher pod, as far as the pod itself shows it; else why the pod is none."""
    meta = pod.meta
    if meta.label(names.APP_LABEL) != names.LAUNCHER_APP:
        return common.not_a_launcher_pod
    owner = meta.controller_owner()
    if owner is None or owner.kind != "VirtualMachineInstance" or owner.group != names.KUBEVIRT_GROUP:
        return common.no_vmi_owner
    return owner if owner.name and owner.uid else common.unnamed_vmi_owner
