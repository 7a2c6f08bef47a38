"""How long the name of a VM may be: which component of a real KubeVirt, or the API server, fails at which length.

docs/naming.md has what was found. The names are longer than a label where that is tried, and so have dots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.support.kube import Json, denied, eventually
from tests.e2e.support.objects import obj
from tests.e2e.support.workloads import MIGRATIONS, PODS, VMIS, VMS
from webhook.kubevirt.releases.capabilities import FINDS_STATE_OF_LONG_NAMES
from webhook.policies.naming.virtualmachines import MAX_WITH_STATE

from .control_plane import RunningKubeVirt
from .place import Place, attachments, hotplugged

pytestmark = pytest.mark.kubevirt

LABEL = 63
# A pod's name is generated from ``virt-launcher-``, the VM's name and ``-``, which may have 253 characters before that.
LONGEST_STARTED = 253 - len("virt-launcher-")
# A ControllerRevision has the VM's name, the instancetype's, ``v1beta1``, a UID and a number.
LONGEST_WITH_SMALL = 253 - len("-u1.small-v1beta1-5ceb8666-dbff-4a91-911f-e502ca009ec0-1")
CLAIMS = "v1/persistentvolumeclaims"
SMALL: Json = {"domain": {"devices": {}, "memory": {"guest": "64Mi"}}}
STATE: Json = {"domain": {**SMALL["domain"], "devices": {"tpm": {"persistent": True}}}}


def named(length: int) -> str:
    """A name of so many characters, in parts that are labels of DNS."""
    whole = ("n" * 62 + ".") * 5
    return whole[: length - 1] + "n" if length > LABEL else "n" * length


def migrates_in_every_way(place: Place, name: str) -> bool:
    """By a migration of a user's, by `virtctl migrate`, and by an eviction."""
    assert place.ended(place.migrate(name)) == "Succeeded"
    ways: tuple[Callable[[], bool], ...] = (
        lambda: place.real.call(place.namespace, name, "migrate") == "",
        lambda: "evacuation" in place.evict(place.launcher(name)).message,
    )
    for ask in ways:
        node = place.running(name)["status"]["nodeName"]
        assert ask()
        moved = lambda vmi, node=node: vmi["status"]["nodeName"] != node
        place.admin.wait(VMIS, name, place.namespace, until=moved, what=f"the VM of {len(name)} characters to move")
        ended = lambda: all(
            each.get("status", {}).get("phase") in ("Succeeded", "Failed")
            for each in place.admin.list(MIGRATIONS, place.namespace)
        )
        eventually(ended, what="its migrations to end")
    return True


@pytest.mark.parametrize("spec", [{"template": SMALL}, {"instancetype": {"name": "u1.small"}}], ids=["own", "sized"])
@pytest.mark.parametrize("length", [40, 47, 48, 57, 58, LABEL])
def test_up_to_63_characters_a_vm_migrates_in_every_way(apart: Place, length: int, spec: Any) -> None:
    name = named(length)
    apart.vm(name, **spec)
    apart.running(name)

    assert migrates_in_every_way(apart, name)

    pod = apart.launcher(name)
    assert pod["spec"]["hostname"] == name
    assert pod["metadata"]["labels"]["vm.kubevirt.io/name"] == name
    # The API server cuts it off.
    assert len(pod["metadata"]["name"]) <= LABEL


def test_volumes_are_attached_to_a_vm_with_the_longest_name(apart: Place) -> None:
    name = named(LABEL)
    apart.vm(name, template=hotplugged(apart, name, "kubernetes.io/os", "linux"))
    node = apart.running(name)["status"]["nodeName"]
    eventually(lambda: attachments(apart, node), what="the volume to be attached")
    assert migrates_in_every_way(apart, name)


@pytest.mark.parametrize("length", [LABEL + 1, 100, LONGEST_STARTED])
def test_a_longer_name_starts_and_never_migrates(apart: Place, length: int) -> None:
    name = named(length)
    apart.vm(name, template=SMALL)
    apart.running(name)
    pod = apart.launcher(name)

    assert "metadata.labels: Invalid value" in denied(lambda: apart.migrate(name)).message
    assert "metadata.labels: Invalid value" in apart.real.call(apart.namespace, name, "migrate")
    assert "evacuation" in apart.evict(pod).message

    # A drain waits for ever: virt-controller cannot create the migration, and the VM stays marked.
    failed = lambda: any(
        "metadata.labels: Invalid value" in each.get("message", "")
        for each in apart.admin.list("v1/events", apart.namespace)
    )
    eventually(failed, what="an event to say so")
    is_marked = lambda: apart.get(VMIS, name)["status"].get("evacuationNodeName") == pod["spec"]["nodeName"]
    eventually(is_marked, what="the VM to be marked")
    assert not apart.admin.list(MIGRATIONS, apart.namespace)
    # Services select by this label, and it does not distinguish VMs with the same beginning.
    assert name.startswith(pod["metadata"]["labels"]["vm.kubevirt.io/name"])
    assert len(pod["metadata"]["labels"]["vm.kubevirt.io/name"]) < length


def test_the_longest_names_do_not_start(apart: Place) -> None:
    name = named(LONGEST_STARTED + 1)
    apart.vm(name, template=SMALL)

    def why() -> str | None:
        found = apart.get(VMIS, name)["status"].get("conditions", [])
        return next((each["message"] for each in found if each["type"] == "Synchronized"), None)

    assert "metadata.generateName" in eventually(why, what="virt-controller to say why there is no pod")


def test_an_instancetype_shortens_that(apart: Place) -> None:
    size = {"name": "u1.small"}
    apart.vm(named(LONGEST_WITH_SMALL), instancetype=size)
    apart.running(named(LONGEST_WITH_SMALL))
    name = named(LONGEST_WITH_SMALL + 1)
    apart.vm(name, instancetype=size)

    def why() -> str | None:
        found = apart.get(VMS, name).get("status", {}).get("conditions", [])
        return next((each["message"] for each in found if each["type"] == "Failure"), None)

    assert "ControllerRevision" in eventually(why, what="virt-controller to say why there is no VMI")


@pytest.fixture
def stateful(real: RunningKubeVirt, apart: Place) -> Iterator[Place]:
    """KubeVirt keeps persistent state in claims, for which there are volumes."""
    admin = real.plane.admin
    name = apart.namespace
    admin.make(obj("StorageClass", name, provisioner="kubernetes.io/no-provisioner"))
    source = {"driver": "tests.example", "volumeHandle": name}
    modes = {"accessModes": ["ReadWriteMany"], "storageClassName": name}
    admin.make(obj("PersistentVolume", name, spec={"capacity": {"storage": "10Mi"}, "csi": source, **modes}))
    real.configure(vmStateStorageClass=name)
    yield apart
    real.configure(vmStateStorageClass=None)
    admin.delete_all(CLAIMS, apart.namespace)
    admin.delete("v1/persistentvolumes", name)
    admin.delete("storage.k8s.io/v1/storageclasses", name)


@pytest.mark.parametrize("length", [MAX_WITH_STATE, MAX_WITH_STATE + 1, LABEL])
def test_a_vm_with_persistent_state_migrates_where_its_release_finds_the_claim(stateful: Place, length: int) -> None:
    name = named(length)
    stateful.vm(name, template=STATE)
    stateful.running(name)
    (claim,) = stateful.admin.list(CLAIMS, stateful.namespace)
    is_cut = f"-{name}" not in claim["metadata"]["name"]
    assert is_cut == (length > MAX_WITH_STATE)

    migration = stateful.migrate(name)

    if is_cut and not stateful.real.release.has(FINDS_STATE_OF_LONG_NAMES):
        with pytest.raises(AssertionError):
            stateful.admin.wait(MIGRATIONS, migration["metadata"]["name"], stateful.namespace, until=_ends, timeout=20)
    else:
        assert stateful.ended(migration) == "Succeeded"


def _ends(found: Json) -> bool:
    return found.get("status", {}).get("phase") in ("Succeeded", "Failed")


def test_a_longer_one_with_persistent_state_does_not_even_start(stateful: Place) -> None:
    name = named(LABEL + 1)
    stateful.vm(name, template=STATE)

    def why() -> bool:
        return "metadata.labels: Invalid value" in str(stateful.get(VMIS, name)["status"].get("conditions"))

    eventually(why, what="virt-controller to say why there is no claim")
    assert not stateful.admin.list(CLAIMS, stateful.namespace)
    assert not stateful.admin.list(PODS, stateful.namespace)
