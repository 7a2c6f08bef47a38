from __future__ import annotations

import msgspec
import pytest

from tests.builders import Json, launcher_pod
from webhook.admission.decision import Reason
from webhook.admission.reasons import common
from webhook.k8s.types.core import SchedulingPod
from webhook.k8s.types.meta import OwnerReference
from webhook.kubevirt.launcher import controller_account, vmi_owner


def owner(pod: Json) -> OwnerReference | Reason:
    return vmi_owner(msgspec.convert(pod, SchedulingPod))


def test_the_owner_of_a_launcher_pod() -> None:
    pod = launcher_pod()
    # A second owner, which controls nothing.
    pod["metadata"]["ownerReferences"].insert(0, {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "y"})
    for each in (launcher_pod(), pod):
        found = owner(each)
        assert isinstance(found, OwnerReference)
        assert (found.kind, found.name) == ("VirtualMachineInstance", "web01")


@pytest.mark.parametrize(
    ("app", "reason"), [("hotplug-disk", common.not_a_launcher_pod), ("virt-launcher", common.no_vmi_owner)]
)
def test_hotplug_attachment_pods_belong_to_a_pod(app: str, reason: Reason) -> None:
    pod = launcher_pod()
    its = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
    pod["metadata"] |= {"labels": {"kubevirt.io": app}, "ownerReferences": [its]}
    assert owner(pod) == reason


def test_account() -> None:
    assert controller_account("openshift-cnv") == "system:serviceaccount:openshift-cnv:kubevirt-controller"
