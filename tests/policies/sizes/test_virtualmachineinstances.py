from __future__ import annotations

import pytest

from tests.builders import CONTROLLER, Json, changed
from tests.policies.sizes.world import decide, limits, sized_vmi
from webhook.admission.reasons import common
from webhook.errors import Unavailable
from webhook.facts import KubeVirtKey
from webhook.policies.sizes import reasons
from webhook.policies.sizes.settings import SizeSettings

SMALL = limits("{cpu: {max: 4}, memory: {max: 8Gi}}")
REQUIRED = changed(SizeSettings(), require_instancetype=True)
LARGE = {"cpu": {"sockets": 8}, "memory": {"guest": "16Gi"}}


def owned(kind: str, group: str = "kubevirt.io") -> Json:
    owner = {"apiVersion": f"{group}/v1", "kind": kind, "name": "web01", "uid": "1", "controller": True}
    return sized_vmi(LARGE, ownerReferences=[owner])


def test_a_vmi_made_directly_is_judged() -> None:
    denial = decide(sized_vmi(LARGE), SMALL).denial
    assert denial is not None
    assert [cause.field for cause in denial.causes] == ["spec.domain.cpu.sockets", "spec.domain.memory.guest"]
    assert decide(sized_vmi(LARGE), REQUIRED).code == reasons.INSTANCETYPE_REQUIRED
    assert decide(sized_vmi({"memory": {"guest": "4Gi"}}), SMALL).code == reasons.WITHIN_LIMITS
    assert decide(sized_vmi({}), REQUIRED).code == reasons.NO_INLINE_SIZE


@pytest.mark.control("forged-sizes")
def test_one_of_a_vm_was_judged_with_it_unless_a_tenant_says_so() -> None:
    assert decide(owned("VirtualMachine"), SMALL, user=CONTROLLER).code == common.BY_KUBEVIRT
    assert decide(owned("VirtualMachine"), SMALL, user="alice").denial
    assert decide(owned("VirtualMachine"), SMALL, user="system:serviceaccount:demo:kubevirt-controller").denial
    assert decide(owned("VirtualMachine", "example.com"), SMALL, user=CONTROLLER).denial
    # KubeVirt creates it by a template of a user's.
    assert decide(owned("VirtualMachineInstanceReplicaSet"), SMALL, user=CONTROLLER).denial


def test_defaults_of_webhooks_are_no_size_of_the_owners() -> None:
    vmi = sized_vmi(LARGE)
    vmi["metadata"]["managedFields"] = [{"manager": "a", "operation": "Update", "fieldsV1": {"f:spec": {"f:x": {}}}}]
    assert decide(vmi, REQUIRED).code == reasons.NO_INLINE_SIZE


def test_what_cannot_be_read() -> None:
    assert decide(sized_vmi({"memory": {"guest": "x"}}), SMALL).code == common.INVALID_OBJECT
    assert decide(sized_vmi(LARGE), SMALL, old=sized_vmi({})).code == common.OTHER_OPERATION


@pytest.mark.parametrize("policy", ["Ignore", "Fail"])
def test_what_cannot_be_looked_up(policy: str) -> None:
    facts = {KubeVirtKey(): Unavailable("no answer")}
    decision = decide(owned("VirtualMachine"), changed(SMALL, failure_policy=policy), user=CONTROLLER, facts=facts)
    assert decision.code == common.LOOKUP_FAILED
    assert (decision.denial and decision.denial.code) == (503 if policy == "Fail" else None)
