"""Watched instancetypes and preferences: the requests that they save, and that users do not notice their age."""

from __future__ import annotations

import copy
from collections import Counter
from pathlib import Path

from .conftest import NewTenant, OwnPlane
from .support import manifests
from .support.kube import Json, eventually
from .support.sizes import DEFAULTS, LINUX, SMALL, is_ours, matchers_of, named, offer
from .support.tenant import Tenant
from .support.webhook_server import ACCOUNT, INSTANCETYPES, SCHEDULING, WebhookServer, install
from .support.workloads import INSTANCETYPES as SIZES
from .support.workloads import PREFERENCES, VMS, instancetype, vm

ROLES = "rbac.authorization.k8s.io/v1/clusterroles"
ROLE = "kubevirt-webhook"
LOOKED_UP = ("instancetypes", "preferences", "presets")
VALIDATE = "/validate/instancetypes"
MANY = 10


def copies(request: Json) -> bool:
    """Whether a request makes or keeps a copy of all, rather than to look one thing up."""
    return request["verb"] in {"list", "watch"} and "namespace" not in request["objectRef"]


def without_watches(role: Json) -> Json:
    """A role as it was before anything of instancetypes was watched."""
    changed = copy.deepcopy(role)
    for rule in changed["rules"]:
        if rule["apiGroups"] == ["instancetype.kubevirt.io"]:
            rule["verbs"] = ["get"]
    return changed


def test_the_copies_spare_every_look_up_and_without_the_right_to_them_everything_works(
    own_plane: OwnPlane, tmp_path: Path
) -> None:
    plane = own_plane()
    log = plane.requests_of(ACCOUNT.user)
    install(plane.admin)
    (role,) = (one for one in manifests.rbac() if one["kind"] == "ClusterRole" and one["metadata"]["name"] == ROLE)
    plane.admin.apply(without_watches(role))
    with WebhookServer(plane, tmp_path, "copying", {"schedulers": {"kubevirt": {"healthCheck": "off"}}}) as server:
        assert server.validates
        tenant = offer(Tenant.new(server, "enforce", (INSTANCETYPES, SCHEDULING)), "small", "linux")
        tenant.annotate(**{key.partition("/")[2].replace("-", "_"): value for key, value in DEFAULTS.items()})
        numbers = iter(range(1000))

        def asked() -> Counter[str]:
            """The requests that a VM's creation causes."""
            before = len(log.requests())
            assert is_ours(tenant.create(vm(f"web-{next(numbers)}")))
            asked_for = [one for one in log.requests()[before:] if one["objectRef"]["resource"].endswith(LOOKED_UP)]
            return Counter(one["verb"] for one in asked_for if not copies(one))

        eventually(lambda: is_ours(tenant.create(vm("probe"), dryRun="All")), what="the namespace's defaults")
        assert asked()["get"] >= 4
        manifests.grant(plane.admin, manifests.JUDGING)
        # The webhook retries a denied watch after ten seconds at most.
        eventually(lambda: not asked(), what="the copies to answer")
        assert [asked() for _ in range(MANY)] == [Counter()] * MANY


def test_a_vm_may_follow_at_once_what_it_names(sized: Tenant) -> None:
    sized.create(vm("first", instancetype=SMALL))
    for number in range(MANY):
        name = f"new-{number}"
        sized.owner.create(SIZES, instancetype(name, cluster=False), sized.namespace)
        sized.create(vm(name, instancetype=named("Instancetype", name)))

    assert sized.verdicts(path=VALIDATE) == ["allowed instancetype-valid"] * (MANY + 1)


def test_a_vm_may_follow_at_once_a_change_that_makes_room_for_it(new_sized: NewTenant) -> None:
    tenant = offer(new_sized(annotations={}), "demanding")
    names: Json = {"instancetype": named("Instancetype", "large"), "preference": named("Preference", "demanding")}
    for number in range(MANY):
        for needed in (8, 1 + number % 2):
            change = {"spec": {"requirements": {"cpu": {"guest": needed}}}}
            tenant.owner.patch(PREFERENCES, "demanding", change, tenant.namespace)
        tenant.create(vm(f"web-{number}", **names))

    assert tenant.verdicts(path=VALIDATE) == ["allowed instancetype-valid"] * MANY


def test_what_is_deleted_is_given_to_nobody_for_long(sized: Tenant) -> None:
    assert is_ours(sized.create(vm("before")))

    sized.owner.delete(SIZES, "small", sized.namespace)

    def left_out() -> bool:
        created = sized.create(vm("after"), dryRun="All")
        # Until the copy knows, as if it was deleted a moment later.
        assert matchers_of(created) in ([SMALL, LINUX], [None, LINUX])
        return matchers_of(created)[0] is None

    eventually(left_out, what="the deleted default to be left out")
    assert matchers_of(sized.owner.get(VMS, "before", sized.namespace)) == [SMALL, LINUX]
