"""Nodes without machines: what a kubelet and virt-handler would report of them is written by a thread."""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import json
import math
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.e2e.support.access import Access
from tests.e2e.support.kube import Json, KubeError
from tests.e2e.support.objects import NODE_LABELS, make_node
from tests.e2e.support.workloads import PODS, VMIS

# What virt-handler 1.9.0 wrote on a node that emulates guests, with libvirt 11.3 and qemu 10.0 (`make guests-lab`).
LABELS: Mapping[str, str] = json.loads(Path(__file__).with_name("node_labels.json").read_text())
# One of those that these nodes have; virt-handler reports the machine that runs, not its alias.
MACHINE = "pc-q35-10.0"
# An annotation of VMIs that cannot be migrated, as with disks that only one node has.
LOCAL = "tests.example/local"
# The port of libvirt and the one of the memory, each behind a port of virt-handler's.
MIGRATION_PORTS = {"37815": 0, "37689": 49152}
# On a real node, a launcher ends 8 seconds after its guest has left; until then its pod runs and is not ready.
LEAVING_SECONDS = 1.0
# Written by the kubelet, not by virt-handler.
BASIC = {"kubernetes.io/arch", "kubernetes.io/os"}
HEARTBEAT = "kubevirt.io/heartbeat"
LAUNCHER = {"virt-launcher", "hotplug-disk"}
DOMAIN = "kubevirt.io/domain"
ROUND_SECONDS = 0.2
HEARTBEAT_ROUNDS = 100
# Another client was faster: the next round sees its change.
RACES = {404, 409}


class PlayedNodes:
    """Nodes, with their zones, on which launcher pods start at once, VMs boot at once, and migrations succeed.

    ``mistakes`` has what went wrong, each once: KubeVirt denied what a node reported.
    """

    def __init__(self, access: Access, zones: Mapping[str, str]) -> None:
        self.mistakes: list[str] = []
        self._access = access
        self._zones = dict(zones)
        self._stop = threading.Event()
        self._holds = threading.Event()
        self._copies = 0.0
        # When guests began to be copied, by the UID of the migration.
        self._copied_since: dict[str, float] = {}
        # When the launchers that their guests have left will have ended, by namespace and name.
        self._leaving: dict[tuple[str, str], float] = {}
        self._thread = threading.Thread(target=self._run, name="nodes", daemon=True)

    def zone(self, node: str) -> str:
        return self._zones[node]

    def start(self) -> None:
        for name, zone in self._zones.items():
            self._make(name, zone)
        self._beat()
        self._thread.start()

    def add(self, name: str, zone: str, allocatable: Mapping[str, str] | None = None) -> None:
        """One more node, or one that was lost."""
        self._make(name, zone, allocatable)
        self._zones[name] = zone
        self._beat()

    def lose(self, name: str) -> None:
        """A node dies: nobody ends its guests, and Kubernetes deletes its pods, as it does once the node is gone."""
        del self._zones[name]
        self._access.admin.delete("v1/nodes", name)
        for pod in self._access.admin.list(PODS):
            if pod["spec"].get("nodeName") == name:
                metadata = pod["metadata"]
                self._access.admin.delete(PODS, metadata["name"], metadata["namespace"], gracePeriodSeconds="0")

    def _make(self, name: str, zone: str, allocatable: Mapping[str, str] | None = None) -> None:
        make_node(self._access.admin, name, {"zone": zone}, allocatable=allocatable)
        labels = {**dict.fromkeys(NODE_LABELS.keys() - BASIC), **LABELS}
        self._access.admin.patch("v1/nodes", name, {"metadata": {"labels": labels}})

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Migrations begin meanwhile, and none ends: every guest is too large to be copied at once."""
        self._holds.set()
        try:
            yield
        finally:
            self._holds.clear()

    @contextlib.contextmanager
    def copying(self, seconds: float) -> Iterator[None]:
        """Each guest takes so long to be copied meanwhile."""
        self._copies = seconds
        try:
            yield
        finally:
            self._copies = 0.0

    def _run(self) -> None:
        rounds = 0
        while not self._stop.wait(ROUND_SECONDS):
            rounds += 1
            self._look(beats=rounds % HEARTBEAT_ROUNDS == 0)

    def _look(self, *, beats: bool) -> None:
        if beats:
            self._beat()
        for pod in self._access.admin.list(PODS):
            self._report(self._kubelet, pod)
        for vmi in self._access.admin.list(VMIS):
            self._report(self._virt_handler, vmi)

    def _report(self, play: Any, found: Json) -> None:
        try:
            play(found)
        except KubeError as error:
            if error.status not in RACES and str(error) not in self.mistakes:
                self.mistakes.append(str(error))

    def _beat(self) -> None:
        """Without it, virt-controller takes a node for unresponsive."""
        for name in list(self._zones):
            with contextlib.suppress(KubeError):  # it has just been lost
                self._access.admin.patch("v1/nodes", name, {"metadata": {"annotations": {HEARTBEAT: _now()}}})

    def _kubelet(self, pod: Json) -> None:
        metadata = pod["metadata"]
        if metadata.get("labels", {}).get("kubevirt.io") not in LAUNCHER or not pod["spec"].get("nodeName"):
            return
        if "deletionTimestamp" in metadata:
            self._end_guest(metadata["namespace"], metadata.get("annotations", {}).get(DOMAIN, ""), pod)
            self._access.admin.delete(PODS, metadata["name"], metadata["namespace"], gracePeriodSeconds="0")
        elif pod["status"].get("phase") == "Pending":
            self._set_status(metadata["name"], metadata["namespace"], _running(pod))
        elif time.monotonic() > self._leaving.get((metadata["namespace"], metadata["name"]), math.inf):
            del self._leaving[metadata["namespace"], metadata["name"]]
            self._set_status(metadata["name"], metadata["namespace"], {"phase": "Succeeded"})

    def _end_guest(self, namespace: str, name: str, pod: Json) -> None:
        """A guest ends before the launcher that it runs in; virt-controller crashes at an update if none is left."""
        found = [vmi for vmi in self._access.admin.list(VMIS, namespace) if vmi["metadata"]["name"] == name]
        for vmi in found:
            if vmi["status"].get("phase") == "Running" and vmi["status"].get("nodeName") == pod["spec"]["nodeName"]:
                _enter(vmi["status"], "Succeeded")
                self._access.kubevirt_controller.replace(VMIS, vmi)

    def _virt_handler(self, vmi: Json) -> None:
        """As kubevirt-controller, for kubevirt-handler's requests must carry a token that is bound to its node."""
        status = vmi["status"]
        migration = status.get("migrationState", {})
        if "deletionTimestamp" in vmi["metadata"]:
            if status.get("phase") in ("Succeeded", "Failed"):
                return
            _enter(status, "Succeeded")
        elif status.get("phase") == "Scheduled":
            _boot(vmi, status)
        elif status.get("phase") == "Running" and _is_to_begin(status, migration):
            if not self._is_copied(migration) and "startTimestamp" in migration:
                return
            _move(vmi, status, migration)
        else:
            return
        self._access.kubevirt_controller.replace(VMIS, vmi)
        if migration.get("completed"):
            self._leave(migration["sourcePod"], vmi["metadata"]["namespace"])

    def _is_copied(self, migration: Json) -> bool:
        """Whether the guest may go on to move now."""
        since = self._copied_since.setdefault(migration["migrationUid"], time.monotonic())
        return not self._holds.is_set() and time.monotonic() - since >= self._copies

    def _leave(self, launcher: str, namespace: str) -> None:
        """The launcher that a guest has left is not ready any more, and ends by itself a while later."""
        self._leaving[namespace, launcher] = time.monotonic() + LEAVING_SECONDS
        why = {"status": "False", "reason": "ContainersNotReady", "lastTransitionTime": _now()}
        conditions = [{"type": kind, **why} for kind in ("Ready", "ContainersReady")]
        self._set_status(launcher, namespace, {"conditions": conditions})

    def _set_status(self, pod: str, namespace: str, status: Json) -> None:
        """As the kubelet does: a condition replaces the one of its type."""
        self._access.admin.patch(PODS, pod, {"status": status}, namespace, kind="strategic", subresource="status")


def _running(pod: Json) -> Json:
    ready = ("PodScheduled", "Initialized", "ContainersReady", "Ready", "kubevirt.io/virtual-machine-unpaused")
    return {
        "phase": "Running",
        "podIP": "10.1.0.9",
        "podIPs": [{"ip": "10.1.0.9"}],
        "startTime": _now(),
        "conditions": [{"type": kind, "status": "True", "lastTransitionTime": _now()} for kind in ready],
        "containerStatuses": [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": _image_id(container["image"]),
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": _now()}},
            }
            for container in pod["spec"]["containers"]
        ],
    }


def _image_id(image: str) -> str:
    """The repository with a digest, by which the target pods of migrations name container disks and kernels."""
    name, _, digest = image.partition("@")
    if not digest:
        name, digest = name.rpartition(":")[0] or name, f"sha256:{hashlib.sha256(image.encode()).hexdigest()}"
    return f"{name}@{digest}"


def _enter(status: Json, phase: str) -> None:
    """virt-controller counts a VMI that never ran as a failed start, and waits longer with the next."""
    status["phase"] = phase
    entered = {"phase": phase, "phaseTransitionTimestamp": _now()}
    status["phaseTransitionTimestamps"] = [*status.get("phaseTransitionTimestamps", ()), entered]


def _boot(vmi: Json, status: Json) -> None:
    _enter(status, "Running")
    status["selinuxContext"] = "none"
    status["migrationMethod"] = "LiveMigration"
    status["migrationTransport"] = "Unix"
    status["machine"] = {"type": MACHINE}
    boot = vmi["spec"]["domain"].get("firmware", {}).get("kernelBoot", {}).get("container", {})
    if boot:
        parts = {"kernelInfo": "kernelPath", "initrdInfo": "initrdPath"}
        status["kernelBootStatus"] = {part: {"checksum": 1} for part, path in parts.items() if path in boot}
    migratable = {"LiveMigratable": "True", "StorageLiveMigratable": "True"}
    if LOCAL in vmi["metadata"].get("annotations", {}):
        migratable = dict.fromkeys(migratable, "False")
    others = [one for one in status.get("conditions", ()) if one["type"] not in migratable]
    # virt-controller tests the list in its patches as it would write it itself, with a null for an absent field.
    never = {"lastProbeTime": None, "lastTransitionTime": None}
    status["conditions"] = [
        *others,
        *({"type": kind, "status": status, **never} for kind, status in migratable.items()),
    ]


def _is_to_begin(status: Json, migration: Json) -> bool:
    target = migration.get("targetNode")
    return bool(migration.get("migrationUid") and target and target != status.get("nodeName")) and not (
        migration.get("completed")
    )


def _move(vmi: Json, status: Json, migration: Json) -> None:
    """Both nodes' parts: the target listens, in the next round the source copies, in the third the guest has moved."""
    if "targetNodeAddress" not in migration:
        migration["targetNodeAddress"] = "10.1.0.10"
        migration["targetDirectMigrationNodePorts"] = dict(MIGRATION_PORTS)
        return
    if "startTimestamp" not in migration:
        migration |= {"startTimestamp": _now(), "mode": "PreCopy"}
        return
    migration |= {"targetNodeDomainDetected": True, "targetNodeDomainReadyTimestamp": _now()}
    migration |= {"endTimestamp": _now(), "completed": True}
    if "targetMemoryOverhead" in migration:
        status.setdefault("memory", {})["memoryOverhead"] = migration["targetMemoryOverhead"]
    status["nodeName"] = migration["targetNode"]
    # virt-controller finds the target pod's.
    status.pop("launcherContainerImageVersion", None)
    status.pop("evacuationNodeName", None)
    vmi["metadata"].setdefault("labels", {})["kubevirt.io/nodeName"] = migration["targetNode"]


def _now() -> str:
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
