"""The changes by which a node that is not eligible for a VM becomes so."""

from __future__ import annotations

from webhook.kubevirt.hyperconverged import HyperConverged
from webhook.placement.eligibility import Failure
from webhook.placement.requirements import Allocatable, Label, Origin


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
        Origin.POD_AFFINITY: f"give nodes the label {required.expression.key}" if isinstance(required, Label) else None,
    }.get(required.origin)
