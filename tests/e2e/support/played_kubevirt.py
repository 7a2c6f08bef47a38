"""KubeVirt's controllers and kubelets in one namespace, as far as migrations, starts and ends of guests need them."""

from __future__ import annotations

import datetime as dt
import secrets
import threading
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from tests.e2e.support.kube import Json, Kube, KubeError, KubeObject
from tests.e2e.support.migrations import HOSTNAME
from tests.e2e.support.objects import owner_reference
from tests.e2e.support.victims import LAUNCHER, requesting_pod
from tests.e2e.support.workloads import MIGRATIONS, PODS, VMIS, vm, vmi_of
from webhook.k8s.types.scheduling import REQUIRED
from webhook.placement.machines import JOB_UID

ROUND_SECONDS = 0.25
# Another client, or the end of a test, was faster.
RACES = (404, 409)
CREATED_BY = "kubevirt.io/created-by"


class Copying(NamedTuple):
    """How a guest is copied.

    Attributes:
        seconds: from when its target pod has a node; None: for ever.
        succeeds: whether it runs on its new node then.
    """

    seconds: float | None
    succeeds: bool = True


class PlayedKubeVirt:
    """A thread for as long as the context lasts.

    A guest dies if its pod is deleted while it is there, and KubeVirt starts it again, in another pod. A guest that has
    moved leaves its pod, which ends.

    Attributes:
        dead: the names of the VMs whose guests have died.
        mistakes: what went wrong with the thread itself.
    """

    def __init__(self, kube: Kube, controller: Kube, space: str) -> None:
        self._kube, self._controller, self._space = kube, controller, space
        self._copying: dict[str, Copying] = {}
        # The pod in which each guest runs.
        self._pods: dict[str, str] = {}
        self._began: dict[str, float] = {}
        self.dead: set[str] = set()
        self.mistakes: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="KubeVirt", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def start(self, name: str, node: str, copying: Copying, selector: Mapping[str, str], cpu: str = "1") -> None:
        """A VM that runs on a node."""
        manifest = vmi_of(vm(name))
        domain = {"devices": {}, "cpu": {"model": "host-passthrough"}, "machine": {"type": "q35"}}
        spec = {"architecture": "amd64", "domain": domain, "evictionStrategy": "LiveMigrate"}
        manifest["spec"] |= {**spec, "nodeSelector": dict(selector)}
        vmi = self._controller.create(VMIS, manifest, self._space)
        pod = self._launcher(vmi, cpu, nodeName=node, nodeSelector=dict(selector))
        made = self._kube.create(PODS, pod, self._space)["metadata"]["name"]
        self._patch(PODS, made, {"status": {"phase": "Running"}}, subresource="status")
        conditions = [{"type": "LiveMigratable", "status": "True"}]
        self._patch(VMIS, name, {"status": {"phase": "Running", "nodeName": node, "conditions": conditions}})
        self._copying[name], self._pods[name] = copying, made

    def pod_of(self, name: str) -> str:
        """The pod in which a guest runs, by name."""
        return self._pods[name]

    def _run(self) -> None:
        while not self._stop.wait(ROUND_SECONDS):
            for look in (self._kubelets, self._controllers):
                try:
                    look()
                except KubeError as error:
                    if error.status not in RACES:
                        self.mistakes.append(str(error))
                except Exception as error:
                    # Else the thread would end, and the test wait for it.
                    self.mistakes.append(repr(error))

    def _kubelets(self) -> None:
        inside = {pod: name for name, pod in [*self._pods.items()]}
        for pod in self._kube.list(PODS, self._space):
            name, phase = pod["metadata"]["name"], pod["status"].get("phase")
            if "deletionTimestamp" in pod["metadata"]:
                if name in inside and phase == "Running" and inside[name] not in self.dead:
                    self._die(inside[name], pod)
                self._kube.delete(PODS, name, self._space, gracePeriodSeconds="0")
            elif pod["spec"].get("nodeName") and phase == "Pending":
                self._patch(PODS, name, {"status": {"phase": "Running"}}, subresource="status")

    def _die(self, name: str, pod: KubeObject) -> None:
        self.dead.add(name)
        self._patch(VMIS, name, {"status": {"phase": "Failed"}})
        cpu = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
        again = requesting_pod(f"again-{name}", cpu, {"app": "again"}, nodeSelector=pod["spec"].get("nodeSelector", {}))
        self._kube.create(PODS, again, self._space)

    def _controllers(self) -> None:
        vmis = {vmi["metadata"]["name"]: vmi for vmi in self._kube.list(VMIS, self._space)}
        pods = self._kube.list(PODS, self._space)
        for migration in self._kube.list(MIGRATIONS, self._space):
            if migration.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
                vmi = vmis.get(migration["spec"]["vmiName"])
                uid = migration["metadata"]["uid"]
                targets = [pod for pod in pods if pod["metadata"].get("labels", {}).get(JOB_UID) == uid]
                self._migrate(migration, vmi, targets[0] if targets else None, pods)

    def _migrate(self, migration: KubeObject, vmi: KubeObject | None, target: KubeObject | None, pods: Any) -> None:
        name, uid = migration["spec"]["vmiName"], migration["metadata"]["uid"]
        copying = self._copying[name]
        if vmi is None or name in self.dead:
            self._end(migration, "Failed", target)
        elif target is None:
            source = next(pod for pod in pods if pod["metadata"]["name"] == self._pods[name])
            cpu = source["spec"]["containers"][0]["resources"]["requests"]["cpu"]
            own = {"labelSelector": {"matchLabels": {CREATED_BY: vmi["metadata"]["uid"]}}, "topologyKey": HOSTNAME}
            pod = self._launcher(
                vmi,
                cpu,
                nodeSelector=source["spec"].get("nodeSelector", {}),
                affinity={"podAntiAffinity": {REQUIRED: [own]}},
            )
            pod["metadata"]["labels"][JOB_UID] = uid
            self._kube.create(PODS, pod, self._space)
        elif target["spec"].get("nodeName"):
            began = self._began.setdefault(uid, time.monotonic())
            if copying.seconds is None or time.monotonic() - began < copying.seconds:
                return
            if not copying.succeeds:
                self._end(migration, "Failed", target)
                return
            left, self._pods[name] = self._pods[name], target["metadata"]["name"]
            self._patch(VMIS, name, {"status": {"nodeName": target["spec"]["nodeName"]}})
            self._end(migration, "Succeeded", None)
            self._patch(PODS, left, {"status": {"phase": "Succeeded"}}, subresource="status")

    def _end(self, migration: KubeObject, phase: str, target: KubeObject | None) -> None:
        state = {"endTimestamp": dt.datetime.now(dt.UTC).isoformat(timespec="seconds")}
        status = {"status": {"phase": phase, "migrationState": state}}
        self._patch(MIGRATIONS, migration["metadata"]["name"], status, subresource="status")
        if target is not None:
            self._kube.delete(PODS, target["metadata"]["name"], self._space, gracePeriodSeconds="0")

    def _launcher(self, vmi: KubeObject, cpu: str, **spec: Any) -> Json:
        name, uid = vmi["metadata"]["name"], vmi["metadata"]["uid"]
        labels = {**LAUNCHER, CREATED_BY: uid}
        pod = requesting_pod(f"virt-launcher-{name}-{secrets.token_hex(3)}", cpu, labels, **spec)
        pod["metadata"]["ownerReferences"] = [owner_reference(vmi)]
        return pod

    def _patch(self, resource: str, name: str, change: Json, **more: Any) -> None:
        self._kube.patch(resource, name, change, self._space, **more)
