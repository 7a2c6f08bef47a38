"""The requests of a VM's life, and what the policies do with each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar, cast

import jsonpatch
import msgspec

from webhook import names
from webhook.admission.audit import NoAudit
from webhook.cli import requests
from webhook.cluster.source import Cluster
from webhook.errors import Unavailable
from webhook.facts import Key, KubeVirtKey, ObjectKey, VmiKey
from webhook.kubevirt.install import KubeVirtInstall
from webhook.kubevirt.launcher import controller_account
from webhook.kubevirt.views import VirtualMachineInstance
from webhook.policies.eviction.pods import REQUESTED_BY
from webhook.review.reviewer import NullObserver, Reviewer
from webhook.review.vm_explanation import PolicyReport, RequestReport
from webhook.settings.snapshot import Settings

T = TypeVar("T")
Json = dict[str, Any]

_VMI: Final = "VirtualMachineInstance"
_OWNER: Final = "kubernetes-admin"
_RESOURCES: Final[Mapping[str, tuple[str, str, str]]] = {  # kind: group, plural, subresource
    "VirtualMachine": (names.KUBEVIRT_GROUP, "virtualmachines", ""),
    _VMI: (names.KUBEVIRT_GROUP, "virtualmachineinstances", ""),
    "Pod": ("", "pods", ""),
    "VirtualMachineInstanceMigration": (names.KUBEVIRT_GROUP, "virtualmachineinstancemigrations", ""),
    "Eviction": ("", "pods", "eviction"),
}


class WithVmi(Cluster):
    """A cluster in which a VMI exists already that KubeVirt has yet to create.

    Args:
        cluster: answers everything else.
        vmi: plain JSON.
    """

    def __init__(self, cluster: Cluster, vmi: Json) -> None:
        self._cluster: Final = cluster
        self._vmi: Final = vmi

    def peek(self, key: Key[Any]) -> object:
        """The VMI, or what the cluster answers."""
        view = self._view_of(key)
        return msgspec.convert(self._vmi, view) if view else self._cluster.peek(key)

    async def read(self, key: Key[T], deadline: float) -> T | None | Unavailable:
        """The VMI, or what the cluster answers."""
        if self._view_of(key):
            return cast("T", self.peek(key))
        return await self._cluster.read(key, deadline)

    def _view_of(self, key: Key[Any]) -> type[Any] | None:
        """The view that a key of the VMI asks for; None: it asks for something else."""
        metadata = self._vmi["metadata"]
        if not isinstance(key, VmiKey | ObjectKey) or (key.namespace, key.name) != (
            metadata["namespace"],
            metadata["name"],
        ):
            return None
        if isinstance(key, VmiKey):
            return VirtualMachineInstance
        return key.resource.view if key.resource.kind == _VMI else None

    def staleness(self) -> Mapping[str, float]:
        """As the cluster says."""
        return self._cluster.staleness()

    def ages(self, keys: Iterable[Key[Any]]) -> Mapping[str, float]:
        """As the cluster says."""
        return self._cluster.ages(keys)

    def waiting_for(self) -> tuple[str, ...]:
        """As the cluster says."""
        return self._cluster.waiting_for()


class VmRequests:
    """Sends requests to the policies as the API server does.

    Args:
        cluster: the facts.
        settings: the settings of the server.
        deadline: on the running loop's clock, in seconds.
    """

    def __init__(self, cluster: Cluster, settings: Settings, deadline: float) -> None:
        self._cluster: Final = cluster
        self._settings: Final = settings
        self._deadline: Final = deadline

    async def create(
        self, obj: Json, *, vmi: Json | None = None, kind: str = "", by_owner: bool = False
    ) -> tuple[Json, RequestReport]:
        """The object after all policies, and what each of them did.

        Args:
            obj: the object, which stays as it is.
            vmi: a VMI that exists although the cluster does not have it.
            kind: the object's kind where it does not say.
            by_owner: the VM's owner sends it; else KubeVirt's controller does.
        """
        kind = kind or obj["kind"]
        cluster = WithVmi(self._cluster, vmi) if vmi else self._cluster
        reviewer = Reviewer(cluster, lambda: self._settings, NoAudit(), NullObserver())
        request = self._request(obj, kind, _OWNER if by_owner else await self._controller())
        reports = []
        for endpoint in await requests.endpoints(request, cluster, self._settings, self._deadline):
            body = msgspec.json.encode(
                {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
            )
            found = await reviewer.evaluate(endpoint, body, self._deadline)
            reports.append(
                PolicyReport(
                    endpoint.policy,
                    found.mode,
                    found.label,
                    tuple(found.decision.reasons),
                    tuple(change.redact() for change in found.decision.changes),
                    tuple(found.outcome.warnings),
                )
            )
            if found.patch:
                request["object"] = jsonpatch.apply_patch(request["object"], json.loads(found.patch))
        return request["object"], RequestReport(kind, tuple(reports))

    def _request(self, obj: Json, kind: str, sender: str) -> Json:
        group, plural, sub_resource = _RESOURCES[kind]
        metadata = obj["metadata"]
        return {
            "uid": "explain",
            "kind": {"group": "policy" if sub_resource else group, "version": "v1", "kind": kind},
            "resource": {"group": group, "version": "v1", "resource": plural},
            "subResource": sub_resource,
            "name": metadata.get("name", ""),
            "namespace": metadata["namespace"],
            "operation": "CREATE",
            "userInfo": {"username": sender, "groups": ["system:authenticated"]},
            "object": obj,
            "oldObject": None,
            "dryRun": True,
        }

    async def _controller(self) -> str:
        install = await self._cluster.read(KubeVirtKey(), self._deadline)
        known = isinstance(install, KubeVirtInstall) and install.namespaces
        return controller_account(min(install.namespaces) if known else "kubevirt")  # type: ignore[union-attr]


def pod_of(vmi: Json) -> Json:
    """The launcher pod of a VMI, as far as the policies read it."""
    metadata, spec = vmi["metadata"], vmi["spec"]
    owner = {"apiVersion": "kubevirt.io/v1", "kind": _VMI, "name": metadata["name"], "uid": metadata.get("uid", "")}
    labels = {names.APP_LABEL: names.LAUNCHER_APP, "kubevirt.io/created-by": metadata.get("uid", "")}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"virt-launcher-{metadata['name']}-",
            "namespace": metadata["namespace"],
            "labels": {**(metadata.get("labels") or {}), **labels},
            "annotations": {**(metadata.get("annotations") or {}), "kubevirt.io/domain": metadata["name"]},
            "ownerReferences": [owner | {"controller": True, "blockOwnerDeletion": True}],
        },
        "spec": {
            "schedulerName": spec.get("schedulerName") or names.DEFAULT_SCHEDULER,
            **{
                field: spec[field]
                for field in ("nodeSelector", "affinity", "tolerations", "topologySpreadConstraints")
                if spec.get(field)
            },
            "containers": [{"name": "compute"}],
        },
    }


def migration_of(namespace: str, name: str) -> Json:
    """A migration of a VM as ``virtctl migrate`` asks for it."""
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceMigration",
        "metadata": {"generateName": "kubevirt-migrate-vm-", "namespace": namespace},
        "spec": {"vmiName": name},
    }


def eviction_of(namespace: str, pod: str, requester: str) -> Json:
    """An eviction of a pod as the descheduler sends it."""
    metadata = {"name": pod, "namespace": namespace, "annotations": {REQUESTED_BY: requester}}
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
