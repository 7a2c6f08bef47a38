"""The changes by which a node that is not eligible for a VM becomes so."""

from __future__ import annotations

from webhook.kubevirt.hyperconverged import HyperConverged
from webhook.placement.eligibility import Failure
from webhook.placement.nodes import CPU_MODEL
from webhook.placement.requirements import Allocatable, Label, Origin, Requirement


def change_of(failure: Failure, owner: HyperConverged | None) -> str | None:
    """The change that would remove a failure; None: there is none, except another VM.

    The ``owner`` overwrites the KubeVirt object, so that its configuration is changed there.
    """
    required = failure.requirement
    if failure.taint:
        return f"remove the taint {failure.taint}, or have the VM tolerate it"
    label = str(required.expression) if isinstance(required, Label) else ""
    offer = None
    if isinstance(required, Allocatable):
        offer = f"offer {required.amount_text} {required.resource} on more nodes"
    setting = f"remove {label} from KubeVirt's configuration"
    if owner:
        setting = owner.remove("developerConfiguration.nodeSelectors", label)
    return {
        Origin.ADDED: f"remove {label} from addedNodeSelector",
        Origin.VM: f"remove {label} from the VM's nodeSelector",
        Origin.AFFINITY: "change the VM's node affinity",
        Origin.CLUSTER: setting,
        Origin.SCHEDULABLE: "get virt-handler working",
        Origin.CORDONED: "uncordon",
        Origin.RESOURCES: offer,
        Origin.RUNTIME_CLASS: f"remove {label} from the RuntimeClass",
        Origin.NAMESPACE: f"remove {label} from the namespace's node selector",
        Origin.KVM: "get KubeVirt's device plugin working",
        Origin.SPREAD: f"give nodes the label {required.expression.key}" if isinstance(required, Label) else None,
        Origin.DEFAULT: _of_default(required),
        Origin.GROUP: f"give more nodes the label {label}, or prefer the rule of the VM's group",
        # The pods that run keep the VM away until they end.
        Origin.APART: "prefer the rule of the VM's group instead of requiring it, and restart its VMs that run there",
        Origin.TOGETHER: "prefer the rule of the VM's group instead of requiring it",
        Origin.POD_AFFINITY: f"give nodes the label {required.expression.key}" if isinstance(required, Label) else None,
    }.get(required.origin)


def _of_default(required: Requirement) -> str | None:
    """The change of a default, which counts for a VM that runs as soon as it is removed."""
    if not isinstance(required, Label):
        return None
    if required.expression.key.startswith(CPU_MODEL):
        return "restart the VM with a CPU model that more nodes have"
    return f"remove {required.expression} from {required.source}"
