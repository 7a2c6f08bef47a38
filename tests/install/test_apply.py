from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.cluster.fake_apiserver import FakeClock
from tests.install.manifests import HEALTH_CHECK, MANIFESTS, planned
from tests.install.memory import InstallMemory, Replicas
from webhook.errors import InputError
from webhook.install import plan
from webhook.install.apply import Installer
from webhook.install.registration import NOT_YET

DEPLOYMENT = plan.path(planned().deployment)
GIVEN_UP = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
FIRST = f"{MUTATING}/kubevirt-webhook"
MORE = f"{HEALTH_CHECK}scheduling: {{virtualMachineInstances: true}}\ninstancetypes: {{fidelityCheck: {{sample: 1}}}}\n"


class InstalledWorld:
    def __init__(self, **options: Any) -> None:
        self.api = InstallMemory()
        self.replicas = Replicas(self.api)
        self.reported: list[str] = []
        self.installer = Installer(self.api, self.reported.append, clock=FakeClock(), **options)

    def entries(self, path: str = FIRST) -> dict[str, Any]:
        return {one["name"]: one for one in self.api.objects[path].get("webhooks", ())}

    def wrote(self, end: str) -> list[int]:
        return [index for index, one in enumerate(self.api.wrote) if one.endswith(end)]


async def fails(doing: Awaitable[object]) -> InputError:
    with pytest.raises(InputError) as caught:
        await doing
    return caught.value


@pytest.fixture
def world() -> InstalledWorld:
    return InstalledWorld()


async def test_first_everything_then_nothing(world: InstalledWorld, golden: Callable[[str], None]) -> None:
    first = await world.installer.changes(planned())
    assert {change.title for change in first} == {plan.title(one) for one in planned().manifests}
    assert all(change.before is None for change in first)
    assert world.api.wrote == []

    await world.installer.install(planned())

    assert {plan.path(one) for one in planned().manifests} == world.api.objects.keys()
    assert await world.installer.changes(planned()) == []
    golden("\n".join(world.reported))
    for entry in world.entries().values():
        assert NOT_YET not in entry["matchConditions"]
    before = len(world.reported)
    await world.installer.install(planned())
    assert world.reported[before:] == []


async def test_what_is_called_is_prepared_before_the_roll_out_and_switched_on_after(world: InstalledWorld) -> None:
    await world.installer.install(planned())
    world.api.wrote.clear()
    old = world.entries()
    during: list[dict[str, Any]] = []

    def rolled(path: str) -> None:
        if path == DEPLOYMENT:
            during.append(world.entries())
        world.replicas._after(path)

    world.api.then = rolled
    (change,) = [one for one in await world.installer.changes(planned(MORE)) if one.title.startswith("Mutating")][:1]
    assert change.before
    assert "caBundle" not in str(change.before)
    await world.installer.install(planned(MORE))

    (seen,) = during
    new = seen.keys() - old.keys()
    assert {name.partition(".")[0] for name in new} == {"virtualmachineinstances"}
    assert all(seen[name]["matchConditions"] == [NOT_YET] for name in new)
    assert all(seen[name] == old[name] for name in old)
    assert all(NOT_YET not in entry["matchConditions"] for entry in world.entries().values())
    first, last = world.wrote("mutatingwebhookconfigurations/kubevirt-webhook")
    assert first < world.wrote("deployments/kubevirt-webhook")[0] < last

    # And back: entries go before the replicas.
    during.clear()
    await world.installer.install(planned())
    assert during[0].keys() == old.keys()
    assert not [path for path in world.api.objects if path.endswith("fidelity")]
    assert "ClusterRole kubevirt-webhook-fidelity: deleted" in world.reported


async def test_unwanted_objects_are_shown(world: InstalledWorld) -> None:
    await world.installer.install(planned(MORE))
    gone = [change for change in await world.installer.changes(planned()) if change.after is None]

    assert [change.title for change in gone] == [
        "ClusterRole kubevirt-webhook-fidelity",
        "ClusterRoleBinding kubevirt-webhook-fidelity",
    ]


async def test_replicas_that_do_not_come(world: InstalledWorld, golden: Callable[[str], None]) -> None:
    world.replicas.serve = False
    error = await fails(world.installer.install(planned()))
    golden("\n".join([*world.reported, str(error)]))
    assert any(line.startswith("waiting: ") for line in world.reported)
    assert all(entry["matchConditions"] == [NOT_YET] for entry in world.entries().values())

    # Begun again, it goes on.
    world.replicas.serve = True
    await world.installer.install(planned())
    assert all(NOT_YET not in entry["matchConditions"] for entry in world.entries().values())


async def test_a_roll_out_that_has_not_begun_is_waited_for(
    world: InstalledWorld, golden: Callable[[str], None]
) -> None:
    await world.installer.install(planned())

    def slow(path: str) -> None:
        world.api.objects[DEPLOYMENT]["metadata"]["generation"] = 2

    world.api.then = slow
    golden(str(await fails(world.installer.install(planned(MORE)))))


async def test_a_roll_out_that_has_failed_is_not_waited_for(
    world: InstalledWorld, golden: Callable[[str], None]
) -> None:
    def failed(path: str) -> None:
        if path == DEPLOYMENT:
            world.api.objects[path]["status"] = {"conditions": [GIVEN_UP]}

    world.api.then = failed
    error = await fails(world.installer.install(planned()))
    assert "Deployment kubevirt-webhook/kubevirt-webhook" in error.what
    assert not [line for line in world.reported if line.startswith("waiting: ")]
    golden(str(error))


def pod(name: str, waiting: dict[str, str]) -> dict[str, Any]:
    status = {"phase": "Pending", "containerStatuses": [{"ready": False, "state": {"waiting": waiting}}]}
    return {"metadata": {"namespace": "kubevirt-webhook", "name": name}, "status": status}


async def test_a_second_run_waits_for_a_roll_out_that_hangs(
    world: InstalledWorld, golden: Callable[[str], None]
) -> None:
    """Nothing is left to change, and yet the installation is not complete."""
    await world.installer.install(planned())
    assert await world.installer.shortage(planned()) == ""
    world.replicas.serve = False
    counts = {"replicas": 3, "updatedReplicas": 1, "availableReplicas": 2}
    world.api.objects[DEPLOYMENT]["status"] = counts
    waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "here:2"'}
    world.api.put("/api/v1/namespaces/kubevirt-webhook/pods/new", pod("new", waiting))
    world.api.wrote.clear()

    assert await world.installer.changes(planned()) == []
    shortage = await world.installer.shortage(planned())
    assert "Pod new: ImagePullBackOff" in shortage
    error = await fails(world.installer.wait(planned()))

    assert "ImagePullBackOff" in error.what
    assert "describe pod new" in error.fix
    golden(str(error))
    assert world.api.wrote == []

    # The list of pods only explains: a user who may not list them still gets the rest.
    world.api.answers["GET", "/pods"] = 403, {}
    assert "1/2 are updated, 3 exist" in await world.installer.shortage(planned())
    world.api.answers["GET", "/pods"] = None
    assert "2/2 replicas are ready" in await world.installer.shortage(planned())


async def test_a_second_run_goes_on_with_a_roll_out_whose_cause_was_repaired(world: InstalledWorld) -> None:
    await world.installer.install(planned())
    healthy = world.api.objects[DEPLOYMENT]["status"]
    late = {"replicas": 3, "updatedReplicas": 1, "conditions": [GIVEN_UP]}
    world.api.objects[DEPLOYMENT]["status"] = late

    def repaired(line: str) -> None:
        if line.startswith("waiting: "):
            world.api.objects[DEPLOYMENT]["status"] = healthy

    installer = Installer(world.api, repaired, clock=FakeClock())
    assert await installer.changes(planned()) == []
    await installer.wait(planned())
    assert await installer.shortage(planned()) == ""

    # Nor is a run at fault that was stopped before the rollout was complete, and has other objects to change.
    world.api.objects[DEPLOYMENT]["status"] = late
    del world.api.objects[FIRST]
    await installer.install(planned())
    assert await installer.shortage(planned()) == ""


async def test_a_pod_without_a_waiting_reason_is_explained_by_its_events(world: InstalledWorld) -> None:
    world.replicas.serve = False
    creating = {**pod("new", {"reason": "ContainerCreating"}), "apiVersion": "v1", "kind": "Pod"}
    world.api.put("/api/v1/namespaces/kubevirt-webhook/pods/new", creating)
    mount = {"reason": "FailedMount", "message": 'secret "gone" not found', "lastTimestamp": "2026-01-02T00:00:00Z"}
    world.api.put("/api/v1/namespaces/kubevirt-webhook/events/a", mount)
    error = await fails(world.installer.install(planned()))

    assert 'Pod new: ContainerCreating: FailedMount: secret "gone" not found' in error.what
    assert "describe pod new" in error.fix

    # Events only explain, too.
    world.api.answers["GET", "/events"] = 403, {}
    assert "Pod new: ContainerCreating;" in await world.installer.shortage(planned())


async def test_an_image_name_that_is_invalid_is_not_waited_for(world: InstalledWorld) -> None:
    world.replicas.serve = False
    world.api.put("/api/v1/namespaces/kubevirt-webhook/pods/new", pod("new", {"reason": "InvalidImageName"}))
    error = await fails(world.installer.install(planned()))
    assert "InvalidImageName" in error.what
    assert not [line for line in world.reported if line.startswith("waiting: ")]


async def test_a_namespace_that_is_being_deleted(world: InstalledWorld, golden: Callable[[str], None]) -> None:
    await world.installer.install(planned())
    world.api.wrote.clear()
    namespace = world.api.objects["/api/v1/namespaces/kubevirt-webhook"]
    namespace["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    error = await fails(world.installer.changes(planned()))

    assert error.where == "Namespace kubevirt-webhook"
    assert world.api.wrote == []
    golden(str(error))


async def test_a_namespace_whose_deletion_begins_meanwhile(
    world: InstalledWorld, golden: Callable[[str], None]
) -> None:
    status = {"message": "forbidden: …", "details": {"causes": [{"reason": "NamespaceTerminating"}]}}
    world.api.answers["PATCH", "/deployments/kubevirt-webhook"] = 403, status
    error = await fails(world.installer.install(planned()))
    assert "being deleted" in error.what
    assert "account" not in error.fix
    golden(str(error))


async def test_nobody_writes_ca_bundles(world: InstalledWorld, golden: Callable[[str], None]) -> None:
    def rolled(path: str) -> None:
        if path == DEPLOYMENT:
            counts = dict.fromkeys(("replicas", "updatedReplicas", "availableReplicas"), 2)
            world.api.objects[path]["status"] = counts

    world.api.then = rolled
    golden(str(await fails(world.installer.install(planned()))))


async def test_without_waiting_all_is_applied_at_once(world: InstalledWorld) -> None:
    world.replicas.serve = False
    await world.installer.install(planned(), wait=False)

    assert len(world.wrote("mutatingwebhookconfigurations/kubevirt-webhook")) == 1
    assert all(NOT_YET not in entry["matchConditions"] for entry in world.entries().values())


async def test_uninstall_begins_with_what_has_us_called(world: InstalledWorld) -> None:
    await world.installer.install(planned(MORE))
    world.api.wrote.clear()
    there = await world.installer.present(plan.everything(MANIFESTS))
    assert len(there) == len(planned(MORE).manifests)

    await world.installer.uninstall(there)

    assert world.api.objects == {}
    assert all("webhookconfigurations" in one for one in world.api.wrote[:3])
    assert world.api.wrote[3].endswith("deployments/kubevirt-webhook")
    assert world.api.wrote[-1] == "DELETE /api/v1/namespaces/kubevirt-webhook"
    assert await world.installer.present(plan.everything(MANIFESTS)) == []


async def test_what_does_not_go_is_told(world: InstalledWorld, golden: Callable[[str], None]) -> None:
    await world.installer.install(planned())
    there = await world.installer.present(plan.everything(MANIFESTS))
    world.api.answers["DELETE", "/namespaces/kubevirt-webhook"] = 202, {}
    golden(str(await fails(world.installer.uninstall(there))))
    # Why it is there still, in the namespace controller's words; not the log of pods that are gone.
    message = "finalizers remaining: example.org/hold"
    condition = {"type": "NamespaceFinalizersRemaining", "status": "True", "message": message}
    world.api.objects["/api/v1/namespaces/kubevirt-webhook"]["status"] = {"conditions": [condition]}
    error = await fails(world.installer.uninstall(there))
    assert message in error.what
    assert "get namespace kubevirt-webhook" in error.fix
    golden(str(error))
    world.api.answers["DELETE", "/namespaces/kubevirt-webhook"] = 403, {"message": "no"}
    golden(str(await fails(world.installer.uninstall(there))))


@pytest.mark.parametrize(
    "answer",
    [
        (409, {"message": '"gitops":\n- .spec.replicas'}),
        (403, {"message": "forbidden"}),
        (403, {"message": "exceeded quota: q"}),
        (422, b"nonsense"),
        (500, {}),
        None,
    ],
    ids=["conflict", "forbidden", "quota", "no status", "no message", "no answer"],
)
async def test_refusals_are_one_sentence(
    world: InstalledWorld, answer: tuple[int, Any] | None, golden: Callable[[str], None]
) -> None:
    await world.installer.install(planned())
    world.api.answers["PATCH", "/deployments/kubevirt-webhook"] = answer

    error = await fails(world.installer.changes(planned(MORE)))
    assert error.where == "Deployment kubevirt-webhook/kubevirt-webhook"
    assert "\n" not in str(error)
    golden(str(error))


async def test_what_others_wrote_is_no_difference(world: InstalledWorld) -> None:
    await world.installer.install(planned())
    metadata = world.api.objects[DEPLOYMENT]["metadata"]
    metadata["managedFields"] = [{}]
    revised = {**metadata, "annotations": {"deployment.kubernetes.io/revision": "2"}}
    world.api.objects[DEPLOYMENT]["metadata"] = revised

    assert await world.installer.changes(planned()) == []


@pytest.mark.parametrize(("force", "said"), [(True, "true"), (False, "false")])
async def test_fields_of_others_are_taken_only_by_force(force: bool, said: str) -> None:
    world = InstalledWorld(force=force)
    queries = []
    request = world.api.request

    async def asked(method: str, path: str, query: Any = None, *rest: Any, **more: Any) -> tuple[int, bytes]:
        if method == "PATCH":
            queries.append(query)
        return await request(method, path, query or {}, *rest, **more)

    world.api.request = asked  # type: ignore[method-assign]
    await world.installer.install(planned())
    assert {query["force"] for query in queries} == {said}
    assert {query["fieldManager"] for query in queries} == {"kubevirt-webhook-install"}
