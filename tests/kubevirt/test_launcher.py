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
    found = owner(launcher_pod())

    assert isinstance(found, OwnerReference)
    assert (found.kind, found.name) == ("VirtualMachineInstance", "web01")


def test_second_owner_that_controls_nothing() -> None:
    pod = launcher_pod()
    pod["metadata"]["ownerReferences"].insert(0, {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "y"})

    assert isinstance(owner(pod), OwnerReference)


@pytest.mark.parametrize(
    ("labels", "code"),
    [({"kubevirt.io": "hotplug-disk"}, common.NOT_LAUNCHER), ({"kubevirt.io": "virt-launcher"}, common.NO_VMI_OWNER)],
)
def test_hotplug_attachment_pods_belong_to_a_pod(labels: dict[str, str], code: str) -> None:
    pod = launcher_pod()
    pod["metadata"]["labels"] = labels
    pod["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
    ]
    found = owner(pod)

    assert isinstance(found, Reason)
    assert found.code == code


def test_account() -> None:
    assert controller_account("openshift-cnv") == "system:serviceaccount:openshift-cnv:kubevirt-controller"
