"""The instancetypes policy on new VirtualMachines: which get the namespace's defaults, and which do not."""

from __future__ import annotations

from .conftest import NewTenant
from .support.kube import Json, eventually
from .support.rbac import may
from .support.sizes import (
    DEFAULTS,
    INJECTED_ANNOTATIONS,
    LARGE,
    LINUX,
    SIZED_TEMPLATE,
    SMALL,
    is_ours,
    matchers_of,
    named,
    offer,
)
from .support.tenant import Tenant
from .support.webhook_server import ACCOUNT, DOMAIN, INSTANCETYPES, SCHEDULING
from .support.workloads import CLUSTER_INSTANCETYPES, OLD_VMS, VMS, instancetype, scheduler_of, vm

SPREAD = named("Preference", "spread")
VOLUMES = [
    ("", "persistentvolumeclaims"),
    ("", "secrets"),
    ("cdi.kubevirt.io", "datavolumes"),
    ("cdi.kubevirt.io", "datasources"),
    ("snapshot.storage.k8s.io", "volumesnapshots"),
]


def test_a_vm_whose_owner_says_nothing_gets_both_defaults(sized: Tenant) -> None:
    created = sized.create(vm())

    assert is_ours(created)
    assert created.warnings == ()
    assert sized.owner.get(VMS, "web", sized.namespace) == created
    assert [line["endpoint"] for line in sized.audit()] == [
        "/mutate/instancetypes/virtualmachines/enforce",
        "/validate/instancetypes/virtualmachines/enforce",
    ]
    assert sized.verdicts() == ["patched defaults-injected", "allowed instancetype-valid"]
    changes = {tuple(change["path"]): change["new"] for change in sized.audit()[0]["changes"]}
    assert changes == {
        ("spec", "instancetype"): SMALL,
        ("spec", "preference"): LINUX,
        ("metadata", "annotations", INJECTED_ANNOTATIONS[0]): DEFAULTS[f"{DOMAIN}/default-instancetype"],
        ("metadata", "annotations", INJECTED_ANNOTATIONS[1]): DEFAULTS[f"{DOMAIN}/default-preference"],
    }


def test_what_the_owner_says_stays(sized: Tenant) -> None:
    offer(sized, "spread")
    cases: list[tuple[Json, list[Json | None]]] = [
        ({"template": SIZED_TEMPLATE}, [None, None]),
        ({"instancetype": LARGE}, [LARGE, LINUX]),
        ({"instancetype": LARGE, "preference": SPREAD}, [LARGE, SPREAD]),
        ({"instancetype": None, "preference": None}, [SMALL, LINUX]),
    ]
    for number, (spec, expected) in enumerate(cases):
        assert matchers_of(sized.create(vm(f"web-{number}", **spec))) == expected
    # One of an older version gets the defaults, too.
    sized.owner.create(OLD_VMS, {**vm("old"), "apiVersion": "kubevirt.io/v1alpha3"}, sized.namespace)
    assert is_ours(sized.owner.get(VMS, "old", sized.namespace))


def test_a_default_for_the_whole_cluster(new_sized: NewTenant) -> None:
    tenant = new_sized(annotations={})
    tenant.owner.create(CLUSTER_INSTANCETYPES, instancetype(tenant.namespace))
    tenant.annotate(default_instancetype=tenant.namespace)
    # The default has no kind, since a later patch of the name alone would keep it.
    expected = [{"name": tenant.namespace}, None]
    eventually(lambda: matchers_of(tenant.create(vm(), dryRun="All")) == expected, what="the namespace's default")
    tenant.owner.delete(CLUSTER_INSTANCETYPES, tenant.namespace)


def test_defaults_and_a_scheduler_which_an_overwrite_keeps(new_sized: NewTenant) -> None:
    tenant = new_sized(policies=(INSTANCETYPES, SCHEDULING))

    created = tenant.create(vm())

    said = ["patched defaults-injected", "patched scheduler-injected", "allowed instancetype-valid"]
    assert tenant.verdicts() == said
    for found in (created, tenant.overwrite(created, vm(runStrategy="Halted"))):
        assert is_ours(found)
        assert scheduler_of(found) == "kubevirt"


def test_the_server_has_no_right_to_look_into_volumes(tenant: Tenant) -> None:
    server = tenant.server.access.kube(*ACCOUNT)

    assert may(server, "get", "controllerrevisions", tenant.namespace, "apps")
    assert [what for group, what in VOLUMES if may(server, "get", what, tenant.namespace, group)] == []
