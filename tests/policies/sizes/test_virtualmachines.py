from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import CONTROLLER, Json, changed, config_of, installed
from tests.policies.sizes.world import decide, limits, of_cpus, sized
from webhook.admission.reasons import common
from webhook.errors import Unavailable
from webhook.facts import KubeVirtKey
from webhook.policies.sizes import reasons
from webhook.policies.sizes.settings import SIZE_LIMITS_ANNOTATION, SizeSettings

BASE = "spec.template.spec.domain"
SHOP = limits(
    "{cpu: {min: 2, max: 8, step: 2}, memory: {min: 2Gi, max: 32Gi, step: 512Mi}, memoryPerCpu: {min: 1Gi, max: 8Gi}}"
)
REQUIRED = changed(SizeSettings(), require_instancetype=True)


def causes(obj: Json, settings: SizeSettings = SHOP, **request: Any) -> dict[str, str]:
    denial = decide(obj, settings, **request).denial
    return {cause.field: cause.message for cause in denial.causes} if denial else {}


@pytest.mark.parametrize(
    ("domain", "fields"),
    [
        ({"cpu": {"cores": 2}, "memory": {"guest": "4Gi"}}, []),
        ({"cpu": {"sockets": 2, "cores": 2, "threads": 2}, "memory": {"guest": "8Gi"}}, []),
        ({"cpu": {"sockets": 2, "cores": 5}, "memory": {"guest": "16Gi"}}, ["cpu.sockets, cpu.cores"]),
        ({"cpu": {"cores": 3}, "memory": {"guest": "4Gi"}}, ["cpu.cores"]),
        # KubeVirt gives it one CPU.
        ({"memory": {"guest": "4Gi"}}, ["cpu"]),
        ({"resources": {"requests": {"memory": "4Gi", "cpu": "3500m"}}}, []),
        (
            {"resources": {"requests": {"memory": "4Gi", "cpu": "2"}, "limits": {"cpu": 10}}},
            ["resources.limits.cpu", "resources.requests.memory, resources.limits.cpu"],
        ),
        ({"cpu": {"cores": 2}, "memory": {"guest": "1Gi"}}, ["memory.guest", "memory.guest, cpu.cores"]),
        ({"cpu": {"cores": 8}, "memory": {"guest": "33Gi"}}, ["memory.guest"]),
        ({"cpu": {"cores": 2}, "memory": {"guest": "2176Mi"}}, ["memory.guest"]),
        ({"cpu": {"cores": 2}, "memory": {"guest": "17Gi"}}, ["memory.guest, cpu.cores"]),
        (
            {"cpu": {"cores": 2}, "resources": {"limits": {"memory": "64Gi"}}},
            ["resources.limits.memory", "resources.limits.memory, cpu.cores"],
        ),
        (
            {"cpu": {"cores": 8}, "memory": {"hugepages": {"pageSize": "1Gi"}}},
            ["memory.hugepages.pageSize", "memory.hugepages.pageSize, cpu.cores"],
        ),
        # Little of it shows in the guest, and all of it is taken from others.
        (
            {"cpu": {"cores": 2}, "memory": {"guest": "4Gi"}, "resources": {"requests": {"cpu": 64}}},
            ["resources.requests.cpu"],
        ),
        (
            {"cpu": {"cores": 2}, "memory": {"guest": "4Gi"}, "resources": {"limits": {"memory": "64Gi"}}},
            ["resources.limits.memory"],
        ),
    ],
)
def test_a_size_is_what_kubevirt_makes_of_it(domain: Json, fields: list[str]) -> None:
    found = list(causes(sized(domain)))
    expected = [", ".join(f"{BASE}.{each}" for each in field.split(", ")) for field in fields]
    assert found == expected
    assert decide(sized(domain), SHOP).code == (reasons.OUT_OF_LIMITS if fields else reasons.WITHIN_LIMITS)


def test_a_denial_says_what_is_wrong_and_what_is_allowed() -> None:
    denial = decide(of_cpus(16, "64Gi"), SHOP).denial
    assert denial is not None
    assert denial.code == 403
    for part in ("16 vCPUs are more than 8", "64Gi of memory is more than 32Gi", "2 to 8 vCPUs in steps of 2"):
        assert part in denial.message
    assert "1Gi to 8Gi memory per vCPU" in denial.causes[0].message


@pytest.mark.parametrize(
    ("cpus", "memory", "is_denied"),
    [
        (4, "8Gi", False),
        (4, "16Gi", True),
        (5, "8Gi", True),
        (6, "16Gi", False),
        (8, "64Gi", False),
        (16, "64Gi", True),
    ],
)
def test_the_number_of_cpus_chooses_the_range(cpus: int, memory: str, is_denied: bool) -> None:
    ranges = limits("[{cpu: {max: 4}, memory: {max: 8Gi}}, {cpu: {min: 6, max: 8}, memory: {min: 16Gi}}]")
    assert bool(decide(of_cpus(cpus, memory), ranges).denial) == is_denied


def test_what_has_no_size_of_its_own_is_not_judged() -> None:
    small = limits("cpu: {max: 1}")
    for settings in (small, REQUIRED):
        assert decide(sized({}), settings).code == reasons.NO_INLINE_SIZE
        assert decide(sized({"cpu": {"model": "host-passthrough"}}), settings).code == reasons.NO_INLINE_SIZE
        named = sized({"cpu": {"cores": 4}}, instancetype={"name": "u1.large"})
        assert decide(named, settings).code == reasons.NO_INLINE_SIZE
        assert decide(sized({}, instancetype={"name": "u1.large"}), settings).code == reasons.NO_INLINE_SIZE
        for spec in ({}, {"template": None}, {"template": {"spec": None}}, {"template": {"spec": {"domain": None}}}):
            assert decide({**sized({}), "spec": spec}, settings).code == reasons.NO_INLINE_SIZE


def test_an_instancetype_may_be_required() -> None:
    (field,) = causes(of_cpus(1), REQUIRED)
    assert field == f"{BASE}.cpu.cores, {BASE}.memory.guest"
    decision = decide(of_cpus(1), changed(REQUIRED, allowed_instancetypes="u1.small, u1.medium"))
    assert decision.code == reasons.INSTANCETYPE_REQUIRED
    assert decision.denial is not None
    assert "u1.small, u1.medium" in decision.denial.message


def recorded(obj: Json, *paths: str, operation: str = "Update") -> Json:
    """A VM with the API server's record of what its sender wrote."""
    tree: Json = {}
    for path in paths:
        inner = tree
        for segment in path.split("."):
            inner = inner.setdefault(f"f:{segment}", {})
    entries = [{"manager": "kubectl", "operation": operation, "fieldsV1": tree}]
    return {**obj, "metadata": {**obj["metadata"], "managedFields": entries}}


@pytest.mark.control("forged-sizes")
def test_a_size_that_a_webhook_has_written_is_not_inline() -> None:
    """So an instancetype is written out; whatever a sender writes, the API server records."""
    expanded = recorded(of_cpus(16), "spec.instancetype.name", f"{BASE}.devices")
    assert decide(expanded, REQUIRED).code == reasons.NO_INLINE_SIZE
    for path in (f"{BASE}.cpu.cores", f"{BASE}.memory.guest", f"{BASE}.cpu", BASE, "spec.template"):
        assert decide(recorded(of_cpus(16), path), REQUIRED).denial, path
    for entries in (None, [], "x", [{"fieldsV1": "x"}], [{"fieldsV1": {}, "subresource": "status"}]):
        obj = of_cpus(16)
        obj["metadata"]["managedFields"] = entries
        assert decide(obj, REQUIRED).denial, entries


@pytest.mark.control("forged-sizes")
def test_a_size_that_cannot_be_read_is_no_way_past_the_limits() -> None:
    for domain in ({"memory": {"guest": "many"}}, {"resources": {"limits": {"cpu": "1" * 200}}}):
        decision = decide(sized(domain), SHOP)
        assert (decision.code, decision.denial and decision.denial.code) == (common.INVALID_OBJECT, 422)


class TestUpdates:
    def test_a_size_that_the_vm_had_already_stays(self) -> None:
        large = of_cpus(64, "1Ti")
        for settings in (SHOP, REQUIRED):
            labeled = {**large, "metadata": {**large["metadata"], "labels": {"a": "b"}, "finalizers": ["x/y"]}}
            assert decide(labeled, settings, large).code == reasons.SIZE_UNCHANGED
            # The same in another way.
            again = sized({"cpu": {"sockets": 64}, "resources": {"requests": {"memory": "1024Gi"}}})
            assert decide(again, settings, large).code == reasons.SIZE_UNCHANGED

    def test_a_changed_size_is_judged(self) -> None:
        assert decide(of_cpus(8, "16Gi"), SHOP, of_cpus(2)).code == reasons.WITHIN_LIMITS
        assert decide(of_cpus(10, "16Gi"), SHOP, of_cpus(2)).denial
        assert decide(of_cpus(4), REQUIRED, of_cpus(2)).denial
        assert decide(of_cpus(64), SHOP, sized({}, instancetype={"name": "u1.64xlarge"})).denial
        assert decide(of_cpus(64), SHOP, sized({})).denial
        # What others have to do without grows, even if the guest doesn't.
        requesting = of_cpus(2)
        requesting["spec"]["template"]["spec"]["domain"]["resources"] = {"requests": {"cpu": "64"}}
        assert decide(requesting, SHOP, of_cpus(2)).denial
        assert decide(of_cpus(2), SHOP, requesting).code == reasons.SIZE_UNCHANGED

    def test_what_stays_of_a_size_is_no_reason_against_the_rest(self) -> None:
        old = of_cpus(7, "20Gi")
        assert not decide(of_cpus(7, "16Gi"), SHOP, old).denial
        assert list(causes(of_cpus(7, "33Gi"), old=old)) == [f"{BASE}.memory.guest"]
        # CPUs that are in a range, choose it all the same.
        ranges = limits("[{cpu: {max: 4}, memory: {max: 8Gi}}, {cpu: {min: 5}, memory: {max: 64Gi}}]")
        assert decide(of_cpus(2, "64Gi"), ranges, of_cpus(2)).denial
        assert not decide(of_cpus(5, "64Gi"), ranges, of_cpus(5)).denial

    @pytest.mark.control("forged-sizes")
    def test_kubevirt_itself_may_write_a_size_but_in_a_pool(self) -> None:
        """It expands an instancetype, or restores a snapshot; a pool's template is a user's."""
        old, new = sized({}, instancetype={"name": "u1.64xlarge"}), of_cpus(64)
        assert decide(new, REQUIRED, old, CONTROLLER).code == common.BY_KUBEVIRT
        impostor = "system:serviceaccount:demo:kubevirt-controller"
        assert decide(new, REQUIRED, old, impostor).denial
        owner = {"apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool", "name": "web", "uid": "1"}
        new["metadata"]["ownerReferences"] = [owner | {"controller": True}]
        assert decide(new, REQUIRED, old, CONTROLLER).denial
        assert decide(new, REQUIRED, of_cpus(2), CONTROLLER).denial
        config = config_of("1.9", {"instancetype": {"referencePolicy": "expand"}})
        expands = {KubeVirtKey(): installed(config)}
        assert decide(new, REQUIRED, old, CONTROLLER, expands).code == common.BY_KUBEVIRT
        assert decide(new, REQUIRED, of_cpus(2), CONTROLLER, expands).denial

    def test_a_new_vm_of_a_pool_is_judged(self) -> None:
        assert decide(of_cpus(64), SHOP, user=CONTROLLER).denial

    @pytest.mark.parametrize("policy", ["Ignore", "Fail"])
    def test_what_cannot_be_looked_up(self, policy: str) -> None:
        settings = changed(REQUIRED, failure_policy=policy)
        decision = decide(of_cpus(4), settings, of_cpus(2), CONTROLLER, {KubeVirtKey(): Unavailable("no answer")})
        assert decision.code == common.LOOKUP_FAILED
        assert (decision.denial and decision.denial.code) == (503 if policy == "Fail" else None)
        assert decision.denial or decision.warnings


def test_without_limits_nothing_is_denied_and_a_bad_annotation_shows() -> None:
    assert decide(of_cpus(64), SizeSettings()).code == reasons.NO_SIZE_LIMITS
    decision = decide(of_cpus(64), SizeSettings().with_annotations({SIZE_LIMITS_ANNOTATION: "["}))
    assert decision.denial is None
    assert [each.code for each in decision.warnings] == [reasons.LIMITS_INVALID]


def test_a_vm_that_is_being_deleted_is_left_alone() -> None:
    obj = of_cpus(64)
    obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert decide(obj, SHOP, of_cpus(2)).code == common.BEING_DELETED


STEPS = st.sampled_from([1, 2, 4])


@given(
    least=st.integers(1, 8),
    span=st.integers(0, 8),
    step=STEPS,
    memory=st.tuples(st.integers(1, 16), st.integers(0, 16), STEPS),
    ratio=st.tuples(st.integers(1, 4), st.integers(0, 4)),
    size=st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 2), st.integers(1, 64)),
    halves=st.booleans(),
)
def test_exactly_the_sizes_in_the_limits_are_allowed(
    least: int,
    span: int,
    step: int,
    memory: tuple[int, int, int],
    ratio: tuple[int, int],
    size: tuple[int, int, int, int],
    halves: bool,
) -> None:
    low, more, grain = memory
    settings = limits(
        f"{{cpu: {{min: {least}, max: {least + span}, step: {step}}},"
        f" memory: {{min: {low}Gi, max: {low + more}Gi, step: {grain * 512}Mi}},"
        f" memoryPerCpu: {{min: {ratio[0] * 256}Mi, max: {sum(ratio) * 1024}Mi}}}}"
    )
    sockets, cores, threads, amount = size
    vcpus, mib = sockets * cores * threads, amount * 512 + halves * 256
    is_allowed = (
        least <= vcpus <= least + span
        and vcpus % step == 0
        and low * 1024 <= mib <= (low + more) * 1024
        and mib % (grain * 512) == 0
        and ratio[0] * 256 * vcpus <= mib <= sum(ratio) * 1024 * vcpus
    )
    domain = {"cpu": {"sockets": sockets, "cores": cores, "threads": threads}, "memory": {"guest": f"{mib}Mi"}}
    decision = decide(sized(domain), settings)
    assert bool(decision.denial) != is_allowed
    # As an update, too, of a VM of another size.
    assert bool(decide(sized(domain), settings, of_cpus(1000, "9Ti")).denial) != is_allowed
    assert not decide(sized(domain), settings, sized(domain)).denial
