"""The instancetypes policy on new VirtualMachines: which get the namespace's defaults, and which do not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .conftest import NewTenant
from .support.kube import Json, eventually
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

BOTH_POLICIES = (INSTANCETYPES, SCHEDULING)
SPREAD = named("Preference", "spread")
VOLUMES = [
    ("", "persistentvolumeclaims"),
    ("", "secrets"),
    ("cdi.kubevirt.io", "datavolumes"),
    ("cdi.kubevirt.io", "datasources"),
    ("snapshot.storage.k8s.io", "volumesnapshots"),
]


# -- creation ----------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"template": SIZED_TEMPLATE}, [None, None]),
        ({"instancetype": LARGE}, [LARGE, LINUX]),
        ({"instancetype": LARGE, "preference": SPREAD}, [LARGE, SPREAD]),
        ({"instancetype": None, "preference": None}, [SMALL, LINUX]),
    ],
)
def test_what_the_owner_says_stays(sized: Tenant, spec: Json, expected: list[Json | None]) -> None:
    offer(sized, "spread")

    assert matchers_of(sized.create(vm(**spec))) == expected


@pytest.fixture
def cluster_default(new_sized: NewTenant) -> Iterator[Tenant]:
    """A namespace whose default is a cluster-wide instancetype named as the namespace."""
    tenant = new_sized(annotations={})
    tenant.owner.create(CLUSTER_INSTANCETYPES, instancetype(tenant.namespace))
    tenant.annotate(default_instancetype=tenant.namespace)
    yield tenant
    tenant.owner.delete(CLUSTER_INSTANCETYPES, tenant.namespace)


def test_a_default_for_the_whole_cluster(cluster_default: Tenant) -> None:
    # The default has no kind, since a later patch of the name alone would keep it.
    expected = {"name": cluster_default.namespace}

    def injected() -> bool:
        created = cluster_default.create(vm(), dryRun="All")
        return matchers_of(created) == [expected, None]

    eventually(injected, what="the namespace's default")


def test_a_vm_of_an_older_version_gets_them_too(sized: Tenant) -> None:
    sized.owner.create(OLD_VMS, {**vm(), "apiVersion": "kubevirt.io/v1alpha3"}, sized.namespace)

    assert is_ours(sized.owner.get(VMS, "web", sized.namespace))


# -- together with the scheduling policy ----------------------------------------------------------------------


def test_defaults_and_a_scheduler(new_sized: NewTenant) -> None:
    tenant = new_sized(policies=BOTH_POLICIES)

    created = tenant.create(vm())

    assert is_ours(created)
    assert scheduler_of(created) == "kubevirt"
    assert tenant.verdicts() == [
        "patched defaults-injected",
        "patched scheduler-injected",
        "allowed instancetype-valid",
    ]


def test_an_overwrite_keeps_defaults_and_scheduler(new_sized: NewTenant) -> None:
    tenant = new_sized(policies=BOTH_POLICIES)
    created = tenant.create(vm())

    overwritten = tenant.overwrite(created, vm(runStrategy="Halted"))

    assert is_ours(overwritten)
    assert scheduler_of(overwritten) == "kubevirt"


# -- objects that the webhook never evaluates --------------------------------------------------------------------------


def may_read(tenant: Tenant, group: str, resource: str) -> bool:
    """Whether the server's account may, in a namespace."""
    attributes = {"namespace": tenant.namespace, "verb": "get", "group": group, "resource": resource}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    account = tenant.server.access.kube(*ACCOUNT)
    answer = account.create("authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


def test_the_server_has_no_right_to_look_into_volumes(tenant: Tenant) -> None:
    assert may_read(tenant, "apps", "controllerrevisions")
    assert [place for place in VOLUMES if may_read(tenant, *place)] == []
