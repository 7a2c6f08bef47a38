"""A namespace beside a real KubeVirt, and what can be said of the VMs in it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec

from tests.e2e.support.foreign_webhook import evict
from tests.e2e.support.kube import Json, KubeError, KubeObject, denial, denied, eventually
from tests.e2e.support.objects import has_condition, is_unschedulable, obj
from tests.e2e.support.pki import ADMIN
from tests.e2e.support.program import command
from tests.e2e.support.webhook_server import DOMAIN
from tests.e2e.support.workloads import MIGRATIONS, PODS, REVISIONS, VMIS, VMS
from webhook.k8s.client.identity import Kubeconfig
from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.releases.capabilities import FILLS_MATCHER_KIND
from webhook.kubevirt.types.views import KubeVirt as KubeVirtView
from webhook.kubevirt.vm import fidelity
from webhook.policies.registry import BY_NAME

from .control_plane import KUBEVIRTS, NAMESPACE, RunningKubeVirt

POLICIES = tuple(BY_NAME)
DEFAULTS = {f"{DOMAIN}/default-instancetype": "u1.small", f"{DOMAIN}/default-preference": "fedora"}
HOSTNAME = "kubernetes.io/hostname"
GONE = 404
# The selector of a VM that may run in one zone only.
IN_A = {"domain": {"devices": {}}, "nodeSelector": {"zone": "a"}}


class Place:
    """A namespace of one test's: its VMs, as their owner and as KubeVirt see them."""

    def __init__(self, real: RunningKubeVirt, namespace: str) -> None:
        self.real = real
        self.admin = real.plane.admin
        self.namespace = namespace

    def kubeconfig(self) -> Kubeconfig:
        """The admin's, for the client of kubevirt-webhook's own commands."""
        return Kubeconfig(str(self.real.plane.kubeconfig_for(*ADMIN)))

    def make(self, obj: Json, **query: str) -> KubeObject:
        return self.admin.make(obj, self.namespace, **query)

    def vm(self, name: str = "web", *, run: str = "Always", template: Json | None = None, **spec: Any) -> KubeObject:
        spec = {"runStrategy": run, "template": {"spec": template or {"domain": {"devices": {}}}}, **spec}
        return self.make(obj("VirtualMachine", name, spec=spec))

    def get(self, resource: str, name: str = "web") -> KubeObject:
        return self.admin.get(resource, name, self.namespace)

    def running(self, name: str = "web") -> KubeObject:
        runs = lambda vmi: vmi["status"].get("phase") == "Running"
        return self.admin.wait(VMIS, name, self.namespace, until=runs, what=f"VMI {name} to run")

    def matchers(self, found: Mapping[str, Any]) -> list[Any]:
        """The instancetype and the preference that a VM names, without a kind that KubeVirt has filled in."""
        return [self._without_filled_kind(found["spec"].get(field), field) for field in ("instancetype", "preference")]

    def _without_filled_kind(self, matcher: Json | None, field: str) -> Json | None:
        if matcher is None or not self.real.release.has(FILLS_MATCHER_KIND):
            return matcher
        is_filled = matcher["kind"] == f"virtualmachinecluster{field}"
        return {name: value for name, value in matcher.items() if name != "kind" or not is_filled}

    def patch(self, resource: str, name: str, change: Json) -> KubeObject:
        return self.admin.patch(resource, name, change, self.namespace)

    def migrate(self, name: str = "web", **selector: str) -> KubeObject:
        spec: Json = {"vmiName": name} | ({"addedNodeSelector": selector} if selector else {})
        return self.make(obj("VirtualMachineInstanceMigration", generateName="move-", spec=spec))

    def ended(self, migration: Mapping[str, Any]) -> str:
        is_over = lambda found: found.get("status", {}).get("phase") in ("Succeeded", "Failed")
        ended = self.admin.wait(MIGRATIONS, migration["metadata"]["name"], self.namespace, until=is_over)
        return str(ended["status"]["phase"])

    def explained(self, *options: str) -> Json:
        words = ("explain", "migration", f"{self.namespace}/web", "-o", "json", *options)
        done = command(self.real.plane, *words, check=False)
        assert done.stdout, done.stderr
        found: Json = json.loads(done.stdout)
        return found

    def status(self, name: str) -> Json | None:
        """The status of a VMI that has not ended; None: it has, or is gone."""
        try:
            status: Json = self.get(VMIS, name)["status"]
        except KubeError as error:
            assert error.status == GONE
            return None
        return None if status.get("phase") in ("Succeeded", "Failed") else status

    def launchers(self, name: str = "web") -> list[KubeObject]:
        """The pods of a VM, the newest last."""
        found = [pod for pod in self.admin.list(PODS, self.namespace) if domain(pod) == name]
        return sorted(found, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))

    def launcher(self, name: str = "web") -> KubeObject:
        """The pod that a VM runs in; one that it has left may be on the same node, if it has come back."""
        node = self.running(name)["status"]["nodeName"]
        running = (pod for pod in self.launchers(name) if pod["status"].get("phase") == "Running")
        return next(pod for pod in running if pod["spec"].get("nodeName") == node)

    def unschedulable(self, name: str = "web") -> KubeObject | None:
        return next((pod for pod in self.launchers(name) if is_unschedulable(pod)), None)

    def claim(self, name: str, inferred: Mapping[str, str]) -> KubeObject:
        """A volume that says which instancetype and preference go with it."""
        labels = {f"instancetype.kubevirt.io/{key}": value for key, value in inferred.items()}
        spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        return self.make(obj("PersistentVolumeClaim", name, labels=labels, spec=spec))

    def evict(self, pod: Mapping[str, Any], by: str | None = None) -> KubeError:
        """Evicts a pod and returns the denial: KubeVirt denies every eviction of a VM that it can migrate."""
        return denied(lambda: evict(self.admin, pod["metadata"]["name"], self.namespace, by))


def domain(pod: Mapping[str, Any]) -> str | None:
    """The name of the VM whose pod it is."""
    name: str | None = pod["metadata"].get("annotations", {}).get("kubevirt.io/domain")
    return name


def needs_no_restart(place: Place, name: str = "web") -> bool:
    """Whether KubeVirt, once it has seen the VM as it is now, has the VM run as it says."""

    def seen() -> KubeObject | None:
        vm = place.get(VMS, name)
        is_seen = vm["status"].get("desiredGeneration") == vm["metadata"]["generation"]
        return vm if is_seen and vm["status"].get("ready") else None

    return not has_condition(eventually(seen, what=f"virt-controller to see {name}"), "RestartRequired")


def restarts_alike(place: Place, apart: Place, name: str = "web") -> bool:
    """Whether a restart is asked for here and there, or in neither.

    KubeVirt 1.9.0 may ask for one a moment after a VM was replaced, when it has written the firmware's UUID again.
    """
    alike = lambda: needs_no_restart(place, name) == needs_no_restart(apart, name)
    return eventually(alike, what=f"the VMs {name} to need a restart alike")


def restart(place: Place, name: str = "web") -> None:
    """As `virtctl restart` does; returns once the next VMI runs."""
    before = place.get(VMIS, name)["metadata"]["uid"]
    assert place.real.call(place.namespace, name, "restart") == ""
    is_new = lambda vmi: vmi["metadata"]["uid"] != before and vmi["status"].get("phase") == "Running"
    place.admin.wait(VMIS, name, place.namespace, until=is_new, what=f"{name} to have started again")


def move(place: Place, name: str = "web") -> None:
    assert place.ended(place.migrate(name)) == "Succeeded"


@contextmanager
def cordoned(place: Place, nodes: Iterable[str]) -> Iterator[None]:
    listed = list(nodes)
    for name in listed:
        place.admin.patch("v1/nodes", name, {"spec": {"unschedulable": True}})
    try:
        yield
    finally:
        for name in listed:
            place.admin.patch("v1/nodes", name, {"spec": {"unschedulable": None}})


def vm_run_once(name: str, template: Json) -> Json:
    return obj("VirtualMachine", name, spec={"runStrategy": "Once", "template": template})


def evict_all(place: Place, nodes: Sequence[str]) -> dict[str, str]:
    """One round of a drain: evicts every pod on nodes that has not ended; the answers by pod, empty: it is evicted."""
    answers = {}
    for pod in place.admin.list(PODS, place.namespace):
        is_running = pod["spec"].get("nodeName") in nodes and pod["status"].get("phase") == "Running"
        if is_running and "deletionTimestamp" not in pod["metadata"]:
            name = pod["metadata"]["name"]
            answer = denial(partial(evict, place.admin, name, place.namespace))
            assert answer is None or answer.status in (429, GONE), answer
            answers[name] = answer.message if answer else ""
    return answers


def hotplugged(place: Place, name: str, key: str, value: str) -> Json:
    """The template of a VM with a hotplugged volume that only the nodes with a label can attach."""
    requirement = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    size = {"storage": "1Gi"}
    volume: Json = {
        "capacity": size,
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "none",
        "csi": {"driver": "tests.example", "volumeHandle": name},
        "claimRef": {"namespace": place.namespace, "name": name},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [requirement]}},
    }
    place.admin.create("v1/persistentvolumes", obj("PersistentVolume", f"{place.namespace}-{name}", spec=volume))
    claim = {"accessModes": ["ReadWriteMany"], "storageClassName": "none", "resources": {"requests": size}}
    place.make(obj("PersistentVolumeClaim", name, spec=claim | {"volumeName": f"{place.namespace}-{name}"}))
    source = {"claimName": name, "hotpluggable": True}
    disks = [{"name": "data", "disk": {"bus": "scsi"}}]
    return {
        "domain": {"devices": {"disks": disks}, "memory": {"guest": "1Gi"}},
        "volumes": [{"name": "data", "persistentVolumeClaim": source}],
    }


def attachments(place: Place, node: str) -> list[KubeObject]:
    """The pods that attach hotplugged volumes, of a node; empty: of none yet."""
    found = [
        pod
        for pod in place.admin.list(PODS, place.namespace)
        if pod["metadata"].get("labels", {}).get("kubevirt.io") == "hotplug-disk"
    ]
    return [pod for pod in found if pod["spec"].get("nodeName", "") == node]


def make_place(real: RunningKubeVirt, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Place:
    namespace = real.plane.admin.make_namespace("real-", labels, annotations)
    real.plane.admin.wait("v1/serviceaccounts", "default", namespace, until=bool, what="the account of its pods")
    return Place(real, namespace)


def differences(place: Place, name: str) -> list[str]:
    """Where a VMI differs from what the webhook's port of KubeVirt makes of its VM."""
    vmi, vm = place.get(VMIS, name), place.get(VMS, name)
    kubevirt = place.admin.get(KUBEVIRTS, "kubevirt", NAMESPACE)

    def get(kind: str, namespace: str, name: str) -> Any:
        assert kind == "ControllerRevision"
        return _plain(place.admin.get(REVISIONS, name, namespace))

    configuration = ClusterConfig.of_kubevirt(msgspec.convert(_plain(kubevirt), KubeVirtView))
    return [*fidelity.differences(_plain(vm), _plain(vmi), get, configuration)]


def _plain(found: Mapping[str, Any]) -> Any:
    return json.loads(json.dumps(found))


def annotations_left(vmi: Mapping[str, Any]) -> dict[str, str]:
    """The annotations that instancetype and preference left, and not those that virt-controller keeps for itself."""
    own = (DOMAIN, "kubevirt.io/vm-generation", "kubevirt.io/nonroot")
    return {
        key: value
        for key, value in vmi["metadata"]["annotations"].items()
        if not key.startswith(own) and not key.endswith("-observed-api-version")
    }
