"""The real descheduler beside a real KubeVirt: who leaves a crowded node, and who is held up by whom."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.support.audited import AuditLog
from tests.e2e.support.descheduler import ACCOUNT, BACKGROUND, policy_of
from tests.e2e.support.kube import Json, eventually
from tests.e2e.support.messages import parse
from tests.e2e.support.objects import obj
from tests.e2e.support.webhook_server import EVICTION, WebhookServer
from tests.e2e.support.workloads import MIGRATIONS, PODS, VMIS, VMS

from .control_plane import RunningKubeVirt
from .descheduling import Descheduler
from .place import Place, cordoned, domain, make_place

pytestmark = [pytest.mark.kubevirt, pytest.mark.timeout(300)]

NODE = "node-1"
# The last ones find nothing to do.
ROUNDS = 6
MOVABLE = [f"vm-{number}" for number in range(6)]
# The priority class, and the beginning of the names, of VMs that a quota holds where they are.
HELD = "held"
# A full quota leaves no room for the pods to which these would move.
STUCK = [f"{HELD}-{letter}" for letter in "ab"]
QUOTAS = "v1/resourcequotas"
# KubeVirt's answer, which the descheduler looks for.
TRIGGERED = "Eviction triggered evacuation"
# KubeVirt's, on the pod of a VM that it is to move.
IN_PROGRESS = "descheduler.alpha.kubernetes.io/eviction-in-progress"
# Eight VMs use 75 % of the node's CPUs, and the mean of the four nodes is 19 %; half of them use less than 39 %.
ENOUGH = 4

Answers = Callable[..., dict[str, list[str]]]


@pytest.fixture(scope="module")
def paced(
    real: RunningKubeVirt, server: WebhookServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WebhookServer]:
    assert server.validates
    settings = {"schedulers": {}, "eviction": {"maxPerNamespace": 2, "coolDownSeconds": 300}}
    with WebhookServer(real.plane, tmp_path_factory.mktemp("paced"), "paced", settings) as started:
        yield started


def look(place: Place, descheduler: Descheduler, rounds: int) -> None:
    """Has it look at the nodes so often, each time after what it asked for before has happened."""
    for number in range(1, rounds + 1):
        descheduler.look()
        eventually(partial(_is_settled, place), what=f"the migrations of round {number} to end")


def _is_settled(place: Place) -> bool:
    """Whether each VM that KubeVirt is to move has left, or cannot be moved and is marked on its pod as well."""
    migrations = [
        one for one in place.admin.list(MIGRATIONS, place.namespace) if not one["spec"]["vmiName"].startswith(HELD)
    ]
    if any(one.get("status", {}).get("phase") not in ("Succeeded", "Failed") for one in migrations):
        return False
    pods = place.admin.list(PODS, place.namespace)
    return all(_is_at_rest(vmi, pods) for vmi in place.admin.list(VMIS, place.namespace))


def _is_at_rest(vmi: Json, pods: Sequence[Json]) -> bool:
    name = vmi["metadata"]["name"]
    own = [pod["metadata"] for pod in pods if domain(pod) == name and pod["status"]["phase"] in ("Pending", "Running")]
    if not vmi["status"].get("evacuationNodeName"):
        return len(own) == 1
    return name.startswith(HELD) and all(IN_PROGRESS in metadata["annotations"] for metadata in own)


def answers_to(log: AuditLog, place: Place) -> dict[str, list[str]]:
    """The answers to the descheduler's evictions in a namespace, by the VM's name."""
    found: dict[str, list[str]] = {}
    for line in log.requests(ACCOUNT.user):
        about = line["objectRef"]
        if about.get("subresource") == "eviction" and about["namespace"] == place.namespace:
            name = about["name"].removeprefix("virt-launcher-").rpartition("-")[0]
            found.setdefault(name, []).append(line["responseStatus"].get("message", ""))
    return found


def crowd(place: Place, node: str, templates: Mapping[str, Json]) -> None:
    """Starts VMs, all on one node, for no other takes any."""
    names = (one["metadata"]["name"] for one in place.admin.list("v1/nodes"))
    with cordoned(place, (name for name in names if name != node)):
        for name, template in templates.items():
            place.vm(name, template=template)
        for name in templates:
            assert place.running(name)["status"]["nodeName"] == node


def marked(place: Place) -> set[str]:
    """The VMs that KubeVirt is to move, and that are where they were."""
    found = place.admin.list(VMIS, place.namespace)
    return {vmi["metadata"]["name"] for vmi in found if vmi["status"].get("evacuationNodeName")}


def template(real: RunningKubeVirt, priority: str) -> Json:
    # The descheduler begins with those of the lowest priority.
    real.plane.admin.apply(obj("PriorityClass", priority, value=0 if priority == HELD else 1000))
    requests = {"cpu": "1500m", "memory": "1Gi"}
    return {"domain": {"devices": {}, "resources": {"requests": requests}}, "priorityClassName": priority}


def uids(place: Place) -> set[str]:
    return {vmi["metadata"]["uid"] for vmi in place.admin.list(VMIS, place.namespace)}


@pytest.fixture
def crowded(real: RunningKubeVirt, request: pytest.FixtureRequest) -> Iterator[Place]:
    """A namespace with eight VMs on one node; with `enforce`, one where evictions are evaluated."""
    mode = request.param
    labels = request.getfixturevalue("paced").labels(None) | {EVICTION: mode} if mode else {}
    place = make_place(real, labels, {})
    stuck = dict.fromkeys(STUCK, template(real, HELD))
    crowd(place, NODE, stuck | dict.fromkeys(MOVABLE, template(real, "important")))
    scope = {"scopeName": "PriorityClass", "operator": "In", "values": [HELD]}
    quota = {"hard": {"pods": len(STUCK)}, "scopeSelector": {"matchExpressions": [scope]}}
    place.admin.create(QUOTAS, obj("ResourceQuota", HELD, spec=quota), place.namespace)
    full = {"pods": str(len(STUCK))}
    eventually(
        lambda: place.admin.get(QUOTAS, HELD, place.namespace).get("status", {}).get("used") == full,
        what="the quota to be full",
    )
    before = uids(place)
    yield place
    # However they are moved, no VM is restarted.
    assert uids(place) == before
    for name in (*MOVABLE, *STUCK):
        place.admin.delete(VMS, name, place.namespace)
    eventually(lambda: not place.admin.list(VMIS, place.namespace), what="the VMs to be gone")


@pytest.fixture
def answers(crowded: Place, descheduler: Path, audit_log: AuditLog, tmp_path: Path) -> Answers:
    """Has the descheduler look at the crowded node; gives the answers to its evictions, by the VM's name."""

    def run(*, background: bool) -> dict[str, list[str]]:
        options = [BACKGROUND] if background else []
        policy = policy_of(crowded.namespace)
        look(crowded, Descheduler(crowded.real, policy, tmp_path, descheduler, options), ROUNDS)
        found = answers_to(audit_log, crowded)
        report(found, crowded)
        return found

    return run


BOTH = pytest.mark.parametrize("crowded", ["enforce"], indirect=True)
ALONE = pytest.mark.parametrize("crowded", [""], indirect=True)


@ALONE
def test_alone_the_vms_that_cannot_move_keep_all_others_from_leaving(crowded: Place, answers: Answers) -> None:
    found = answers(background=True)

    # They are marked, never move, and take the two places that a node has.
    assert left(crowded) == []
    assert marked(crowded) == set(STUCK)
    assert found.keys() == {*STUCK}
    assert all(TRIGGERED in text for texts in found.values() for text in texts)
    for name in STUCK:
        assert IN_PROGRESS in crowded.launcher(name)["metadata"]["annotations"]


@pytest.mark.control("stuck-vms-take-all-places")
@BOTH
def test_with_the_policy_vms_leave_until_the_node_is_not_crowded(crowded: Place, answers: Answers) -> None:
    found = answers(background=True)

    assert len(left(crowded)) == ENOUGH
    # A VM that cannot move is denied before KubeVirt marks it; one that moves is evicted once, and does not restart.
    assert marked(crowded) == set()
    assert all("[quota]" in text for name in STUCK for text in found.pop(name))
    assert {name for name, texts in found.items() if any(TRIGGERED in text for text in texts)} == set(left(crowded))
    assert max(sum(TRIGGERED in text for text in texts) for texts in found.values()) == 1


@ALONE
def test_alone_without_the_feature_gate_all_are_evicted_at_once(crowded: Place, answers: Answers) -> None:
    found = answers(background=False)

    assert found.keys() == {*STUCK, *MOVABLE}
    assert left(crowded) == MOVABLE
    assert marked(crowded) >= set(STUCK)


@BOTH
def test_with_the_policy_and_a_cap_even_then_hardly_more_leave_than_must(crowded: Place, answers: Answers) -> None:
    found = answers(background=False)

    # One more where an eviction comes in the moment before KubeVirt creates the migration of the one before it.
    assert len(left(crowded)) in (ENOUGH, ENOUGH + 1)
    assert marked(crowded) == set()
    # No answer: the eviction of a launcher pod that a VM has left, and that has completed.
    codes = {parse(text).code for texts in found.values() for text in texts if text and TRIGGERED not in text}
    assert {"quota", "too-many-evacuations"} <= codes <= {"quota", "too-many-evacuations", "cool-down"}


def left(place: Place) -> list[str]:
    nodes = {vmi["metadata"]["name"]: vmi["status"].get("nodeName") for vmi in place.admin.list(VMIS, place.namespace)}
    return [name for name in MOVABLE if nodes[name] != NODE]


def report(found: Mapping[str, list[str]], place: Place) -> None:
    """For the table in docs/eviction.md: `-s` shows it."""
    print(f"left: {len(left(place))}, marked: {len(marked(place))}")
    for name, texts in sorted(found.items()):
        said = [TRIGGERED if TRIGGERED in text else text and parse(text).code for text in texts]
        print(f"{name}: {len(texts)} evictions in {ROUNDS} rounds: {said}")
