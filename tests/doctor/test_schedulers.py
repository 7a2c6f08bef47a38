from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from aiohttp import web

from tests import builders
from tests.cluster.files_case import launcher_pod as launcher
from tests.doctor.world import PROFILE, Change, DoctorWorld, both, forbid, outline, put, remove
from tests.install.schedulers.configurations import configuration
from webhook.doctor.installation import DEPLOYMENTS, Installation
from webhook.doctor.permissions import CLUSTER_ROLES
from webhook.doctor.schedulers import check_profile, check_schedulers
from webhook.findings import Finding
from webhook.k8s.resources import CONFIG_MAPS, LEASES, NAMESPACES, PENDING_PODS, PODS
from webhook.kubevirt.resources import ACTIVE_VMIS
from webhook.names import DOMAIN

PLACE = "kubevirt-scheduler"
LOG = f"/api/v1/namespaces/{PLACE}/pods/kubevirt-scheduler-7c9/log"
REFUSED = (
    'E1123 18:00:00.1 1 reflector.go:227] "Failed to watch" err="failed to list *v1.DeviceTaintRule: '
    'devicetaintrules.resource.k8s.io is forbidden: User "system:serviceaccount:kubevirt-scheduler:kubevirt-scheduler" '
    'cannot list resource \\\\"devicetaintrules\\\\"" reflector="k8s.io/client-go/informers/factory.go:160"\n'
)
BY_LEASE = f"lease {PLACE}/{PLACE}"
BY_PODS, UNCHECKED = "pods", "off"
MOUNTING = {"template": {"spec": {"volumes": [{"configMap": {"name": "scheduler"}}]}}}
WHERE = f"ConfigMap {PLACE}/scheduler"
NO_LEASE = remove(LEASES, PLACE, PLACE)
KIND = "kind: KubeSchedulerConfiguration"


def declare(health_check: str | None, wanted: str = "kubevirt") -> Change:
    schedulers = {"kubevirt": builders.scheduler("kubevirt", health_check)} if health_check else {}
    return lambda it: it.set("scheduling", schedulers=schedulers, scheduler_name=wanted)


def before(world: DoctorWorld, seconds: float) -> str:
    return datetime.fromtimestamp(world.clock.wall() - seconds, UTC).isoformat()


def waiting(seconds: float, *conditions: str) -> Change:
    """A pod that names the scheduler of the settings."""
    state = {"phase": "Pending", "conditions": [{"type": one} for one in conditions]}
    spec = {"schedulerName": "kubevirt"}
    return lambda it: it.server.put(
        PODS, "waits", "demo", metadata={"creationTimestamp": before(it, seconds)}, spec=spec, status=state
    )


def put_waiting_launchers(world: DoctorWorld) -> None:
    for namespace in ("east", "west"):
        world.opt_in(namespace, scheduling="enforce")
        made = launcher(namespace)
        meta = made["metadata"] | {"creationTimestamp": before(world, 100)}
        world.server.put(PODS, meta["name"], namespace, metadata=meta, spec=made["spec"], status={"phase": "Pending"})
        status = {"activePods": {meta["uid"]: ""}}
        world.server.put(ACTIVE_VMIS, "a", namespace, metadata={"uid": f"vmi-{namespace}-a"}, status=status)


async def health(world: DoctorWorld, *changes: Change) -> Finding:
    findings = await world.run(check_schedulers, *changes)
    (found,) = [one for one in findings if one.subject == "scheduler kubevirt"]
    return found


def log(phase: str, text: str) -> Change:
    """A pod of the scheduler, and what it has written; its Lease is gone."""
    running = put(PODS, "kubevirt-scheduler-7c9", PLACE, status={"phase": phase})
    answer = lambda it: it.server.answer(LOG, lambda _: web.Response(text=text), times=9)
    return both(NO_LEASE, running, answer)


@pytest.mark.parametrize(
    ("change", "expected", "why"),
    [
        (waiting(100, "PodScheduled"), "ok available", ""),
        (NO_LEASE, "failure unavailable", ""),
        # As in OpenShift, and one that expired a moment ago.
        (lambda it: it.lease(ago=200, seconds=137), "failure unavailable", "has not been renewed for"),
        (lambda it: it.lease(ago=61, seconds=60), "failure unavailable", "has not been renewed for"),
        # Its holder's clock is far ahead, and it lasts longer than the check waits.
        (lambda it: it.lease(ago=-400, seconds=300), "unknown unknown", ""),
        # Every tenant can create a pod that names the scheduler.
        (waiting(100), "ok available", ""),
        (both(declare(BY_PODS), waiting(5)), "ok available", ""),
        (declare(UNCHECKED), "ok health-check-off", ""),
        (both(declare(BY_PODS), put_waiting_launchers), "failure unavailable", "2 virt-launcher pods "),
        (both(declare(BY_LEASE), put_waiting_launchers), "failure unavailable", "2 virt-launcher pods "),
        (forbid(PENDING_PODS), "unknown unreadable", "grant list on pods"),
        (forbid(LEASES, PLACE, PLACE), "unknown unreadable", "grant get on leases.coordination.k8s.io"),
        # What is known to be unavailable is reported all the same.
        (both(NO_LEASE, forbid(PENDING_PODS)), "failure unavailable", ""),
        (log("Running", REFUSED), "failure not-synced", "devicetaintrules"),
        (log("Running", "I1123 attempting to acquire leader lease\n"), "failure unavailable", ""),
        (log("Pending", REFUSED), "failure unavailable", ""),
    ],
)
async def test_the_health_of_one(world: DoctorWorld, change: Change, expected: str, why: str) -> None:
    found = await health(world, change)
    assert f"{found.verdict} {found.code}" == expected
    assert why in found.found
    assert ("devicetaintrules" in found.found) is (found.code == "not-synced")
    assert expected != "ok available" or world.clock.slept == []


@pytest.mark.parametrize(
    ("mode", "verdict"), [(None, "warning"), ("off", "warning"), ("audit", "failure"), ("enforce", "failure")]
)
async def test_one_that_nothing_uses_yet_is_no_failure(world: DoctorWorld, mode: str | None, verdict: str) -> None:
    """The built-in settings declare one, which not every cluster has: each of these was a failure after installing."""
    world.server.put(NAMESPACES, "demo")
    if mode:
        world.opt_in("shop", scheduling=mode)
    found = await health(world, NO_LEASE)
    assert (found.verdict, found.code) == (verdict, "unavailable")
    assert "schedulers: {}" in found.todo


async def test_constraints_that_only_a_namespace_asks_for_need_no_scheduler(world: DoctorWorld) -> None:
    declare(None)(world)
    world.namespace("demo", labels={f"{DOMAIN}/scheduling": "enforce"}, annotations={f"{DOMAIN}/spread": "hostname"})
    assert await world.told(check_schedulers) == ["ok settings: none-needed"]


async def test_no_scheduler_is_as_it_should_be_while_no_namespace_wants_one(world: DoctorWorld) -> None:
    declare(None)(world)
    world.opt_in("demo", sizes="enforce")
    assert await world.told(check_schedulers) == ["ok settings: none-needed"]


@pytest.mark.parametrize(("seconds", "least"), [(15, 4), (60, 15), (137, 34)])
async def test_an_old_lease_is_watched_for_a_quarter_of_its_duration(
    world: DoctorWorld, seconds: int, least: int
) -> None:
    found = await health(world, lambda it: it.lease(ago=seconds + 1, seconds=seconds))
    assert (found.verdict, found.code) == ("failure", "unavailable")
    assert least <= sum(world.clock.slept) <= least + 3


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (declare(UNCHECKED), []),
        (declare(UNCHECKED, wanted="other"), ["warning settings: undeclared"]),
        (declare(None), ["warning settings: none-declared"]),
    ],
)
async def test_one_that_namespaces_get_must_be_declared(
    world: DoctorWorld, change: Change, expected: list[str]
) -> None:
    assert [line for line in await world.problems(check_schedulers, change) if "profile" not in line] == expected


def second_scheduler(*granted: str, account: str = PLACE) -> Change:
    """It is installed, on a cluster whose own scheduler lists nodes and taints of devices."""

    def rules(*resources: str) -> list[dict[str, Any]]:
        return [{"apiGroups": ["resource.k8s.io"], "resources": list(resources), "verbs": ["get", "list", "watch"]}]

    return both(
        put(DEPLOYMENTS, PLACE, PLACE, spec={"template": {"spec": {"serviceAccountName": account}}}),
        put(CLUSTER_ROLES, "system:kube-scheduler", rules=rules("resourceslices", "devicetaintrules")),
        put(CLUSTER_ROLES, "kubevirt-scheduler", rules=rules(*granted)),
    )


@pytest.mark.parametrize(
    ("granted", "allowed", "expected"),
    [
        (("resourceslices", "devicetaintrules"), False, "ok scheduler-permissions-granted"),
        # Another binding grants it.
        (("resourceslices",), True, "ok scheduler-permissions-granted"),
        (("resourceslices",), False, "failure scheduler-permissions-missing"),
        (("resourceslices",), None, "unknown unreadable"),
    ],
)
async def test_the_permissions_of_the_second_are_those_of_the_version_of_the_cluster(
    world: DoctorWorld, granted: tuple[str, ...], allowed: bool | None, expected: str
) -> None:
    world.account = "system:serviceaccount:kubevirt-scheduler:kubevirt-scheduler"
    world.denied = set() if allowed else {"list devicetaintrules", "watch devicetaintrules"}
    world.forbids_reviews = allowed is None

    findings = await world.run(check_schedulers, second_scheduler(*granted))

    (found,) = [one for one in findings if one.subject.startswith("ServiceAccount")]
    assert f"{found.verdict} {found.code}" == expected
    assert ("watch devicetaintrules.resource.k8s.io" in found.found) == expected.endswith("missing")


async def test_a_scheduler_of_the_same_name_with_another_account_is_not_the_second_one(world: DoctorWorld) -> None:
    told = await world.told(check_schedulers, second_scheduler("resourceslices", account="mine"))
    assert "ServiceAccount" not in str(told)


async def profile_of(world: DoctorWorld, *changes: Change, health_check: str = BY_LEASE) -> list[Finding]:
    async def one(installation: Installation) -> list[Finding]:
        return await check_profile(installation, builders.scheduler("kubevirt", health_check))

    return await world.run(one, *changes)


def score(**plugins: Any) -> Change:
    return lambda it: it.scheduler({"schedulerName": "kubevirt", "plugins": plugins})


def off(*names: str) -> dict[str, Any]:
    return {"disabled": [{"name": name} for name in names]}


NO_CONFIGURATIONS = ("{", "[1]", "kind: Other", KIND, f"{KIND}\nprofiles: [1, {{}}]")
CORRECT, NOT_FOUND = "ok profile-correct", "unknown profile-not-found"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda _: None, [CORRECT]),
        (score(), ["warning image-locality-on"]),
        (score(score=off("ImageLocality")), [CORRECT]),
        (
            score(score="none", filter=[], multiPoint={"disabled": "x"}),
            [*["failure invalid-field"] * 3, "warning image-locality-on"],
        ),
        *((lambda it, text=text: it.scheduler(text=text), [NOT_FOUND]) for text in NO_CONFIGURATIONS),
        (lambda it: it.scheduler({"schedulerName": "default-scheduler"}, PROFILE), ["failure default-profile-twice"]),
        (remove(CONFIG_MAPS, "scheduler", PLACE), [NOT_FOUND]),
        (forbid(DEPLOYMENTS, PLACE), ["unknown unreadable"]),
        (forbid(CONFIG_MAPS, PLACE, "scheduler"), ["unknown unreadable"]),
    ],
)
async def test_mistakes_of_a_configuration_are_those_that_lint_finds(
    world: DoctorWorld, change: Change, expected: list[str]
) -> None:
    findings = await profile_of(world, change)
    assert sorted(f"{one.verdict} {one.code}" for one in findings) == sorted(expected)
    assert {one.subject for one in findings} == {"profile kubevirt"}
    assert all(one.found.startswith(WHERE) for one in findings if one.verdict != "unknown")
    assert all(bool(one.todo) is (one.verdict != "ok") for one in findings)


LEASE_FLAGS = ["--leader-elect-resource-namespace=kubevirt-scheduler", "--leader-elect-resource-name", "vms"]


@pytest.mark.parametrize(
    ("container", "expected"),
    [({"args": LEASE_FLAGS}, CORRECT), ({"command": LEASE_FLAGS}, CORRECT), ({}, "failure lease-clash")],
)
async def test_flags_name_the_lease_before_the_configuration_does(
    world: DoctorWorld, container: dict[str, Any], expected: str
) -> None:
    """OpenShift's Secondary Scheduler Operator passes them, and the documented ConfigMap has no Lease."""
    (finding,) = await profile_of(world, lambda it: it.scheduler(PROFILE, lease=False, **container))
    assert f"{finding.verdict} {finding.code}" == expected


async def test_a_profile_in_another_place_or_in_none_that_is_known(world: DoctorWorld) -> None:
    """The cluster's own scheduler needs the default profile."""
    world.server.put(DEPLOYMENTS, "scheduler", "kube-system", spec=MOUNTING)
    world.server.put(CONFIG_MAPS, "scheduler", "kube-system", data={"c": yaml.safe_dump(configuration(PROFILE))})
    own = "lease kube-system/kube-scheduler"
    of_the_clusters_own = await profile_of(world, health_check=own)
    assert outline(of_the_clusters_own)[:1] == ["failure profile kubevirt: default-profile-missing"]
    assert outline(await profile_of(world, health_check=BY_PODS)) == ["unknown profile kubevirt: profile-not-located"]
