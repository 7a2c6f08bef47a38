from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import pytest

from tests.cluster.fake_apiserver import FakeClock
from tests.golden_files import Golden
from tests.install.memory import HEALTH_CHECK, MANIFESTS, InstallMemory, Replicas, planned
from webhook.errors import InputError
from webhook.install import plan
from webhook.install.apply import Installer
from webhook.install.registration import NOT_YET

DEPLOYMENT = plan.path(planned().deployment)
NAMESPACE = "/api/v1/namespaces/kubevirt-webhook"
GIVEN_UP = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
FIRST = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/kubevirt-webhook"
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

    def are_called(self) -> bool:
        return all(NOT_YET not in entry.get("matchConditions", ()) for entry in self.entries().values())

    def waited(self) -> bool:
        return any(line.startswith("waiting: ") for line in self.reported)

    def roll_out(self, status: dict[str, Any]) -> None:
        def rolled(path: str) -> None:
            if path == DEPLOYMENT:
                self.api.objects[path]["status"] = status

        self.api.then = rolled

    def wait_in_pod(self, **waiting: str) -> None:
        """No replica becomes ready; a new pod has this waiting reason."""
        self.replicas.serve = False
        status = {"phase": "Pending", "containerStatuses": [{"ready": False, "state": {"waiting": waiting}}]}
        self.api.put(
            f"{NAMESPACE}/pods/new", {"metadata": {"namespace": "kubevirt-webhook", "name": "new"}, "status": status}
        )


async def fails(doing: Awaitable[object]) -> InputError:
    with pytest.raises(InputError) as caught:
        await doing
    return caught.value


@pytest.fixture
def world() -> InstalledWorld:
    return InstalledWorld()


@pytest.fixture
async def installed(world: InstalledWorld) -> InstalledWorld:
    await world.installer.install(planned())
    world.api.wrote.clear()
    return world


async def test_first_everything_then_nothing(world: InstalledWorld, golden: Golden) -> None:
    first = await world.installer.changes(planned())
    assert {change.title for change in first} == {plan.title(one) for one in planned().manifests}
    assert all(change.before is None for change in first)
    assert world.api.wrote == []

    await world.installer.install(planned())

    assert {plan.path(one) for one in planned().manifests} == world.api.objects.keys()
    assert await world.installer.changes(planned()) == []
    golden("\n".join(world.reported))
    assert world.are_called()
    world.reported.clear()
    await world.installer.install(planned())
    assert world.reported == []


async def test_what_is_called_is_prepared_before_the_roll_out_and_switched_on_after(installed: InstalledWorld) -> None:
    world, during = installed, list[dict[str, Any]]()
    old = world.entries()

    def rolled(path: str) -> None:
        if path == DEPLOYMENT:
            during.append(world.entries())
        world.replicas._after(path)

    world.api.then = rolled
    change = next(one for one in await world.installer.changes(planned(MORE)) if one.title.startswith("Mutating"))
    assert change.before
    assert "caBundle" not in str(change.before)
    await world.installer.install(planned(MORE))

    (seen,) = during
    new = seen.keys() - old.keys()
    assert {name.partition(".")[0] for name in new} == {"virtualmachineinstances"}
    assert all(seen[name]["matchConditions"] == [NOT_YET] for name in new)
    assert all(seen[name] == old[name] for name in old)
    assert world.are_called()
    first, last = world.wrote("mutatingwebhookconfigurations/kubevirt-webhook")
    assert first < world.wrote("deployments/kubevirt-webhook")[0] < last

    # And back, as it is shown before: entries go before the replicas.
    gone = [change.title for change in await world.installer.changes(planned()) if change.after is None]
    assert gone == [f"{kind} kubevirt-webhook-fidelity" for kind in ("ClusterRole", "ClusterRoleBinding")]
    during.clear()
    await world.installer.install(planned())
    assert during[0].keys() == old.keys()
    assert not [path for path in world.api.objects if path.endswith("fidelity")]
    assert "ClusterRole kubevirt-webhook-fidelity: deleted" in world.reported


async def test_replicas_that_do_not_come(world: InstalledWorld, golden: Golden) -> None:
    world.replicas.serve = False
    error = await fails(world.installer.install(planned()))
    golden("\n".join([*world.reported, str(error)]))
    assert all(entry["matchConditions"] == [NOT_YET] for entry in world.entries().values())

    # Begun again, it goes on.
    world.replicas.serve = True
    await world.installer.install(planned())
    assert world.are_called()


async def test_a_roll_out_that_has_failed_is_not_waited_for(world: InstalledWorld, golden: Golden) -> None:
    world.roll_out({"conditions": [GIVEN_UP]})
    golden(str(await fails(world.installer.install(planned()))))
    assert not world.waited()


async def test_a_second_run_waits_for_a_roll_out_that_hangs(installed: InstalledWorld, golden: Golden) -> None:
    """Nothing is left to change, and yet the installation is not complete."""
    api, installer = installed.api, installed.installer
    assert await installer.shortage(planned()) == ""
    api.objects[DEPLOYMENT]["status"] = {"replicas": 3, "updatedReplicas": 1, "availableReplicas": 2}
    installed.wait_in_pod(reason="ImagePullBackOff", message='Back-off pulling image "here:2"')

    assert await installer.changes(planned()) == []
    assert "Pod new: ImagePullBackOff" in await installer.shortage(planned())
    golden(str(await fails(installer.wait(planned()))))
    assert api.wrote == []

    # The list of pods only explains: a user who may not list them still gets the rest.
    answers: list[Any] = [(403, {}), None]
    for answer in answers:
        api.answers["GET", "/pods"] = answer
        assert "2/2 replicas are ready, 1/2 are updated, 3 exist" in await installer.shortage(planned())


async def test_a_second_run_goes_on_with_a_roll_out_whose_cause_was_repaired(installed: InstalledWorld) -> None:
    deployment = installed.api.objects[DEPLOYMENT]
    healthy, late = deployment["status"], {"replicas": 3, "updatedReplicas": 1, "conditions": [GIVEN_UP]}
    deployment["status"] = late

    def repaired(line: str) -> None:
        if line.startswith("waiting: "):
            installed.api.objects[DEPLOYMENT]["status"] = healthy

    installer = Installer(installed.api, repaired, clock=FakeClock())
    assert await installer.changes(planned()) == []
    await installer.wait(planned())
    assert await installer.shortage(planned()) == ""

    # Nor is a run at fault that was stopped before the rollout was complete, and has other objects to change.
    installed.api.objects[DEPLOYMENT]["status"] = late
    del installed.api.objects[FIRST]
    await installer.install(planned())
    assert await installer.shortage(planned()) == ""


async def test_a_pod_without_a_waiting_reason_is_explained_by_its_events(world: InstalledWorld) -> None:
    world.wait_in_pod(reason="ContainerCreating")
    mount = {"reason": "FailedMount", "message": 'secret "gone" not found', "lastTimestamp": "2026-01-02T00:00:00Z"}
    world.api.put(f"{NAMESPACE}/events/a", mount)
    error = await fails(world.installer.install(planned()))

    assert 'Pod new: ContainerCreating: FailedMount: secret "gone" not found' in error.what
    assert "describe pod new" in error.fix

    # Events only explain, too.
    world.api.answers["GET", "/events"] = 403, {}
    assert "Pod new: ContainerCreating;" in await world.installer.shortage(planned())


async def test_an_image_name_that_is_invalid_is_not_waited_for(world: InstalledWorld) -> None:
    world.wait_in_pod(reason="InvalidImageName")
    assert "InvalidImageName" in (await fails(world.installer.install(planned()))).what
    assert not world.waited()


async def test_a_namespace_that_is_being_deleted(installed: InstalledWorld, golden: Golden) -> None:
    installed.api.objects[NAMESPACE]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    golden(str(await fails(installed.installer.changes(planned()))))
    assert installed.api.wrote == []


async def test_a_namespace_whose_deletion_begins_meanwhile(world: InstalledWorld, golden: Golden) -> None:
    status = {"message": "forbidden: …", "details": {"causes": [{"reason": "NamespaceTerminating"}]}}
    world.api.answers["PATCH", "/deployments/kubevirt-webhook"] = 403, status
    golden(str(await fails(world.installer.install(planned()))))


async def test_nobody_writes_ca_bundles(world: InstalledWorld, golden: Golden) -> None:
    world.roll_out(dict.fromkeys(("replicas", "updatedReplicas", "availableReplicas"), 2))
    golden(str(await fails(world.installer.install(planned()))))


async def test_without_waiting_all_is_applied_at_once(world: InstalledWorld) -> None:
    world.replicas.serve = False
    await world.installer.install(planned(), wait=False)
    assert len(world.wrote("mutatingwebhookconfigurations/kubevirt-webhook")) == 1
    assert world.are_called()


async def test_uninstall_begins_with_what_has_us_called(world: InstalledWorld) -> None:
    await world.installer.install(planned(MORE))
    world.api.wrote.clear()
    there = await world.installer.present(plan.everything(MANIFESTS))
    assert len(there) == len(planned(MORE).manifests)

    await world.installer.uninstall(there)

    assert world.api.objects == {}
    assert all("webhookconfigurations" in one for one in world.api.wrote[:3])
    assert world.api.wrote[3].endswith("deployments/kubevirt-webhook")
    assert world.api.wrote[-1] == f"DELETE {NAMESPACE}"
    assert await world.installer.present(plan.everything(MANIFESTS)) == []


async def test_what_does_not_go_is_told(installed: InstalledWorld, golden: Golden) -> None:
    api, there = installed.api, await installed.installer.present(plan.everything(MANIFESTS))

    async def told() -> None:
        golden(str(await fails(installed.installer.uninstall(there))))

    api.answers["DELETE", "/namespaces/kubevirt-webhook"] = 202, {}
    await told()
    # Why it is there still, in the namespace controller's words; not the log of pods that are gone.
    condition = {"type": "NamespaceFinalizersRemaining", "status": "True"}
    condition["message"] = "finalizers remaining: example.org/hold"
    api.objects[NAMESPACE]["status"] = {"conditions": [condition]}
    await told()
    api.answers["DELETE", "/namespaces/kubevirt-webhook"] = 403, {"message": "no"}
    await told()


@pytest.mark.parametrize(
    "answer",
    [
        *((409, {"message": '"gitops":\n- .spec.replicas'}), (403, {"message": "forbidden"})),
        (409, {"message": 'Apply failed with 1 conflict: conflict with "kubectl" using apps/v1: .spec.replicas'}),
        (409, {"message": 'conflict with "admissionsenforcer": .webhooks[name="a"].namespaceSelector'}),
        *((403, {"message": "exceeded quota: q"}), (422, b"nonsense"), (500, {}), None),
    ],
    ids=[
        "conflict",
        "forbidden",
        "conflict with kubectl",
        "conflict with AKS",
        "quota",
        "no status",
        "no message",
        "no answer",
    ],
)
async def test_refusals_are_one_sentence(
    installed: InstalledWorld, answer: tuple[int, Any] | None, golden: Golden
) -> None:
    installed.api.answers["PATCH", "/deployments/kubevirt-webhook"] = answer
    error = await fails(installed.installer.changes(planned(MORE)))
    assert "\n" not in str(error)
    golden(str(error))


async def test_what_others_wrote_is_no_difference(installed: InstalledWorld) -> None:
    metadata = installed.api.objects[DEPLOYMENT]["metadata"]
    metadata |= {"managedFields": [{}], "annotations": {"deployment.kubernetes.io/revision": "2"}}
    assert await installed.installer.changes(planned()) == []


@pytest.mark.control("fields-of-others")
@pytest.mark.parametrize(("force", "said"), [(True, "true"), (False, "false")])
async def test_fields_of_others_are_taken_only_by_force(force: bool, said: str) -> None:
    world, queries = InstalledWorld(force=force), []
    request = world.api.request

    async def asked(method: str, path: str, query: Any = None, *rest: Any, **more: Any) -> tuple[int, bytes]:
        if method == "PATCH":
            queries.append((query["force"], query["fieldManager"]))
        return await request(method, path, query or {}, *rest, **more)

    world.api.request = asked  # type: ignore[method-assign]
    await world.installer.install(planned())
    assert set(queries) == {(said, "kubevirt-webhook-install")}
