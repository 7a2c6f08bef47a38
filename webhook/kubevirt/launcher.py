"""Which pod is a virt-launcher pod, the one that carries a virtual machine.

Any user can put the label on any pod. What makes a launcher pod is the label, a VMI as its controller, and
virt-controller's account as its creator (KubeVirt, pkg/virt-controller/services/template.go). Pods that look similar
and are none: hotplug attachment pods (label ``hotplug-disk``, owned by a Pod), exporters, and KubeVirt's own
components. Temporary provisioning pods are launcher pods like others: their placement decides where a volume is made.
"""

from __future__ import annotations

from typing import Final

import msgspec

from webhook import names
from webhook.k8s.views import Object, OwnerReference

# What the user names of all service accounts begin with.
ACCOUNTS: Final = "system:serviceaccount:"


class NotLauncher(msgspec.Struct, frozen=True):
    """Why a pod is not a launcher pod.

    Attributes:
        code: one of `names.Code`.
        text: a sentence for people.
    """

    code: str
    text: str


def account(namespace: str, name: str) -> str:
    """The user name of a service account of KubeVirt's where it runs in ``namespace``."""
    return f"{ACCOUNTS}{namespace}:{name}"


def controller_account(namespace: str) -> str:
    """The user name of virt-controller's service account.

    Args:
        namespace: the namespace where KubeVirt runs.
    """
    return account(namespace, names.CONTROLLER_ACCOUNT)


def vmi_owner(pod: Object) -> OwnerReference | NotLauncher:
    """The VMI that controls a launcher pod, as far as the pod itself shows it."""
    meta = pod.meta
    if meta.label(names.APP_LABEL) != names.LAUNCHER_APP:
        text = f"skipped: the pod does not have the label {names.APP_LABEL}={names.LAUNCHER_APP}"
        return NotLauncher(names.Code.NOT_LAUNCHER, text)
    owner = meta.controller_owner()
    if owner is None or owner.kind != "VirtualMachineInstance" or owner.group != names.KUBEVIRT_GROUP:
        text = "skipped: the pod is labeled as a virt-launcher pod, but its controller is not a VirtualMachineInstance"
        return NotLauncher(names.Code.NO_VMI_OWNER, text)
    if not owner.name or not owner.uid:
        text = "skipped: the pod's owner reference lacks the name or UID of its VirtualMachineInstance"
        return NotLauncher(names.Code.NO_VMI_OWNER, text)
    return owner
