from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
import yaml
from aiohttp import web

from tests.cluster.scheduler_health.pods import pod as launcher
from tests.doctor.world import PROFILE, DoctorWorld, codes
from tests.install.schedulers.configurations import configuration
from webhook.doctor.installation import CONFIG_MAPS, DEPLOYMENTS, Installation
from webhook.doctor.permissions import CLUSTER_ROLES
from webhook.doctor.report import Finding
from webhook.doctor.schedulers import check_profile, check_schedulers
from webhook.k8s.resources import LEASES, PENDING_PODS, PODS
from webhook.kubevirt.resources import ACTIVE_VMIS
from webhook.settings.model import SchedulerHealthSettings, SchedulerSettings

LOG = "/api/v1/namespaces/kubevirt-scheduler/pods/kubevirt-scheduler-7c9/log"
REFUSED = (
    'E1123 18:00:00.1 1 reflector.go:227] "Failed to watch" err="failed to list *v1.DeviceTaintRule: '
    'devicetaintrules.resource.k8s.io is forbidden: User "system:serviceaccount:kubevirt-scheduler:kubevirt-scheduler" '
    'cannot list resource \\\\"devicetaintrules\\\\"" reflector="k8s.io/client-go/informers/factory.go:160"\n'
)
HEALTH_CHECK = SchedulerHealthSettings("lease", "kubevirt-scheduler", "kubevirt-scheduler")
MOUNTING = {"template": {"spec": {"volumes": [{"configMap": {"name": "scheduler"}}]}}}
WHERE = "ConfigMap kubevirt-scheduler/scheduler"


def declare(world: DoctorWorld, *schedulers: SchedulerSettings, wanted: str = "kubevirt") -> None:
    scheduling = msgspec.structs.replace(
        world.settings.scheduling, schedulers={one.name: one for one in schedulers}, scheduler_name=wanted
    )
    world.settings = msgspec.structs.replace(world.settings, scheduling=scheduling)


def waiting(world: DoctorWorld, seconds: float, *conditions: str) -> None:
    """A pod that names the scheduler of the settings."""
    created = datetime.fromtimestamp(world.clock.wall() - seconds, UTC).isoformat()
    state = {"phase": "Pending", "conditions": [{"type": one} for one in conditions]}
    meta = {"creationTimestamp": created}
    world.server.put(PODS, "waits", "demo", metadata=meta, spec={"schedulerName": "kubevirt"}, status=state)


async def life(world: DoctorWorld) -> tuple[str, str]:
    (found,) = [one for one in await world.run(check_schedulers) if one.subject == "scheduler kubevirt"]
    assert found.verdict == {"available": "ok", "unavailable": "failure", "health-check-off": "ok"}.get(
        found.code, "unknown"
    )
    return found.code, found.found


async def test_one_that_renews_its_lease(world: DoctorWorld) -> None:
    waiting(world, 100, "PodScheduled")

    assert (await life(world))[0] == "available"
    assert world.clock.slept == []


def pods_alone(world: DoctorWorld) -> None:
    declare(world, SchedulerSettings("kubevirt", SchedulerHealthSettings("pods")))
    waiting(world, 5)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda it: it.server.remove(LEASES, "kubevirt-scheduler", "kubevirt-scheduler"), "unavailable"),
        # Every tenant can create a pod that names the scheduler.
        (lambda it: waiting(it, 100), "available"),
        (pods_alone, "available"),
        (lambda it: declare(it, SchedulerSettings("kubevirt", SchedulerHealthSettings("off"))), "health-check-off"),
    ],
    ids=["no Lease", "a pod that waits", "pods alone", "no health check"],
)
async def test_the_health_of_one(world: DoctorWorld, change: Callable[[DoctorWorld], None], code: str) -> None:
    change(world)

    assert (await life(world))[0] == code


async def test_an_old_lease_is_waited_for_until_it_has_run_out(world: DoctorWorld) -> None:
    world.lease(ago=100)

    assert (await life(world))[0] == "unavailable"
    assert sum(world.clock.slept) >= 15


async def test_a_lease_that_lasts_longer_than_our_patience_stays_unknown(world: DoctorWorld) -> None:
    renewed = datetime.fromtimestamp(world.clock.wall() - 200, UTC).isoformat()
    spec = {"holderIdentity": "one", "leaseDurationSeconds": 137, "renewTime": renewed}
    world.server.put(LEASES, "kubevirt-scheduler", "kubevirt-scheduler", spec=spec)

    assert (await life(world))[0] == "unknown"


@pytest.mark.parametrize(
    "health_check",
    [SchedulerHealthSettings("pods"), SchedulerHealthSettings("lease", "kubevirt-scheduler", "kubevirt-scheduler")],
)
async def test_pods_that_nobody_tries(world: DoctorWorld, health_check: SchedulerHealthSettings) -> None:
    declare(world, SchedulerSettings("kubevirt", health_check))
    created = datetime.fromtimestamp(world.clock.wall() - 100, UTC).isoformat()
    for namespace in ("east", "west"):
        world.namespace(namespace, labels={"kubevirt-webhook.github.io/scheduling": "enforce"})
        made = launcher(namespace)
        meta = made["metadata"] | {"creationTimestamp": created}
        world.server.put(PODS, meta["name"], namespace, metadata=meta, spec=made["spec"], status={"phase": "Pending"})
        status = {"activePods": {meta["uid"]: ""}}
        world.server.put(ACTIVE_VMIS, "a", namespace, metadata={"uid": f"vmi-{namespace}-a"}, status=status)

    code, text = await life(world)

    assert code == "unavailable"
    assert text.startswith("2 virt-launcher pods ") or " 2 virt-launcher pods " in text


@pytest.mark.parametrize("wanted", ["kubevirt", "other"])
async def test_one_that_namespaces_get_must_be_declared(world: DoctorWorld, wanted: str) -> None:
    declare(world, SchedulerSettings("kubevirt", SchedulerHealthSettings("off")), wanted=wanted)

    assert codes(await world.run(check_schedulers), "warning") == ["settings: undeclared"] * (wanted == "other")


async def test_none_is_declared(world: DoctorWorld) -> None:
    declare(world)

    assert codes(await world.run(check_schedulers), "warning") == ["settings: none-declared"]


@pytest.mark.parametrize(
    ("refused", "right"),
    [
        ((PENDING_PODS, "", ""), "grant list on pods"),
        ((LEASES, "kubevirt-scheduler", "kubevirt-scheduler"), "grant get on leases.coordination.k8s.io"),
    ],
)
async def test_rights_that_are_missing(world: DoctorWorld, refused: Any, right: str) -> None:
    world.forbid(*refused)

    code, text = await life(world)

    assert code == "unreadable"
    assert right in text


async def test_what_is_known_to_be_dead_is_told_all_the_same(world: DoctorWorld) -> None:
    world.server.remove(LEASES, "kubevirt-scheduler", "kubevirt-scheduler")
    world.forbid(PENDING_PODS)

    assert (await life(world))[0] == "unavailable"


@pytest.mark.parametrize(
    ("phase", "log", "code"),
    [
        ("Running", REFUSED, "not-synced"),
        ("Running", "I1123 attempting to acquire leader lease\n", "unavailable"),
        ("Pending", REFUSED, "unavailable"),
    ],
)
async def test_one_that_runs_and_has_not_synced_is_not_one_that_is_absent(
    world: DoctorWorld, phase: str, log: str, code: str
) -> None:
    world.server.remove(LEASES, "kubevirt-scheduler", "kubevirt-scheduler")
    world.server.put(PODS, "kubevirt-scheduler-7c9", "kubevirt-scheduler", status={"phase": phase})

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=log)

    world.server.answer(LOG, answer, times=9)
    (found,) = [one for one in await world.run(check_schedulers) if one.subject == "scheduler kubevirt"]
    assert (found.code, found.verdict) == (code, "failure")
    assert ("devicetaintrules" in found.found) == (code == "not-synced")


def second_scheduler(world: DoctorWorld, *granted: str, account: str = "kubevirt-scheduler") -> None:
    """It is installed, on a cluster whose own scheduler lists nodes and taints of devices."""

    def rules(*resources: str) -> list[dict[str, Any]]:
        return [{"apiGroups": ["resource.k8s.io"], "resources": list(resources), "verbs": ["get", "list", "watch"]}]

    spec = {"template": {"spec": {"serviceAccountName": account}}}
    world.server.put(DEPLOYMENTS, "kubevirt-scheduler", "kubevirt-scheduler", spec=spec)
    world.server.put(CLUSTER_ROLES, "system:kube-scheduler", rules=rules("resourceslices", "devicetaintrules"))
    world.server.put(CLUSTER_ROLES, "kubevirt-scheduler", rules=rules(*granted))


@pytest.mark.parametrize(
    ("granted", "bound", "code"),
    [
        (("resourceslices", "devicetaintrules"), False, "scheduler-permissions-granted"),
        # Another binding grants it.
        (("resourceslices",), True, "scheduler-permissions-granted"),
        (("resourceslices",), False, "scheduler-permissions-missing"),
    ],
)
async def test_the_permissions_of_the_second_are_those_of_the_version_of_the_cluster(
    world: DoctorWorld, granted: tuple[str, ...], bound: bool, code: str
) -> None:
    second_scheduler(world, *granted)
    world.account = "system:serviceaccount:kubevirt-scheduler:kubevirt-scheduler"
    world.denied = set() if bound else {"list devicetaintrules", "watch devicetaintrules"}
    world.expect_reviews()

    (found,) = [one for one in await world.run(check_schedulers) if one.subject.startswith("ServiceAccount")]
    assert found.code == code
    assert ("watch devicetaintrules.resource.k8s.io" in found.found) == code.endswith("missing")


async def test_a_scheduler_of_the_same_name_with_another_account_is_not_the_second_one(world: DoctorWorld) -> None:
    second_scheduler(world, "resourceslices", account="mine")
    world.expect_reviews()

    assert not [one for one in await world.run(check_schedulers) if one.subject.startswith("ServiceAccount")]


async def test_permissions_that_cannot_be_read_are_unknown(world: DoctorWorld) -> None:
    second_scheduler(world, "resourceslices")
    world.account = "system:serviceaccount:kubevirt-scheduler:kubevirt-scheduler"
    world.forbids_reviews = True
    world.expect_reviews()

    (found,) = [one for one in await world.run(check_schedulers) if one.subject.startswith("ServiceAccount")]
    assert (found.code, found.verdict) == ("unreadable", "unknown")


async def looked(world: DoctorWorld, health_check: SchedulerHealthSettings = HEALTH_CHECK) -> list[Finding]:
    async def one(installation: Installation) -> list[Finding]:
        return await check_profile(installation, SchedulerSettings("kubevirt", health_check))

    return await world.run(one)


def profile(**plugins: Any) -> dict[str, Any]:
    return {"schedulerName": "kubevirt", "plugins": plugins}


def off(*names: str) -> dict[str, Any]:
    return {"disabled": [{"name": name} for name in names]}


async def test_one_that_does_what_vms_need(world: DoctorWorld) -> None:
    (finding,) = await looked(world)

    assert (finding.verdict, finding.code) == ("ok", "profile-correct")
    assert finding.found.startswith(f"{WHERE} ")


@pytest.mark.parametrize(
    ("given", "failures", "warnings"),
    [
        ({}, [], ["image-locality-on"]),
        ({"score": off("ImageLocality")}, [], []),
        ({"score": off("ImageLocality"), "filter": off("TaintToleration")}, ["filter-off"], []),
        ({"score": off("ImageLocality", "InterPodAffinity")}, [], []),
        (
            {"score": "none", "filter": [], "multiPoint": {"disabled": "x"}},
            ["invalid-field"] * 3,
            ["image-locality-on"],
        ),
    ],
)
async def test_mistakes_of_a_configuration_are_those_that_lint_finds(
    world: DoctorWorld, given: dict[str, Any], failures: list[str], warnings: list[str]
) -> None:
    world.scheduler(profile(**given))

    findings = await looked(world)

    assert codes(findings, "failure") == [f"profile kubevirt: {code}" for code in failures]
    assert codes(findings, "warning") == [f"profile kubevirt: {code}" for code in warnings]
    assert all(finding.found.startswith(f"{WHERE}") and finding.todo for finding in findings if finding.verdict != "ok")


async def test_a_second_profile_of_the_default_name(world: DoctorWorld) -> None:
    world.scheduler({"schedulerName": "default-scheduler"}, PROFILE)

    assert codes(await looked(world), "failure") == ["profile kubevirt: default-profile-twice"]


async def test_the_clusters_own_scheduler_needs_the_default_profile(world: DoctorWorld) -> None:
    world.server.put(DEPLOYMENTS, "scheduler", "kube-system", spec=MOUNTING)
    world.server.put(CONFIG_MAPS, "scheduler", "kube-system", data={"c": yaml.safe_dump(configuration(PROFILE))})

    findings = await looked(world, SchedulerHealthSettings("lease", "kube-system", "kube-scheduler"))

    assert codes(findings, "failure") == ["profile kubevirt: default-profile-missing"]


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[1]",
        "kind: Other",
        "kind: KubeSchedulerConfiguration",
        "kind: KubeSchedulerConfiguration\nprofiles: [1, {}]",
    ],
)
async def test_config_maps_that_hold_something_else(world: DoctorWorld, text: str) -> None:
    world.scheduler(text=text)

    assert codes(await looked(world), "unknown") == ["profile kubevirt: profile-not-found"]


async def test_a_profile_that_cannot_be_found(world: DoctorWorld) -> None:
    findings = await looked(world, SchedulerHealthSettings("pods"))
    assert codes(findings, "unknown") == ["profile kubevirt: profile-not-located"]

    world.server.remove(CONFIG_MAPS, "scheduler", "kubevirt-scheduler")
    assert codes(await looked(world), "unknown") == ["profile kubevirt: profile-not-found"]


@pytest.mark.parametrize(("resource", "name"), [(DEPLOYMENTS, ""), (CONFIG_MAPS, "scheduler")])
async def test_objects_of_profiles_that_may_not_be_read(world: DoctorWorld, resource: Any, name: str) -> None:
    world.forbid(resource, "kubevirt-scheduler", name)

    (finding,) = await looked(world)

    assert (finding.verdict, finding.code) == ("unknown", "unreadable")
    assert f"on {resource.plural}" in finding.found
