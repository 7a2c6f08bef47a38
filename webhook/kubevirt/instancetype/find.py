"""Where KubeVirt takes a VM's instancetype from (KubeVirt, pkg/instancetype/find)."""

from __future__ import annotations

from typing import Final

import msgspec

from webhook import names
from webhook.k8s.client.resources import Resource
from webhook.kubevirt.resources import CLUSTER_INSTANCETYPES, INSTANCETYPES
from webhook.kubevirt.views import ControllerRevision, Instancetype, MatcherView, VmStatus


class Live(msgspec.Struct, frozen=True):
    """A live object; ``namespace`` is empty for a cluster-wide kind."""

    resource: Resource[Instancetype]
    namespace: str
    name: str


class Revision(msgspec.Struct, frozen=True):
    """A ControllerRevision in the VM's namespace.

    Attributes:
        object_name: what its label ``instancetype.kubevirt.io/object-name`` must say for it to count; None: anything.
    """

    namespace: str
    name: str
    object_name: str | None = None


class Unresolved(msgspec.Struct, frozen=True):
    """The matcher says nothing that can be looked up, and why."""

    why: str


# Kinds are compared in lower case, in singular or plural; none means the cluster-wide kind.
_KINDS: Final = {
    "": CLUSTER_INSTANCETYPES,
    "virtualmachineclusterinstancetype": CLUSTER_INSTANCETYPES,
    "virtualmachineclusterinstancetypes": CLUSTER_INSTANCETYPES,
    "virtualmachineinstancetype": INSTANCETYPES,
    "virtualmachineinstancetypes": INSTANCETYPES,
}


def find_pinned(matcher: MatcherView, namespace: str, status: VmStatus | None = None) -> Revision | None:
    """The revision that pins a VM's instancetype, or None.

    Args:
        matcher: ``spec.instancetype`` of the VM.
        namespace: the VM's namespace.
        status: the VM's stored status; None at CREATE, where a status is only what the client claims.
    """
    if matcher.revision_name:
        return Revision(namespace, matcher.revision_name)
    reference = status.instancetype_ref.controller_revision_ref if status and status.instancetype_ref else None
    if reference and reference.name and matcher.name:
        return Revision(namespace, reference.name, matcher.name)
    return None


def live(matcher: MatcherView, namespace: str) -> Live | Unresolved:
    """The live object that a matcher names."""
    if not matcher.name:
        if matcher.infer_from_volume:
            return Unresolved("it is still to be inferred from a volume")
        return Unresolved("the matcher names none")
    resource = _KINDS.get((matcher.kind or "").lower())
    if resource is None:
        return Unresolved(f"{matcher.kind} is no kind of instancetype")
    return Live(resource, namespace if resource.namespaced else "", matcher.name)


def counts(revision: Revision, controller_revision: ControllerRevision) -> bool:
    """Whether KubeVirt uses a revision from the VM's status: its label must name the matcher's object.

    The kind is not compared: so it is upstream.
    """
    if revision.object_name is None:
        return True
    return controller_revision.meta.label(names.REVISION_OBJECT_NAME_LABEL) == revision.object_name


def scheduler_of(revision: ControllerRevision) -> str | Unresolved:
    """The scheduler that a stored instancetype sets; ``""`` for none."""
    data = revision.data
    if data is None or (data.kind or "").lower() not in _KINDS or not data.kind:
        return Unresolved("its revision does not hold an instancetype")
    return (data.spec.scheduler_name if data.spec else None) or ""
