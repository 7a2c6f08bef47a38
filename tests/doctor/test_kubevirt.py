from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.definitions import definitions
from tests.doctor.world import MANIFESTS, MUTATING, Change, DoctorWorld, both, forbid, put, remove
from webhook import names
from webhook.doctor.kubevirt import PLUGINS, check_kubevirt, check_nodes
from webhook.k8s.resources import NAMESPACES, NODES_WITH_IMAGES
from webhook.kubevirt.definitions import DEFINITIONS, NAMES
from webhook.kubevirt.releases import fields
from webhook.kubevirt.resources import KUBEVIRTS
from webhook.policies.instancetypes.pools import POOLS, VMS, Pool, check_pools

SUBJECT = "KubeVirt kubevirt/kubevirt"
NEWEST, OLDER = POOLS
MARKED = {names.INJECTED_INSTANCETYPE_ANNOTATION: "VirtualMachineClusterInstancetype/u1.small"}
UPDATING = {"phase": "Deploying", "observedKubeVirtVersion": "v1.8.4", "targetKubeVirtVersion": "v1.9.0"}


def runs(version: str) -> Change:
    return lambda it: it.kubevirt(version=version)


def declares(version: str) -> Change:
    def change(world: DoctorWorld) -> None:
        world.settings = world.settings.with_kubevirt_version(version)

    return change


def owned(world: DoctorWorld) -> None:
    """By HyperConverged, in whose words the advice is."""
    owner = {"apiVersion": "hco.kubevirt.io/v1beta1", "kind": "HyperConverged", "name": "hco", "uid": "u"}
    metadata = {"ownerReferences": [owner | {"controller": True}]}
    status = {"phase": "Deployed", "observedKubeVirtVersion": "v1.8.1"}
    world.server.put(KUBEVIRTS, "kubevirt", "kubevirt", metadata=metadata, spec={}, status=status)


def evicts(mode: str) -> Change:
    return lambda it: it.opt_in("demo", eviction=mode)


def replaced(**fields: Any) -> Change:
    return put(KUBEVIRTS, "kubevirt", "kubevirt", **fields)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (runs("v1.6.0"), "ok version-supported"),
        (runs("v1.9.3"), "ok version-supported"),
        (runs("v1.10.2"), "warning version-new"),
        (runs("v1.5.9"), "warning version-old"),
        (runs(""), "unknown version-unknown"),
        (runs("main"), "unknown version-unknown"),
        (both(runs("main"), declares("1.9")), "unknown version-unknown; ok version-declared"),
        (replaced(spec={}, status=UPDATING), "ok version-supported; ok updating"),
        (declares("v1.8.1"), "ok version-supported; ok version-declared"),
        (declares("1.9"), "ok version-supported; warning version-differs"),
        (lambda it: it.set("kubevirt", namespace="kubevirt"), "ok version-supported"),
        (
            lambda it: it.set("kubevirt", namespace="openshift-cnv"),
            "failure namespace-differs; ok version-supported",
        ),
        (evicts("enforce"), "ok version-supported; warning evictions-shut-down"),
        (evicts("audit"), "ok version-supported; warning evictions-shut-down"),
        (evicts("off"), "ok version-supported"),
        (both(owned, evicts("enforce")), "ok version-supported; ok owned; warning evictions-shut-down"),
        # Another one that no operator has taken up.
        (put(KUBEVIRTS, "another", "elsewhere", spec={}), "ok version-supported"),
    ],
)
async def test_what_runs(world: DoctorWorld, change: Change, expected: str) -> None:
    told = await world.told(check_kubevirt, change)
    assert "; ".join(told).replace(f"{SUBJECT}: ", "") == f"{expected}; ok configuration"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda it: it.kubevirt(cpuModel=7), f"warning {SUBJECT}: configuration-invalid"),
        # The CRD's schema excludes them; the server cannot read them either.
        (replaced(spec={"configuration": 7}), "warning KubeVirt: configuration-invalid"),
        (replaced(status={"phase": 7}), "warning KubeVirt: configuration-invalid"),
        (remove(KUBEVIRTS, "kubevirt", "kubevirt"), "failure KubeVirt: missing"),
        (forbid(KUBEVIRTS), "unknown KubeVirt: unreadable"),
    ],
)
async def test_what_cannot_be_read(world: DoctorWorld, change: Change, expected: str) -> None:
    assert await world.problems(check_kubevirt, change) == [expected]


async def test_all_is_well(world: DoctorWorld) -> None:
    world.kubevirt(evictionStrategy="LiveMigrate", developerConfiguration={"featureGates": ["Sidecar"]})

    first, second = await world.run(check_kubevirt)

    assert (first.code, second.code) == ("version-supported", "configuration")
    assert second.found.endswith(": Sidecar")


class TestFields:
    """What says which fields KubeVirt knows: its definitions, or tables where they cannot be read."""

    def put(self, world: DoctorWorld, *without: str) -> None:
        world.server.serve(DEFINITIONS)
        for each in definitions({fields.PREFERENCE: without}):
            world.server.put(DEFINITIONS, each["metadata"]["name"], spec=each["spec"])

    async def test_nothing_is_said_where_both_agree(self, world: DoctorWorld) -> None:
        world.server.serve(DEFINITIONS)
        # Of an unknown release nothing can differ.
        assert not [one for one in await world.told(check_kubevirt, runs("devel")) if "fields" in one]
        self.put(world)
        assert not [one for one in await world.told(check_kubevirt, runs("v1.9.0")) if "fields" in one]

    async def test_what_differs_is_named(self, world: DoctorWorld) -> None:
        self.put(world, "preferredSubdomain")

        (finding,) = [one for one in await world.run(check_kubevirt, runs("v1.8.4")) if one.code.startswith("fields")]

        assert (finding.verdict, finding.code) == ("ok", "fields-differ")
        assert "preferredVideoType" in finding.found
        assert finding.found.endswith("lack preferredSubdomain")

    async def test_without_the_permission_the_tables_count(self, world: DoctorWorld) -> None:
        world.server.fail(DEFINITIONS.path(name=NAMES[fields.VMI]), 403, "Forbidden")
        assert await world.problems(check_kubevirt, runs("v1.8.4")) == [f"warning {SUBJECT}: fields-unreadable"]


def pool(resource: Any = NEWEST, *, marked: bool = True, **spec: Any) -> Change:
    owner = {"apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool", "name": "web", "controller": True}
    metadata = {"ownerReferences": [owner], "annotations": MARKED if marked else {}}
    made = put(resource, "web", "shop", spec={"virtualMachineTemplate": {"spec": spec}})
    return both(made, put(VMS, "web-0", "shop", metadata=metadata))


@pytest.mark.parametrize("resource", POOLS)
@pytest.mark.parametrize(("mode", "verdict"), [("enforce", "ok"), ("warn", "warning"), ("off", "warning")])
async def test_a_pool_that_lives_by_a_default(world: DoctorWorld, resource: Any, mode: str, verdict: str) -> None:
    world.opt_in("shop", instancetypes=mode)

    (finding,) = await world.run(check_pools, pool(resource))

    assert (finding.verdict, finding.code) == (verdict, "size-by-default" if verdict == "ok" else "size-at-risk")
    assert finding.found.endswith(": shop/web")
    assert finding.todo


NO_POOLS = ["ok VirtualMachinePool: no-pools"]
UNREADABLE = ["unknown VirtualMachinePools: unreadable"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda _: None, NO_POOLS),
        (pool(instancetype={"name": "u1.small"}), NO_POOLS),
        (pool(template={"spec": {"domain": {"memory": {"guest": "1Gi"}}}}), NO_POOLS),
        (pool(template={"spec": {"domain": {"resources": {"requests": {"memory": "1Gi"}}}}}), NO_POOLS),
        # Its VMs got nothing from kubevirt-webhook; one that did is of no pool.
        (both(pool(marked=False), put(VMS, "alone", "shop", metadata={"annotations": MARKED})), NO_POOLS),
        (both(pool(), forbid(NEWEST)), UNREADABLE),
        (both(pool(), forbid(VMS)), UNREADABLE),
    ],
)
async def test_pools_that_need_no_default(world: DoctorWorld, change: Change, expected: list[str]) -> None:
    world.opt_in("shop", instancetypes="off")
    assert await world.told(check_pools, change) == expected


def test_odd_pools_say_no_size() -> None:
    assert not Pool().is_sized


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda _: None, ["ok images: all-reported"]),
        (lambda it: it.node("full", 50), ["ok images: policy-applies"]),
        (both(lambda it: it.node("full", 60), remove(NAMESPACES, "demo")), ["warning images: not-all-reported"]),
        (forbid(NODES_WITH_IMAGES), ["unknown images: unreadable"]),
    ],
)
async def test_nodes_and_their_images(world: DoctorWorld, change: Change, expected: list[str]) -> None:
    assert await world.told(check_nodes, change) == expected


def plugin(changed: dict[str, Any] | None = None, *gates: str) -> Change:
    """The Plugin of the manifests, or a changed one, beside a KubeVirt with feature gates."""
    shown = yaml.safe_load((MANIFESTS / "components/kubevirt-plugin/plugin.yaml").read_text())
    spec = {**shown["spec"], **(changed or {})}
    return both(
        put(PLUGINS, shown["metadata"]["name"], spec=spec),
        lambda it: it.kubevirt(version="v1.9.0", developerConfiguration={"featureGates": list(gates)}),
    )


HOOKS, POLICIES = "mutatingAdmissionWebhooks", "validatingAdmissionPolicies"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (plugin(None, "Plugins"), "ok plugin-complete"),
        (plugin(), "warning plugin-gate-closed"),
        (plugin({HOOKS: [{"name": "kubevirt-webhook"}]}, "Plugins"), "warning plugin-lacks"),
        (plugin({HOOKS: None, POLICIES: []}, "Plugins"), "warning plugin-lacks"),
        (both(plugin(None, "Plugins"), remove(MUTATING, "zz-kubevirt-webhook")), "warning plugin-dangling"),
        (both(plugin(None, "Plugins"), forbid(PLUGINS, name="kubevirt-webhook")), "unknown unreadable"),
    ],
)
async def test_a_plugin_names_what_is_installed(world: DoctorWorld, change: Change, expected: str) -> None:
    told = await world.told(check_kubevirt, change)
    assert [line for line in told if "Plugin" in line] == [expected.replace(" ", " Plugin kubevirt-webhook: ")]
