"""A namespace with policies on: its owner, KubeVirt's controller at work in it, and the server's decisions there."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from subprocess import CompletedProcess
from typing import Any, Self

from .kube import Json, Kube, KubeObject, eventually
from .webhook_server import DOMAIN, SCHEDULING, WebhookServer
from .workloads import PODS, VMIS, VMS, launcher_of, scheduler_of, vm, vmi_of


class Tenant:
    """What happens in one namespace, whose requests a server evaluates."""

    def __init__(self, server: WebhookServer, namespace: str) -> None:
        self.server = server
        self.namespace = namespace

    @classmethod
    def new(cls, server: WebhookServer, mode: str | None = "enforce", policies: Sequence[str] = (SCHEDULING,)) -> Self:
        """In a namespace made now, and not removed: for planes that don't last longer than their test."""
        return cls(server, server.access.admin.make_namespace("tenant-", server.labels(mode, policies)))

    @property
    def owner(self) -> Kube:
        """The client of the owner, who makes VMs and all other objects that need no controller."""
        return self.server.access.admin

    @property
    def controller(self) -> Kube:
        """Makes VMIs and their pods, as KubeVirt does."""
        return self.server.access.kubevirt_controller

    # -- requests ------------------------------------------------------------------------------------------------------

    def create(self, vm: Mapping[str, Any], **query: str) -> KubeObject:
        return self.owner.create(VMS, vm, self.namespace, **query)

    def start(self, vm: Mapping[str, Any]) -> KubeObject:
        return self.controller.create(VMIS, vmi_of(vm), self.namespace)

    def overwrite(self, found: Mapping[str, Any], desired: Mapping[str, Any]) -> KubeObject:
        """Replaces a VM as a VirtualMachinePool does: spec and annotations as its template has them, and no others."""
        changed = copy.deepcopy(dict(found))
        # The API server tries with what its cache has, and admits once more if that was old: wait until it isn't.
        metadata = found["metadata"]
        self.controller.get(VMS, metadata["name"], self.namespace, resourceVersion=metadata["resourceVersion"])
        changed["spec"] = desired["spec"]
        changed["metadata"]["annotations"] = {"pool.example/revision": "2"}
        return self.controller.replace(VMS, changed)

    def launch(self, vmi: Mapping[str, Any], **query: str) -> KubeObject:
        return self.pod(launcher_of(vmi), **query)

    def pod(self, manifest: Mapping[str, Any], **query: str) -> KubeObject:
        """Any pod, as KubeVirt's controller."""
        return self.controller.create(PODS, manifest, self.namespace, **query)

    def kubectl(self, manifest: Mapping[str, Any], *arguments: str, check: bool = False) -> CompletedProcess[str]:
        """What kubectl says to the owner, who creates an object, or gives it another command."""
        words = (*(arguments or ("create",)), f"--namespace={self.namespace}", "--filename=-")
        return self.server.access.kubectl(*words, stdin=json.dumps(manifest), check=check)

    def label(self, mode: str | None, policy: str = SCHEDULING) -> None:
        """Changes what the namespace says about a policy; None: nothing any more."""
        self.owner.patch("v1/namespaces", self.namespace, {"metadata": {"labels": {policy: mode}}})

    def annotate(self, **annotations: str | None) -> None:
        """Changes the namespace's parameters, by the names of their annotations with ``_`` for ``-``."""
        changed = {f"{DOMAIN}/{name.replace('_', '-')}": value for name, value in annotations.items()}
        self.owner.patch("v1/namespaces", self.namespace, {"metadata": {"annotations": changed}})

    def choice(self) -> str | None:
        """The scheduler of a VM that is made now by an owner who chooses none; it is not kept."""
        return scheduler_of(self.create(vm("probe"), dryRun="All"))

    # -- results -------------------------------------------------------------------------------------------------------

    def verdicts(self, kind: str | None = None, path: str = "/") -> list[str]:
        """The server's decisions in this namespace: ``DECISION REASON`` of every review of a kind, in their order."""
        return [f"{line['decision']} {line['reasons'][0]['code']}" for line in self.audit(kind, path)]

    def audit(self, kind: str | None = None, path: str = "/") -> list[Json]:
        """The audit lines of this namespace, on objects of one kind or of all, from endpoints whose paths begin so."""
        lines = [line for line in self.server.audit() if line["object"]["namespace"] == self.namespace]
        return [line for line in lines if kind in (None, line["object"]["kind"]) and line["endpoint"].startswith(path)]

    def bound_by(self, pod: Mapping[str, Any]) -> str:
        """Which scheduler gave a pod its node, once one has: by its own event."""
        name = pod["metadata"]["name"]
        self.owner.wait(
            PODS, name, self.namespace, until=lambda it: it["spec"].get("nodeName"), what=f"a node for {name}"
        )
        which = f"regarding.name={name},reason=Scheduled"
        events = eventually(
            lambda: self.owner.list("events.k8s.io/v1/events", self.namespace, fieldSelector=which),
            what=f"the event of {name}'s scheduling",
        )
        (by,) = {event["reportingController"] for event in events}
        return str(by)
