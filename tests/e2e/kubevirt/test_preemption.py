"""The preemption policy beside a real KubeVirt, scheduler and taint controller: who moves, and who dies as without it.

The guests are played, as on all nodes here (`PlayedNodes`): one lives as long as its VMI is the same and runs, and dies
where its pod is deleted while it is there, as beside a real virt-handler.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest

from tests.e2e.support import manifests
from tests.e2e.support.kube import Json, KubeObject, eventually
from tests.e2e.support.objects import obj
from tests.e2e.support.rbac import may
from tests.e2e.support.tenant import Tenant
from tests.e2e.support.webhook_server import ACCOUNT, DOMAIN, WebhookServer, install
from tests.e2e.support.workloads import MIGRATIONS, PODS, VMIS
from webhook.policies.groups.settings import GROUPS_ANNOTATION
from webhook.policies.preemption.pods import PREFIX

from .control_plane import ZONES, RunningKubeVirt
from .place import HOSTNAME, Place, cordoned, make_place, vm_run_once

pytestmark = pytest.mark.kubevirt

PREEMPTION = f"{DOMAIN}/preemption"
GROUPS = f"{DOMAIN}/groups"
ONE, *OTHERS = sorted(ZONES)
TWO = OTHERS[0]
HERE = {HOSTNAME: ONE}
QUOTAS = "v1/resourcequotas"
# Of a node's 16 CPUs: two such pods find no room on one.
REQUESTS = {"cpu": "10", "memory": "1Gi"}
PRIORITY = "preempting"
TAINT = {"key": "example.com/maintenance", "effect": "NoExecute"}
# Longer than the time after which a scheduler asks again, so that it does.
COPY_SECONDS = 12
# Fewer are not possible.
DEADLINE_SECONDS = 30


class Guest(NamedTuple):
    """A guest that runs.

    Attributes:
        uid: of its VMI: another one is another guest.
        pod: the name of the pod that it runs in at first.
        pod_uid: its UID.
        phases: how often the VMI has changed its phase.
    """

    uid: str
    pod: str
    pod_uid: str
    phases: int


class Stage:
    """A namespace with VMs, and a server that reviews the deletion of their pods."""

    def __init__(self, place: Place, server: WebhookServer) -> None:
        self.place, self.server = place, server

    def start(self, name: str = "web", node: str = ONE, labels: Json | None = None, **spec: Any) -> Guest:
        """A VM on a node, which may run on other nodes, too, unless its spec says otherwise."""
        domain = {"devices": {}, "resources": {"requests": REQUESTS}}
        template = {"domain": domain, "evictionStrategy": "LiveMigrate", **spec}
        made = vm_run_once(name, {"metadata": {"labels": labels or {}}, "spec": template})
        made["spec"]["runStrategy"] = "Always"
        with cordoned(self.place, ZONES.keys() - {node}):
            self.place.make(made)
            # Only then KubeVirt migrates it.
            is_seen = lambda: self.place.running(name)["status"].get("launcherContainerImageVersion")
            eventually(is_seen, what="virt-controller to have seen the VM's pod")
        vmi, pod = self.place.running(name), self.place.launcher(name)
        assert vmi["status"]["nodeName"] == node
        metadata = pod["metadata"]
        return Guest(vmi["metadata"]["uid"], metadata["name"], metadata["uid"], _changes_of_phase(vmi))

    def ask(self, node: str = ONE) -> None:
        """A pod of high priority that has no place but on one node."""
        self._pod("preemptor", nodeSelector={HOSTNAME: node}, priorityClassName=PRIORITY)

    def fill(self, *nodes: str) -> None:
        """Leaves no room for the VM on nodes."""
        for node in nodes:
            self._pod(f"filler-{node}", nodeName=node)

    def taint(self) -> None:
        self.place.admin.patch("v1/nodes", ONE, {"spec": {"taints": [TAINT]}})

    def bound(self) -> str:
        """The preemptor's node, once it has one."""
        get = lambda: self.place.get(PODS, "preemptor")["spec"].get("nodeName")
        return str(eventually(get, what="a node for the preemptor", timeout=120))

    def lives(self, guest: Guest) -> bool:
        """Whether it is the same guest, and has run all the time."""
        vmi = self._vmi(guest)
        return vmi is not None and vmi["status"]["phase"] == "Running" and _changes_of_phase(vmi) == guest.phases

    def is_dead(self, guest: Guest) -> bool:
        vmi = self._vmi(guest)
        return vmi is None or vmi["status"].get("phase") in ("Succeeded", "Failed")

    def died(self, guest: Guest) -> None:
        """Returns once the guest is dead."""
        eventually(lambda: self.is_dead(guest), what="the guest to be dead", timeout=120)

    def node_of(self, guest: Guest) -> str:
        vmi = self._vmi(guest)
        return str(vmi["status"]["nodeName"]) if vmi else ""

    def has_moved(self, guest: Guest) -> None:
        """Returns once the guest runs on another node, to which the migration that was requested brought it."""
        eventually(lambda: self.node_of(guest) in OTHERS, what="the guest to move", timeout=120)
        assert self.lives(guest)
        (migration,) = self.migrations()
        assert migration["metadata"]["name"] == f"{PREFIX}{guest.pod_uid}"
        assert self.place.ended(migration) == "Succeeded"
        # Nobody deleted the pod that it has left.
        assert "deletionTimestamp" not in self.place.get(PODS, guest.pod)["metadata"]

    def migrations(self) -> list[KubeObject]:
        return self.place.admin.list(MIGRATIONS, self.place.namespace)

    def migrating(self) -> KubeObject:
        """The migration of the VM, once its target pod is made."""
        found = lambda: [each for each in self.migrations() if each.get("status", {}).get("phase")]
        return eventually(found, what="a migration")[0]

    def codes(self) -> set[str]:
        """The reasons of all decisions on the deletions of pods here."""
        return {reason["code"] for reason in self._reasons()}

    def texts(self, code: str) -> list[str]:
        """What was said with a code."""
        return [reason["text"] for reason in self._reasons() if reason["code"] == code]

    def _reasons(self) -> list[Json]:
        return [line["reasons"][0] for line in Tenant(self.server, self.place.namespace).audit("Pod")]

    def _vmi(self, guest: Guest) -> KubeObject | None:
        found = self.place.admin.list(VMIS, self.place.namespace)
        return next((each for each in found if each["metadata"]["uid"] == guest.uid), None)

    def _pod(self, name: str, **spec: Any) -> None:
        container = {"name": "main", "image": "registry.example/batch:1", "resources": {"requests": REQUESTS}}
        spec |= {"containers": [container], "terminationGracePeriodSeconds": 0}
        self.place.make(obj("Pod", name, spec=spec))


def _changes_of_phase(vmi: Json) -> int:
    return len(vmi["status"].get("phaseTransitionTimestamps", ()))


class NewStage(Protocol):
    """Makes a namespace with a mode of the policy, perhaps other policies too, and a server with settings."""

    def __call__(self, mode: str | None = "enforce", annotations: Json | None = None, **settings: Any) -> Stage: ...


@pytest.fixture
def new_stage(real: RunningKubeVirt, tmp_path: Path) -> Iterator[NewStage]:
    admin = real.plane.admin
    install(admin)
    manifests.apply(admin, "components/preemption/rbac.yaml")
    creates = partial(may, real.plane.kube(*ACCOUNT), "create", "virtualmachineinstancemigrations", "", "kubevirt.io")
    eventually(creates, what="the authorizer to know the role")
    admin.apply(obj("PriorityClass", PRIORITY, value=1000))
    eventually(real.is_empty, what="the VMs of other tests to end")
    with contextlib.ExitStack() as ends:

        def make(mode: str | None = "enforce", annotations: Json | None = None, **settings: Any) -> Stage:
            section = {"requestMigrations": True, **settings}
            given = {"schedulers": {}, "preemption": section}
            server = ends.enter_context(WebhookServer(real.plane, tmp_path, f"preemption-{time.monotonic_ns()}", given))
            server.insist()
            assert server.validates
            place = make_place(real, server.labels(mode, [PREEMPTION, GROUPS]), annotations or {})
            ends.callback(_empty, place)
            return Stage(place, server)

        yield make


def _empty(place: Place) -> None:
    """Ends what else a test leaves: nobody ends these pods, nor do others belong on a tainted node."""
    place.real.empty()
    place.admin.patch("v1/nodes", ONE, {"spec": {"taints": None}})
    for pod in place.admin.list(PODS, place.namespace):
        if not pod["metadata"].get("labels", {}).get("kubevirt.io"):
            place.admin.delete(PODS, pod["metadata"]["name"], place.namespace, gracePeriodSeconds="0")


def test_a_preempted_vm_moves_and_the_preemptor_is_bound_after_that(new_stage: NewStage) -> None:
    stage = new_stage()
    guest = stage.start()

    with stage.place.real.nodes.copying(COPY_SECONDS):
        stage.ask()
        stage.migrating()
        stage.bound()

    stage.has_moved(guest)
    assert {"migration-requested", "waits-for-migration"} <= stage.codes()


@pytest.mark.parametrize("mode", ["audit", None])
def test_without_the_policy_the_guest_is_dead(new_stage: NewStage, mode: str | None) -> None:
    stage = new_stage(mode)
    guest = stage.start()

    stage.ask()
    stage.bound()

    assert stage.is_dead(guest)
    assert stage.migrations() == []


def test_a_guest_that_no_node_may_have_dies_at_once(new_stage: NewStage) -> None:
    stage = new_stage()
    guest = stage.start(nodeSelector=HERE)

    stage.ask()
    stage.bound()

    assert stage.is_dead(guest)
    assert stage.migrations() == []
    assert "no-eligible-node" in stage.codes()


def test_a_guest_whose_group_allows_no_other_node_dies_at_once(new_stage: NewStage) -> None:
    """It is what `explain migration` says of it; to wait would save nothing."""
    apart = {"db": {"apart": {"topologyKey": "zone", "required": True}}}
    stage = new_stage(annotations={GROUPS_ANNOTATION: json.dumps(apart)})
    member = {f"{DOMAIN}/group": "db"}
    other, guest = stage.start("other", "node-3", member), stage.start("web", ONE, member)

    with cordoned(stage.place, [node for node, zone in ZONES.items() if zone == ZONES[ONE] and node != ONE]):
        stage.ask()
        stage.bound()

    assert stage.is_dead(guest)
    assert stage.lives(other)
    assert stage.migrations() == []
    assert "no-eligible-node" in stage.codes()


def test_a_guest_whose_target_pod_a_quota_would_deny_dies_at_once(new_stage: NewStage) -> None:
    stage = new_stage()
    scope = {"scopeName": "PriorityClass", "operator": "DoesNotExist"}
    quota = {"hard": {"pods": 1}, "scopeSelector": {"matchExpressions": [scope]}}
    stage.place.make(obj("ResourceQuota", "one", spec=quota))
    guest = stage.start()
    used = lambda: stage.place.get(QUOTAS, "one").get("status", {}).get("used") == {"pods": "1"}
    eventually(used, what="the quota to be full")

    stage.ask()
    stage.bound()

    assert stage.is_dead(guest)
    assert stage.migrations() == []
    assert "vm-cannot-move" in stage.codes()


def test_the_room_that_another_preemptor_waits_for_is_not_the_guests(new_stage: NewStage) -> None:
    """The scheduler itself keeps it: the target pod has a lower priority."""
    stage, others = new_stage(), new_stage("audit")
    guest, victim = stage.start(), others.start("other", TWO)
    stage.fill(*(node for node in OTHERS if node != TWO))

    stage.ask()
    stage.migrating()
    others.ask(TWO)

    assert others.bound() == TWO
    assert others.is_dead(victim)
    # No room is left for it, so that it makes room then.
    assert stage.bound() == ONE
    assert stage.is_dead(guest)
    assert "no-room-elsewhere" in stage.codes()


def test_a_guest_for_which_no_other_node_has_room_dies_after_a_moment(new_stage: NewStage) -> None:
    stage = new_stage()
    guest = stage.start()
    stage.fill(*OTHERS)

    stage.ask()
    stage.migrating()
    stage.bound()

    assert stage.is_dead(guest)
    assert "no-room-elsewhere" in stage.codes()


def test_a_guest_whose_migration_fails_dies_then(new_stage: NewStage) -> None:
    stage = new_stage()
    guest = stage.start()

    with stage.place.real.nodes.holding():
        stage.ask()
        stage.migrating()

        def is_target(pod: KubeObject) -> bool:
            return pod["metadata"]["name"] != guest.pod and "nodeName" in pod["spec"]

        target = eventually(lambda: [*filter(is_target, stage.place.launchers())], what="the target pod")[0]
        assert stage.lives(guest)
        # Before the guest dies: KubeVirt deletes the migrations of a VMI that is gone.
        (migration,) = stage.migrations()
        stage.place.admin.delete(PODS, target["metadata"]["name"], stage.place.namespace)
        assert stage.place.ended(migration) == "Failed"
        stage.died(guest)
        stage.bound()

    assert "migration-was-requested" in stage.codes()


def test_a_guest_that_moves_too_slowly_dies_at_the_deadline(new_stage: NewStage) -> None:
    stage = new_stage(deadlineSeconds=DEADLINE_SECONDS)
    guest = stage.start()

    with stage.place.real.nodes.holding():
        stage.ask()
        stage.migrating()
        began = time.monotonic()
        stage.died(guest)
        stage.bound()

    assert time.monotonic() - began > DEADLINE_SECONDS / 2
    assert "migration-overdue" in stage.codes()


def test_a_guest_whose_migration_goes_on_after_kubevirts_own_limit_dies_before_the_deadline(
    new_stage: NewStage, real: RunningKubeVirt
) -> None:
    """By the options that the real virt-controller writes into the VMI; the played node never ends the migration."""
    stage = new_stage()
    guest = stage.start()
    real.configure(migrations={"completionTimeoutPerGiB": 5})

    try:
        with real.nodes.holding():
            stage.ask()
            stage.migrating()
            stage.died(guest)
            stage.bound()
    finally:
        real.configure(migrations=None)

    assert any("completionTimeoutPerGiB" in text for text in stage.texts("migration-overdue"))


def test_a_guest_dies_as_without_the_policy_while_the_webhook_is_down(new_stage: NewStage) -> None:
    stage = new_stage()
    guest = stage.start()
    stage.server.kill()

    stage.ask()
    stage.bound()

    assert stage.is_dead(guest)
    assert stage.migrations() == []


def test_a_vm_moves_away_from_a_tainted_node(new_stage: NewStage) -> None:
    stage = new_stage()
    guest = stage.start()

    with stage.place.real.nodes.copying(COPY_SECONDS):
        stage.taint()
        stage.migrating()
        stage.has_moved(guest)

    assert {"migration-requested", "waits-for-migration"} & stage.codes()


def test_without_the_policy_the_guest_on_a_tainted_node_is_dead(new_stage: NewStage) -> None:
    stage = new_stage("audit")
    guest = stage.start()

    stage.taint()
    stage.died(guest)

    assert stage.migrations() == []


def test_a_guest_that_moves_too_slowly_from_a_tainted_node_dies_at_the_deadline(new_stage: NewStage) -> None:
    stage = new_stage(deadlineSeconds=DEADLINE_SECONDS)
    guest = stage.start()

    with stage.place.real.nodes.holding():
        stage.taint()
        stage.migrating()
        stage.died(guest)

    assert "migration-overdue" in stage.codes()
